// Header fields of a request: grammar, the few fields that Lumen reads, and the body's length that
// follows from them. Everything that decides framing is refused when it is said twice.
// Threads: any. Memory: none. Errors: Refusal with the status.
#include "wire/http_fields.h"

#include "wire/ascii.h"

namespace lumen::wire {
namespace {

// First byte that a field value may not hold (CR included); values are short, so eight at a time.
const char* find_value_end(const char* at, const char* end) noexcept {
  while (true) {
    while (end - at >= 8) {
      const uint64_t word = load_word(at);
      const uint64_t marks = bytes_below(word, 0x20) | bytes_equal(word, 0x7f);
      if (marks != 0) {
        at += first_marked(marks);
        break;
      }
      at += 8;
    }
    while (at < end && !is_control(*at)) ++at;
    if (at == end || *at != '\t') return at;
    ++at;
  }
}

// Calls `accept` with each element of a comma-separated list, blanks trimmed, empty ones too.
template <typename Accept>
void for_each_element(std::string_view list, Accept accept) noexcept {
  while (true) {
    const size_t comma = list.find(',');
    accept(trim_blanks(list.substr(0, comma)));
    if (comma == std::string_view::npos) return;
    list.remove_prefix(comma + 1);
  }
}

Refusal read_transfer_encoding(std::string_view value) noexcept {
  constexpr std::string_view kKnown[] = {"chunked",  "gzip",       "x-gzip",  "deflate",
                                         "compress", "x-compress", "identity"};
  size_t codings = 0;
  size_t chunked = 0;
  bool unknown = false;
  bool last_is_chunked = false;
  for_each_element(value, [&](std::string_view coding) {
    ++codings;
    last_is_chunked = equals_ignoring_case(coding, "chunked");
    chunked += last_is_chunked ? 1 : 0;
    bool known = false;
    for (const std::string_view name : kKnown) known |= equals_ignoring_case(coding, name);
    bool token = !coding.empty();
    for (const char c : coding) token &= is(c, kTchar);
    unknown |= token && !known;
  });
  if (unknown) return {501, "Transfer-Encoding names an unknown coding; only chunked is done"};
  if (!last_is_chunked || chunked != 1) {
    return {400, "Transfer-Encoding must end in chunked, said once"};
  }
  if (codings != 1) return {501, "Transfer-Encoding: only chunked is done"};
  return {};
}

class FieldReader {
 public:
  explicit FieldReader(HttpHead& head) noexcept : head_(head) {}

  [[nodiscard]] Refusal read(std::string_view name, std::string_view value) noexcept;
  [[nodiscard]] Refusal finish(std::string_view authority) noexcept;

 private:
  Refusal read_host(std::string_view value) noexcept;
  Refusal read_length(std::string_view value) noexcept;
  Refusal read_inference_length(std::string_view value) noexcept;
  Refusal read_coding(std::string_view value) noexcept;
  Refusal read_origin(std::string_view value) noexcept;
  Refusal read_authorization(std::string_view value) noexcept;
  Refusal read_expect(std::string_view value) noexcept;
  void read_connection(std::string_view value) noexcept;
  void read_traceparent(std::string_view value) noexcept;

  HttpHead& head_;
  bool has_host_ = false;
  bool has_length_ = false;
  bool has_transfer_encoding_ = false;
  bool has_content_encoding_ = false;
  bool has_origin_ = false;
  bool has_authorization_ = false;
  bool has_traceparent_ = false;
  bool says_close_ = false;
  bool says_keep_alive_ = false;
};

Refusal FieldReader::read_host(std::string_view value) noexcept {
  if (has_host_) return {400, "Host is sent twice"};
  has_host_ = true;
  if (value.empty()) return {400, "Host is empty"};
  for (const char c : value) {
    if (!is(c, kHostChar)) return {400, "Host has a forbidden character"};
  }
  head_.host = value;
  return {};
}

Refusal FieldReader::read_length(std::string_view value) noexcept {
  // Even two equal ones: RFC 9112 6.3 allows to refuse, and no real client sends them.
  if (has_length_) return {400, "Content-Length is sent twice"};
  has_length_ = true;
  const std::optional<uint64_t> length = parse_digits(value);
  if (!length) return {400, "Content-Length is not 1 to 19 digits"};
  head_.content_length = *length;
  return {};
}

Refusal FieldReader::read_inference_length(std::string_view value) noexcept {
  if (head_.inference_header_length) {
    return {400, "Inference-Header-Content-Length is sent twice"};
  }
  head_.inference_header_length = parse_digits(value);
  if (!head_.inference_header_length) {
    return {400, "Inference-Header-Content-Length is not 1 to 19 digits"};
  }
  return {};
}

Refusal FieldReader::read_coding(std::string_view value) noexcept {
  if (has_content_encoding_) return {415, "Content-Encoding is sent twice"};
  has_content_encoding_ = true;
  if (!equals_ignoring_case(value, "identity")) head_.content_encoding = value;
  return {};
}

Refusal FieldReader::read_origin(std::string_view value) noexcept {
  if (has_origin_) return {400, "Origin is sent twice"};
  has_origin_ = true;
  head_.origin = value;
  head_.from_browser = true;
  return {};
}

Refusal FieldReader::read_authorization(std::string_view value) noexcept {
  if (has_authorization_) return {400, "Authorization is sent twice"};
  has_authorization_ = true;
  head_.authorization = value;
  return {};
}

Refusal FieldReader::read_expect(std::string_view value) noexcept {
  if (!equals_ignoring_case(value, "100-continue")) {
    return {417, "Expect: only 100-continue is understood"};
  }
  head_.expect_continue = true;
  return {};
}

void FieldReader::read_connection(std::string_view value) noexcept {
  for_each_element(value, [this](std::string_view option) {
    says_close_ |= equals_ignoring_case(option, "close");
    says_keep_alive_ |= equals_ignoring_case(option, "keep-alive");
  });
}

// W3C Trace Context 3.2: of two nobody knows which is meant. Neither is a reason to refuse a
// request.
void FieldReader::read_traceparent(std::string_view value) noexcept {
  head_.traceparent = has_traceparent_ ? std::string_view() : value;
  has_traceparent_ = true;
}

// By length first: of the headers that a browser sends, few have one of these lengths.
Refusal FieldReader::read(std::string_view name, std::string_view value) noexcept {
  const auto named = [name](std::string_view lower) { return equals_ignoring_case(name, lower); };
  switch (name.size()) {
    case 4:
      if (named("host")) return read_host(value);
      break;
    case 6:
      if (named("origin")) return read_origin(value);
      // A preference only: of several lines the first is enough.
      if (head_.accept.empty() && named("accept")) head_.accept = value;
      if (named("expect")) return read_expect(value);
      break;
    case 10:
      if (named("connection")) read_connection(value);
      break;
    case 11:
      if (named("traceparent")) read_traceparent(value);
      break;
    case 13:
      if (named("authorization")) return read_authorization(value);
      break;
    case 14:
      if (named("content-length")) return read_length(value);
      if (named("sec-fetch-site")) head_.from_browser = true;
      break;
    case 15:
      if (head_.accept_encoding.empty() && named("accept-encoding")) head_.accept_encoding = value;
      break;
    case 16:
      if (named("content-encoding")) return read_coding(value);
      break;
    case 17:
      if (!named("transfer-encoding")) break;
      if (has_transfer_encoding_) return {400, "Transfer-Encoding is sent twice"};
      has_transfer_encoding_ = true;
      return read_transfer_encoding(value);
    case 29:
      if (named("access-control-request-method")) head_.is_preflight = true;
      break;
    case 31:
      if (named("inference-header-content-length")) return read_inference_length(value);
      break;
    default: break;
  }
  return {};
}

Refusal FieldReader::finish(std::string_view authority) noexcept {
  if (head_.http_1_1 && !has_host_) return {400, "Host is missing"};
  if (!authority.empty()) {
    // RFC 9112, 3.2.2: Host is ignored then.
    for (const char c : authority) {
      if (!is(c, kHostChar)) return {400, "the host in the target has a forbidden character"};
    }
    head_.host = authority;
  }
  if (has_transfer_encoding_) {
    if (has_length_) return {400, "Content-Length and Transfer-Encoding are both sent"};
    if (!head_.http_1_1) return {400, "Transfer-Encoding does not exist in HTTP/1.0"};
    head_.framing = BodyFraming::kChunked;
  } else if (has_length_) {
    head_.framing = BodyFraming::kLength;
  }
  // An HTTP/1.0 client can't have meant it: RFC 9110 10.1.1.
  if (!head_.http_1_1) head_.expect_continue = false;
  head_.keep_alive = !says_close_ && (head_.http_1_1 || says_keep_alive_);
  return {};
}

}  // namespace

Refusal read_fields(std::string_view fields, std::string_view authority, HttpHead& head) noexcept {
  FieldReader reader(head);
  const char* at = fields.data();
  const char* const end = at + fields.size();
  while (*at != '\r') {  // the empty line: the caller saw that it is there
    const char* const name = at;
    while (is(*at, kTchar)) ++at;  // stops at the latest at the line's CR
    const std::string_view name_text(name, static_cast<size_t>(at - name));
    if (*at != ':' || name_text.empty()) {
      if (*at != ' ' && *at != '\t') return {400, "a header name has a forbidden character"};
      if (name_text.empty()) return {400, "a header line is folded"};
      return {400, "there is a space before the colon of a header"};
    }
    ++at;
    const char* const value = at;
    at = find_value_end(at, end);
    if (*at != '\r' || at[1] != '\n') {
      return {400, "a header value has a control character"};
    }
    const Refusal refusal =
        reader.read(name_text, trim_blanks({value, static_cast<size_t>(at - value)}));
    if (refusal.status != 0) return refusal;
    at += 2;
  }
  if (end - at != 2) return {400, "a line holds a bare CR"};
  return reader.finish(authority);
}

}  // namespace lumen::wire
