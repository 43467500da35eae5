// See the header.
#include "models/warm_up_config.h"

#include <lumen/base/limits.h>

#include <nlohmann/json.hpp>

#include "models/json_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

namespace lumen::models {
namespace {

using Json = nlohmann::json;

// Each instance runs them all before it serves: more would be a load test.
constexpr size_t kMostRequests = 64;
constexpr uint32_t kMostRuns = 1000;

constexpr std::array<std::string_view, 2> kRequestKeys = {"inputs", "count"};
constexpr std::array<std::string_view, 4> kInputKeys = {"name", "datatype", "shape", "data"};

// Empty: `value` is an object that has none but these keys.
template <size_t N>
std::string check_keys(const std::string& path, const Json& value,
                       const std::array<std::string_view, N>& keys, const std::string& wanted) {
  if (!value.is_object()) return got_wanted(path, value, wanted);
  for (const auto& [key, one] : value.items()) {
    if (std::ranges::find(keys, std::string_view(key)) == keys.end()) {
      std::string problem = "unknown key " + shown(Json(key));
      return problem.append(" in \"").append(path).append("\"; wanted ").append(wanted);
    }
  }
  return {};
}

template <typename T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* const from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof(value));
}

template <typename T>
bool append_integer(const Json& value, std::vector<std::byte>& bytes) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<T>::max())) return false;
    append(bytes, static_cast<T>(number));
    return true;
  }
  if (!value.is_number_integer()) return false;
  const auto number = value.get<int64_t>();
  if (number < static_cast<int64_t>(std::numeric_limits<T>::min())) return false;
  append(bytes, static_cast<T>(number));
  return true;
}

bool append_text(const Json& value, std::vector<std::byte>& bytes) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  append(bytes, static_cast<uint32_t>(text.size()));
  const auto* const from = reinterpret_cast<const std::byte*>(text.data());
  bytes.insert(bytes.end(), from, from + text.size());
  return true;
}

bool append_float(const Json& value, std::vector<std::byte>& bytes) {
  if (!value.is_number()) return false;
  const auto number = static_cast<float>(value.get<double>());
  append(bytes, number);
  return std::isfinite(number);
}

// One element; false: it is none of that type.
bool append_element(ElementType type, const Json& value, std::vector<std::byte>& bytes) {
  switch (type) {
    case ElementType::kBool:
      if (value.is_boolean()) append(bytes, static_cast<uint8_t>(value.get<bool>()));
      return value.is_boolean();
    case ElementType::kUint8: return append_integer<uint8_t>(value, bytes);
    case ElementType::kUint16: return append_integer<uint16_t>(value, bytes);
    case ElementType::kUint32: return append_integer<uint32_t>(value, bytes);
    case ElementType::kUint64: return append_integer<uint64_t>(value, bytes);
    case ElementType::kInt8: return append_integer<int8_t>(value, bytes);
    case ElementType::kInt16: return append_integer<int16_t>(value, bytes);
    case ElementType::kInt32: return append_integer<int32_t>(value, bytes);
    case ElementType::kInt64: return append_integer<int64_t>(value, bytes);
    case ElementType::kFp32: return append_float(value, bytes);
    case ElementType::kFp64:
      if (value.is_number()) append(bytes, value.get<double>());
      return value.is_number();
    case ElementType::kBytes: return append_text(value, bytes);
    case ElementType::kFp16:
    case ElementType::kBf16: return false;
  }
  return false;
}

// A list of elements, or lists of lists of them, as a request has them.
std::string read_list(const std::string& path, const Json& list, WarmUpInput& input,
                      size_t& count) {
  for (const Json& value : list) {
    if (value.is_array()) {
      std::string problem = read_list(path, value, input, count);
      if (!problem.empty()) return problem;
    } else if (append_element(input.type, value, input.bytes)) {
      ++count;
    } else {
      return got_wanted(path, value, "elements of " + std::string(element_type_name(input.type)));
    }
  }
  return {};
}

std::string read_data(const std::string& path, const Json& value, WarmUpInput& input) {
  if (value == "random") return {};
  if (value == "zeros") {
    input.data = WarmUpInput::Data::kZeros;
    return {};
  }
  const bool has_no_text = input.type == ElementType::kFp16 || input.type == ElementType::kBf16;
  if (!value.is_array() || has_no_text) {
    return got_wanted(path, value,
                      has_no_text ? "\"random\" or \"zeros\", as JSON has no " +
                                        std::string(element_type_name(input.type))
                                  : "\"random\", \"zeros\" or a list of elements");
  }
  input.data = WarmUpInput::Data::kGiven;
  size_t count = 0;
  std::string problem = read_list(path, value, input, count);
  if (!problem.empty()) return problem;
  const size_t wanted = input.shape.element_count().value_or(SIZE_MAX);
  if (count == wanted) return {};
  return "key \"" + path + "\": got " + std::to_string(count) + " elements, wanted " +
         std::to_string(wanted) + ", as \"shape\" says";
}

std::string read_shape(const std::string& path, const Json& value, WarmUpInput& input) {
  for (const Json& size : value.is_array() ? value : Json::array({-1})) {
    const auto number = size.is_number_unsigned() ? size.get<uint64_t>() : UINT64_MAX;
    const bool is_size = number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (is_size && input.shape.append(static_cast<int64_t>(number))) continue;
    return got_wanted(path, value,
                      "a list of at most " + std::to_string(limits::kMaxRank) + " sizes");
  }
  return {};
}

std::string read_input(const std::string& path, const Json& value, WarmUpInput& input) {
  std::string problem =
      check_keys(path, value, kInputKeys,
                 "an object, as {\"name\": \"x\", \"datatype\": \"FP32\", \"shape\": [1, 4]}");
  if (!problem.empty()) return problem;
  const Json none;
  const auto at = [&](std::string_view key) -> const Json& {
    const auto found = value.find(key);
    return found == value.end() ? none : *found;
  };
  if (!at("name").is_string()) return got_wanted(path + ".name", at("name"), "an input's name");
  input.name = at("name").get<std::string>();
  const Json& datatype = at("datatype");
  const auto type = datatype.is_string()
                        ? parse_element_type(datatype.get_ref<const std::string&>())
                        : std::nullopt;
  if (!type) return got_wanted(path + ".datatype", datatype, "a datatype, as \"FP32\"");
  input.type = *type;
  problem = read_shape(path + ".shape", at("shape"), input);
  if (problem.empty() && value.contains("data")) {
    problem = read_data(path + ".data", at("data"), input);
  }
  return problem;
}

std::string read_request(const std::string& path, const Json& value, WarmUpRequest& request) {
  std::string problem =
      check_keys(path, value, kRequestKeys, "an object, as {\"inputs\": [...], \"count\": 1}");
  if (!problem.empty()) return problem;
  if (const auto count = value.find("count"); count != value.end()) {
    const auto runs = count->is_number_unsigned() ? count->get<uint64_t>() : 0;
    if (runs < 1 || runs > kMostRuns) {
      return got_wanted(path + ".count", *count,
                        "a whole number from 1 to " + std::to_string(kMostRuns));
    }
    request.count = static_cast<uint32_t>(runs);
  }
  const auto inputs = value.find("inputs");
  if (inputs == value.end() || !inputs->is_array() || inputs->size() > limits::kMaxTensors) {
    return got_wanted(path + ".inputs", inputs == value.end() ? Json() : *inputs,
                      "a list of inputs");
  }
  for (const Json& one : *inputs) {
    const std::string here = path + ".inputs[" + std::to_string(request.inputs.size()) + ']';
    WarmUpInput input;
    problem = read_input(here, one, input);
    if (!problem.empty()) return problem;
    if (std::ranges::find(request.inputs, input.name, &WarmUpInput::name) != request.inputs.end()) {
      return got_wanted(here + ".name", one["name"], "each input once");
    }
    request.inputs.push_back(std::move(input));
  }
  return {};
}

}  // namespace

std::string read_warm_up(const Json& section, std::vector<WarmUpRequest>& requests) {
  if (!section.is_array() || section.size() > kMostRequests) {
    return got_wanted("warmup", section,
                      "a list of at most " + std::to_string(kMostRequests) + " requests");
  }
  for (const Json& one : section) {
    WarmUpRequest request;
    std::string problem =
        read_request("warmup[" + std::to_string(requests.size()) + ']', one, request);
    if (!problem.empty()) return problem;
    requests.push_back(std::move(request));
  }
  return {};
}

}  // namespace lumen::models
