// Cors: which pages in browsers may read the replies (cross-origin resource sharing, as the Fetch
// standard has it: https://fetch.spec.whatwg.org/#http-cors-protocol). A browser tells a page's
// origin; a reply without the lines for it is not given to the page. Credentials are never allowed:
// Lumen knows no cookies.
// Threads: lines_for() any; create() control plane, at start. Memory: the heap at create() only.
// Errors: none; create() takes a text that is_origin_list() accepts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::http {

// A longer origin is no scheme, name (RFC 1035: 255 bytes at most, and real ones far less) and port
// of a page; with the lines for one of this size a reply's head keeps its bound.
inline constexpr size_t kMaxOriginBytes = 200;

class Cors {
 public:
  // `origins`: as "https://app.example:8443", separated by commas; "*": every page; empty: none.
  [[nodiscard]] static Cors create(std::string_view origins);

  // Complete header lines for a reply to a request with this Origin; empty: no page of that origin
  // may read it.
  [[nodiscard]] std::string_view lines_for(std::string_view origin) const noexcept;
  // The lines that the answer to a preflight has beside these.
  [[nodiscard]] static std::string_view preflight_lines() noexcept;

 private:
  struct Origin {
    std::string text;  // in lower case, as browsers send it
    std::string lines;
  };
  std::vector<Origin> origins_;
  std::string lines_for_all_;  // empty: not all
};

// Origins as browsers send them: scheme://name, with a port where it is not the scheme's own, and
// no path.
[[nodiscard]] bool is_origin_list(std::string_view text) noexcept;

}  // namespace lumen::http
