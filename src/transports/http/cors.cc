// The header lines for each origin, written once at start. See the header.
#include <lumen/transports/http/cors.h>

#include "transports/http/comma_list.h"

#include <algorithm>
#include <utility>

namespace lumen::http {
namespace {

// Binary replies can't be read without this one; the others that a page needs are readable anyway.
constexpr std::string_view kExposed =
    "Access-Control-Expose-Headers: Inference-Header-Content-Length\r\n";

bool is_alphanumeric(char c) noexcept {
  return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9');
}

bool is_origin(std::string_view text) noexcept {
  const size_t end = text.find("://");
  if (end == std::string_view::npos || end == 0 || text.size() > kMaxOriginBytes) return false;
  const std::string_view scheme = text.substr(0, end);
  const std::string_view host = text.substr(end + 3);
  const auto is_of_scheme = [](char c) {
    return is_alphanumeric(c) || c == '+' || c == '-' || c == '.';
  };
  const auto is_of_host = [](char c) {
    return is_alphanumeric(c) || c == '-' || c == '.' || c == '_' || c == ':' || c == '[' ||
           c == ']';
  };
  return !host.empty() && std::ranges::all_of(scheme, is_of_scheme) &&
         std::ranges::all_of(host, is_of_host);
}

std::string lines_with(std::string_view origin) {
  return std::string("Access-Control-Allow-Origin: ")
      .append(origin)
      .append("\r\n")
      .append(kExposed);
}

}  // namespace

bool is_origin_list(std::string_view text) noexcept {
  bool good = !text.ends_with(',');
  for_each_element(text, [&good](std::string_view one) { good &= one == "*" || is_origin(one); });
  return good;
}

Cors Cors::create(std::string_view origins) {
  Cors cors;
  for_each_element(origins, [&cors](std::string_view one) {
    if (one == "*") {
      cors.lines_for_all_ = lines_with("*");
      return;
    }
    std::string text(one);
    std::ranges::transform(text, text.begin(), lower);
    // A cache between the two must not give this reply to a page of another origin.
    std::string lines = lines_with(text) + "Vary: Origin\r\n";
    cors.origins_.push_back({std::move(text), std::move(lines)});
  });
  return cors;
}

std::string_view Cors::lines_for(std::string_view origin) const noexcept {
  if (origin.empty()) return {};
  if (!lines_for_all_.empty()) return lines_for_all_;
  const auto found = std::ranges::find_if(origins_, [origin](const Origin& one) {
    return std::ranges::equal(one.text, origin, {}, {}, lower);
  });
  return found == origins_.end() ? std::string_view() : std::string_view(found->lines);
}

std::string_view Cors::preflight_lines() noexcept {
  // Two hours: the most that Chromium keeps.
  return "Access-Control-Allow-Methods: GET, HEAD, POST\r\n"
         // "*" does not stand for this one (Fetch standard, "CORS non-wildcard request-header
         // name").
         "Access-Control-Allow-Headers: Authorization, *\r\n"
         "Access-Control-Max-Age: 7200\r\n";
}

}  // namespace lumen::http
