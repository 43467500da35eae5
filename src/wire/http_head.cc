// Strict parser of HTTP/1.1 request heads (RFC 9112), in two passes: the first only looks for line
// ends, so that a head that arrives byte by byte costs a memchr a line; the second reads fields.
// Threads: any. Memory: none; views point into the input.
// Errors: Refusal with the status; each one closes the connection, so that no byte of a body whose
// length two parsers could see differently is ever taken for a request.
#include <lumen/wire/http.h>

#include "wire/ascii.h"
#include "wire/http_fields.h"

#include <cstring>

namespace lumen::wire {
namespace {

struct Scan {
  HeadProgress progress = HeadProgress::kNeedMore;
  size_t begin = 0;  // of the request line
  size_t end = 0;    // after the empty line
  Refusal refusal;
};

Scan refuse_scan(int status, std::string_view reason) noexcept {
  return {HeadProgress::kRefused, 0, 0, {status, reason}};
}

// Finds the end of the head and applies the limits, so that a flood is refused as it crosses them.
Scan scan_head(std::string_view received, const HttpLimits& limits) noexcept {
  Scan scan;
  const char* const data = received.data();
  size_t line = 0;
  size_t lines = 0;  // lines with text: the request line and the headers
  while (line < received.size()) {
    const void* found = std::memchr(data + line, '\n', received.size() - line);
    if (found == nullptr) break;
    const size_t lf = static_cast<size_t>(static_cast<const char*>(found) - data);
    if (lf == line || data[lf - 1] != '\r') return refuse_scan(400, "a line ends in a bare LF");
    if (lf - line == 1) {  // empty
      if (lines > 0) {
        scan.end = lf + 1;
        break;
      }
      scan.begin = lf + 1;
    } else {
      if (lines == 0 && lf - 1 - line > limits.max_request_line_bytes) {
        return refuse_scan(414, "the request line is too long");
      }
      if (++lines > limits.max_headers + 1) return refuse_scan(431, "too many header lines");
    }
    line = lf + 1;
  }
  const size_t head_bytes = scan.end != 0 ? scan.end : received.size();
  if (lines == 0 && received.size() - scan.begin > limits.max_request_line_bytes + 1) {
    return refuse_scan(414, "the request line is too long");
  }
  if (head_bytes > limits.max_head_bytes) return refuse_scan(431, "the request head is too large");
  if (scan.end != 0) scan.progress = HeadProgress::kComplete;
  return scan;
}

// Percent escapes are checked here and decoded once, by the user of the path.
bool target_is_clean(std::string_view target) noexcept {
  for (size_t i = 0; i < target.size(); ++i) {
    if (!is(target[i], kTargetChar)) return false;
    if (target[i] != '%') continue;
    if (i + 2 >= target.size()) return false;
    if (!is(target[i + 1], kHexDigit) || !is(target[i + 2], kHexDigit)) return false;
    if (target[i + 1] == '0' && target[i + 2] == '0') return false;
  }
  return true;
}

HttpMethod method_of(std::string_view name) noexcept {
  if (name == "GET") return HttpMethod::kGet;
  if (name == "POST") return HttpMethod::kPost;
  if (name == "HEAD") return HttpMethod::kHead;
  return HttpMethod::kOther;
}

class LineReader {
 public:
  [[nodiscard]] Refusal read(std::string_view line) noexcept;

  HttpHead head;
  std::string_view authority;  // host of an absolute-form target, else empty

 private:
  Refusal read_target(std::string_view target) noexcept;
  Refusal read_version(std::string_view version) noexcept;
};

Refusal LineReader::read_target(std::string_view target) noexcept {
  if (!target_is_clean(target)) return {400, "the request target has a forbidden character"};
  constexpr std::string_view kScheme = "http://";
  if (target.front() != '/' && target.size() > kScheme.size() &&
      equals_ignoring_case(target.substr(0, kScheme.size()), kScheme)) {
    target.remove_prefix(kScheme.size());
    const size_t authority_end = target.find_first_of("/?");
    authority = target.substr(0, authority_end);
    if (authority.empty()) return {400, "the request target has no host"};
    target.remove_prefix(authority.size());
    if (target.empty()) target = "/";
  }
  const bool asterisk = target == "*" && head.method_name == "OPTIONS";
  if (target.front() != '/' && !asterisk) return {400, "the request target is not a path"};
  const size_t question = target.find('?');
  head.path = target.substr(0, question);
  if (question != std::string_view::npos) head.query = target.substr(question + 1);
  return {};
}

Refusal LineReader::read_version(std::string_view version) noexcept {
  if (version == "HTTP/1.1") return {};
  head.http_1_1 = false;
  if (version == "HTTP/1.0") return {};
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (version.size() == 8 && version.starts_with("HTTP/") && digit(version[5]) &&
      version[6] == '.' && digit(version[7])) {
    return {505, "only HTTP/1.1 and HTTP/1.0 are spoken here"};
  }
  return {400, "the request line does not end in an HTTP version"};
}

Refusal LineReader::read(std::string_view line) noexcept {
  const size_t method_end = line.find(' ');
  if (method_end == std::string_view::npos) return {400, "the request line is malformed"};
  head.method_name = line.substr(0, method_end);
  if (head.method_name.empty()) return {400, "the method is not a token"};
  for (const char c : head.method_name) {
    if (!is(c, kTchar)) return {400, "the method is not a token"};
  }
  head.method = method_of(head.method_name);
  line.remove_prefix(method_end + 1);
  const size_t target_end = line.find(' ');
  if (target_end == std::string_view::npos || target_end == 0) {
    return {400, "the request line is malformed"};
  }
  const Refusal refusal = read_version(line.substr(target_end + 1));
  if (refusal.status != 0) return refusal;
  return read_target(line.substr(0, target_end));
}

HeadResult refused(Refusal refusal) noexcept {
  HeadResult result;
  result.progress = HeadProgress::kRefused;
  result.refusal = refusal;
  return result;
}

}  // namespace

HeadResult parse_http_head(std::string_view received, const HttpLimits& limits) noexcept {
  const Scan scan = scan_head(received, limits);
  if (scan.progress == HeadProgress::kRefused) return refused(scan.refusal);
  if (scan.progress == HeadProgress::kNeedMore) return {};

  const std::string_view text = received.substr(scan.begin, scan.end - scan.begin);
  const size_t line_end = text.find('\n') - 1;  // the scan saw CR LF there
  LineReader line;
  const Refusal line_refusal = line.read(text.substr(0, line_end));
  if (line_refusal.status != 0) return refused(line_refusal);
  const Refusal refusal = read_fields(text.substr(line_end + 2), line.authority, line.head);
  if (refusal.status != 0) return refused(refusal);
  line.head.head_bytes = scan.end;
  return {HeadProgress::kComplete, line.head, {}};
}

}  // namespace lumen::wire
