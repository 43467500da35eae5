// printf into a string, for sentences about models.
// Threads: any. Memory: the string. Errors: cut at 300 bytes.
#pragma once

#include <array>
#include <cstdarg>
#include <cstdio>
#include <string>

namespace lumen::models {

[[nodiscard, gnu::format(printf, 1, 2)]] inline std::string format_text(const char* format, ...) {
  std::array<char, 300> buffer{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer.data(), buffer.size(), format, arguments);
  va_end(arguments);
  return buffer.data();
}

}  // namespace lumen::models
