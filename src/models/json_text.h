// A value of a configuration, as an error message quotes it, and the message.
// Threads: any. Memory: the string. Errors: none.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

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

}  // namespace lumen::models
