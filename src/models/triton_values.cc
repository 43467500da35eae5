// See the header.
#include "models/triton_values.h"

#include <nlohmann/json.hpp>

#include <charconv>
#include <string>
#include <string_view>

namespace lumen::models {
namespace {

using Json = nlohmann::json;

// Protobuf's JSON writes 64-bit integers as strings.
std::optional<int64_t> integer_of(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    return number <= INT64_MAX ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole ? std::optional(number) : std::nullopt;
}

}  // namespace

std::optional<int64_t> integer_within(const Json& value, int64_t least, int64_t most) {
  const std::optional<int64_t> number = integer_of(value);
  return number && *number >= least && *number <= most ? number : std::nullopt;
}

std::optional<ElementType> triton_type(const Json& value) {
  constexpr std::string_view kPrefix = "TYPE_";
  const std::string text = value.is_string() ? value.get<std::string>() : std::string();
  if (!text.starts_with(kPrefix)) return std::nullopt;
  const std::string_view name = std::string_view(text).substr(kPrefix.size());
  return name == "STRING" ? ElementType::kBytes : parse_element_type(name);
}

std::optional<Shape> triton_dims(const Json& value) {
  Shape shape;
  if (value.is_null()) return shape;  // protobuf leaves an empty list out
  if (!value.is_array()) return std::nullopt;
  for (const Json& one : value) {
    const auto size = integer_within(one, Shape::kDynamic, INT64_MAX);
    if (!size || !shape.append(*size)) return std::nullopt;
  }
  return shape;
}

}  // namespace lumen::models
