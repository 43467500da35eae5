// HTTP/1.1 as Lumen speaks it: strict request heads, chunked bodies, response heads.
// Pure functions over bytes: no socket, no thread, no clock. Source: RFC 9110, RFC 9112;
// docs/formats/http.md lists the refusals and their reasons.
// Threads: any; a ChunkedDecoder belongs to one connection. Memory: none; views point into the
// input.
// Errors: Refusal with the HTTP status to answer; the connection is closed after it.
#pragma once

#include <lumen/base/limits.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lumen::wire {

enum class HttpMethod : uint8_t { kGet, kHead, kPost, kOther };
enum class BodyFraming : uint8_t { kNone, kLength, kChunked };

struct HttpLimits {
  size_t max_head_bytes = limits::kMaxHeadBytes;
  size_t max_request_line_bytes = limits::kMaxRequestLineBytes;
  size_t max_headers = limits::kMaxHeaders;
};

// Why a request is refused: the status to answer and a static sentence.
struct Refusal {
  int status = 0;
  std::string_view reason;
};

struct HttpHead {
  HttpMethod method = HttpMethod::kOther;
  std::string_view method_name;
  std::string_view path;   // up to '?', as sent (percent-encoding kept)
  std::string_view query;  // after '?', may be empty
  std::string_view host;
  std::string_view origin;
  // Access-Control-Request-Method was sent: a browser asks whether a page may send such a request.
  bool is_preflight = false;
  bool from_browser = false;  // Origin or Sec-Fetch-Site was sent: a page can leave out neither
  std::string_view content_encoding;  // empty: identity
  std::string_view accept;            // as sent (wire/accept.h); empty: none
  std::string_view accept_encoding;
  std::string_view authorization;  // as sent; empty: none
  std::string_view traceparent;    // as sent (wire/traceparent.h); empty: none, or more than one
  std::optional<uint64_t> inference_header_length;  // Inference-Header-Content-Length
  BodyFraming framing = BodyFraming::kNone;
  uint64_t content_length = 0;  // with kLength
  bool http_1_1 = true;         // false: HTTP/1.0
  bool keep_alive = true;
  bool expect_continue = false;
  size_t head_bytes = 0;  // up to and with the empty line
};

enum class HeadProgress : uint8_t { kNeedMore, kComplete, kRefused };

struct HeadResult {
  HeadProgress progress = HeadProgress::kNeedMore;
  HttpHead head;    // with kComplete
  Refusal refusal;  // with kRefused
};

// Parses a request head from the start of `received` (empty lines before it are tolerated, RFC 9112
// 2.2). kNeedMore: call again with more bytes; a partial head is only searched for line ends.
[[nodiscard]] HeadResult parse_http_head(std::string_view received,
                                         const HttpLimits& limits = {}) noexcept;

// Decodes a chunked body incrementally, in place if wanted: `output` may begin at or before `input`
// in the same buffer, since decoding never produces more than it has consumed.
class ChunkedDecoder {
 public:
  explicit ChunkedDecoder(uint64_t max_body_bytes) noexcept : max_body_bytes_(max_body_bytes) {}

  enum class State : uint8_t { kNeedMore, kComplete, kRefused };
  struct Step {
    State state = State::kNeedMore;
    size_t consumed = 0;  // bytes of input used; with kComplete the rest is the next request
    size_t produced = 0;  // body bytes written to output
    Refusal refusal;
  };
  // `output` is at least as large as `input`. The over-limit chunk is refused (413) at its size
  // line.
  [[nodiscard]] Step decode(std::span<const char> input, std::span<char> output) noexcept;
  [[nodiscard]] uint64_t body_bytes() const noexcept { return body_bytes_; }

 private:
  enum class Position : uint8_t {
    kSize,
    kExtension,
    kSizeLf,
    kData,
    kDataCr,
    kDataLf,
    kEndCr,
    kEndLf,
    kDone
  };
  Refusal in_framing(char c) noexcept;
  Refusal in_size(char c) noexcept;
  Refusal end_of_size() noexcept;

  uint64_t max_body_bytes_;
  uint64_t body_bytes_ = 0;
  uint64_t overhead_bytes_ = 0;  // framing bytes seen: <= body / 4 + kChunkOverheadSlackBytes
  uint64_t chunk_left_ = 0;
  uint32_t size_digits_ = 0;
  uint32_t line_bytes_ = 0;  // of the extension that is being read
  Position position_ = Position::kSize;
};

struct ResponseHead {
  int status = 200;
  std::string_view content_type = "application/json";
  uint64_t content_length = 0;
  std::optional<uint64_t> inference_header_length;
  std::string_view extra;  // complete header lines, each with CRLF, or empty
  std::string_view cors;   // the same, for a page in a browser
  bool keep_alive = true;
};

// Enough for any ResponseHead with up to 512 bytes of extra and cors lines together.
inline constexpr size_t kMaxResponseHeadBytes = 1024;
// "HTTP/1.1 100 Continue\r\n\r\n"
[[nodiscard]] std::string_view continue_response() noexcept;
[[nodiscard]] std::string_view reason_phrase(int status) noexcept;

// Writes the head; `date` is the value of the Date header (rendered once a second by the caller).
// Returns the bytes written; `out` holds kMaxResponseHeadBytes.
[[nodiscard]] size_t write_response_head(std::span<char> out, const ResponseHead& head,
                                         std::string_view date) noexcept;
// IMF-fixdate of a wall-clock second, 29 bytes: "Sun, 06 Nov 1994 08:49:37 GMT".
inline constexpr size_t kDateBytes = 29;
void write_http_date(std::span<char, kDateBytes> out, int64_t unix_seconds) noexcept;

}  // namespace lumen::wire
