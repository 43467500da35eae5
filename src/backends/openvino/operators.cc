// See the header.
#include "backends/openvino/operators.h"

#include <string_view>

namespace lumen::backends::openvino {
namespace {

#include "backends/openvino/operators.inc"

}  // namespace

const engine::OperatorTable kOperators = {
    .made_with = kMadeWith, .version = kVersion, .rules = kRules, .exceptions = kExceptions};

}  // namespace lumen::backends::openvino
