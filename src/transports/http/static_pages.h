// The files that the server shows to browsers: the page at "/" with its style and script, and the
// OpenAPI document. They are part of the program (tools/cmake/pages.cmake).
// Threads: any. Memory: constants. Errors: none.
#pragma once

#include <string_view>

namespace lumen::http {

struct StaticPage {
  std::string_view path;
  std::string_view content_type;
  std::string_view body;
};

// Header lines of each of them. The page may load from this server alone, and stand in no frame.
inline constexpr std::string_view kPageHeaders =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cache-Control: no-cache\r\n";

// nullptr: none has this path.
[[nodiscard]] const StaticPage* find_page(std::string_view path) noexcept;

}  // namespace lumen::http
