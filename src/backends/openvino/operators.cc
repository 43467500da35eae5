// See the header.
#include "backends/openvino/operators.h"

#include <algorithm>
#include <string_view>

namespace lumen::backends::openvino {
namespace {

#include "backends/openvino/operators.inc"

constexpr models::OperatorTable kTable = {
    .made_with = kMadeWith,
    .version = kVersion,
    .rules = kRules,
    .exceptions = kExceptions,
    .newest_opset = std::ranges::max(kRules, {}, &models::OperatorRule::last_opset).last_opset};

}  // namespace

const models::OperatorTable kOperators = kTable;

}  // namespace lumen::backends::openvino
