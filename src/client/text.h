// text_of: printf into a std::string, for reports. Threads: any. Memory: the heap. Errors: never.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

namespace lumen::client {

[[gnu::format(printf, 1, 2)]] inline std::string text_of(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char line[1024];
  const int size = std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  return size < 0 ? std::string() : std::string(line);
}

}  // namespace lumen::client
