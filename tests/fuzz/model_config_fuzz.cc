// parse_model_config: an accepted text is JSON with options within their bounds, a refusal says why
// in one line, and the same text gives the same answer twice.
#include <lumen/base/limits.h>

#include "fuzz/fuzz_support.h"
#include "models/model_config.h"

#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <string>

using lumen::Result;
using lumen::fuzz::Copy;
using lumen::models::ModelOptions;
using lumen::models::Precision;
using lumen::models::WarmUpInput;
using lumen::models::WarmUpRequest;

namespace {

constexpr uint32_t kMaxBatchSize = 4096;  // of model_config.cc
constexpr uint32_t kMostRuns = 1000;      // of warm_up_config.cc

// Given data are as long as the shape says.
void check_input(const WarmUpInput& input) {
  if (input.data != WarmUpInput::Data::kGiven) return LUMEN_CHECK(input.bytes.empty());
  const std::optional<size_t> count = input.shape.element_count();
  LUMEN_CHECK(count.has_value());
  const size_t element = lumen::element_size(input.type);
  LUMEN_CHECK(element == 0 ? input.bytes.size() >= *count * sizeof(uint32_t)
                           : input.bytes.size() == *count * element);
}

void check_options(const ModelOptions& options) {
  LUMEN_CHECK(options.precision == Precision::kF32 || options.precision == Precision::kBf16 ||
              options.precision == Precision::kAuto);
  LUMEN_CHECK(options.batch_sizes.size() <= lumen::limits::kMaxStaticBatchSizes);
  std::vector<uint32_t> sizes = options.batch_sizes;
  std::ranges::sort(sizes);
  LUMEN_CHECK(std::ranges::adjacent_find(sizes) == sizes.end());
  LUMEN_CHECK(sizes.empty() || (sizes.front() >= 1 && sizes.back() <= kMaxBatchSize));
  for (const WarmUpRequest& request : options.warm_up) {
    LUMEN_CHECK(request.count >= 1 && request.count <= kMostRuns);
    for (const WarmUpInput& input : request.inputs) check_input(input);
  }
}

void check_is_json(std::string_view text) {
  static simdjson::dom::parser judge;
  // nlohmann-json lets a byte order mark pass.
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const auto verdict = judge.parse(simdjson::padded_string(text)).error();
  // Numbers may be larger than simdjson keeps, where a key is ignored.
  LUMEN_CHECK(verdict == simdjson::SUCCESS || verdict == simdjson::NUMBER_ERROR);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Copy copy(std::string_view(reinterpret_cast<const char*>(data), size));
  const Result<ModelOptions> read = lumen::models::parse_model_config(copy.view(), "config.json");
  const Result<ModelOptions> again = lumen::models::parse_model_config(copy.view(), "config.json");
  LUMEN_CHECK(read.ok() == again.ok());
  if (!read.ok()) {
    LUMEN_CHECK(read.status().message().starts_with("config.json"));
    LUMEN_CHECK(read.status().message() == again.status().message());
    return 0;
  }
  check_is_json(copy.view());
  check_options(*read);
  LUMEN_CHECK(read->precision == again->precision && read->batch_sizes == again->batch_sizes);
  return 0;
}
