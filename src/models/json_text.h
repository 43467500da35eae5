// A value of a configuration, as an error message quotes it, and the message.
// Threads: any. Memory: the string. Errors: none.
#pragma once

#include <lumen/base/nearest_name.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace lumen::models {

// As it stands in the file, cut: configurations of other servers hold long ones.
[[nodiscard]] inline std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// The error of a key by its path in the file.
[[nodiscard]] inline std::string got_wanted(const std::string& path, const nlohmann::json& value,
                                            const std::string& wanted) {
  return "key \"" + path + "\": got " + shown(value) + ", wanted " + wanted;
}

// The error of a key that is none of `valid`, with the nearest of them.
[[nodiscard]] inline std::string unknown_key(const std::string& path, const std::string& key,
                                             std::span<const std::string_view> valid) {
  std::string text = "unknown key " + shown(nlohmann::json(key)) + " in \"" + path + '"';
  const std::string_view nearest = nearest_name(key, valid);
  if (!nearest.empty()) return text + "; did you mean \"" + std::string(nearest) + "\"?";
  text += "; valid:";
  for (const std::string_view one : valid) text += " \"" + std::string(one) + '"';
  return text;
}

// As protobuf leaves a field out, alone or in an object or a list of such.
[[nodiscard]] inline bool is_default(const nlohmann::json& value) {
  if (value.is_object()) {
    for (const auto& [key, one] : value.items()) {
      if (!is_default(one)) return false;
    }
    return true;
  }
  if (value.is_array()) return std::ranges::all_of(value, is_default);
  const std::string text = value.is_string() ? value.get<std::string>() : std::string();
  const bool is_default_text =
      text.empty() || text == "0" || text == "FORMAT_NONE" || text == "PRIORITY_DEFAULT";
  return value.is_null() || value == false || value == 0 || (value.is_string() && is_default_text);
}

}  // namespace lumen::models
