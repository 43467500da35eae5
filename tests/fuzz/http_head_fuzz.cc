// parse_http_head: no overrun, views inside the input, and one answer however the bytes are cut.
#include <lumen/wire/http.h>

#include "fuzz/fuzz_support.h"

using lumen::fuzz::Copy;
using lumen::wire::HeadProgress;
using lumen::wire::HeadResult;
using lumen::wire::HttpHead;

namespace {

void check_complete(const Copy& input, const HttpHead& head) {
  LUMEN_CHECK(head.head_bytes <= input.view().size());
  LUMEN_CHECK(input.view().substr(0, head.head_bytes).ends_with("\r\n\r\n"));
  for (const std::string_view part :
       {head.method_name, head.query, head.host, head.origin, head.content_encoding,
        head.accept_encoding, head.traceparent}) {
    LUMEN_CHECK(part.empty() || input.holds(part));
  }
  LUMEN_CHECK(!head.method_name.empty());
  LUMEN_CHECK(head.path == "*" || head.path.starts_with('/'));
  LUMEN_CHECK(!head.http_1_1 || !head.host.empty());
  LUMEN_CHECK(head.framing != lumen::wire::BodyFraming::kChunked || head.content_length == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Copy whole(bytes);
  const HeadResult result = lumen::wire::parse_http_head(whole.view());
  if (result.progress == HeadProgress::kRefused) {
    LUMEN_CHECK(result.refusal.status >= 400 && !result.refusal.reason.empty());
    return 0;
  }
  const size_t end =
      result.progress == HeadProgress::kComplete ? result.head.head_bytes : bytes.size();
  if (result.progress == HeadProgress::kComplete) {
    check_complete(whole, result.head);
    const Copy exact(bytes.substr(0, end));
    const HeadResult again = lumen::wire::parse_http_head(exact.view());
    LUMEN_CHECK(again.progress == HeadProgress::kComplete);
    LUMEN_CHECK(again.head.path == result.head.path && again.head.host == result.head.host);
  }
  // A head that is accepted, or may still be, is neither refused nor complete at an earlier byte.
  for (size_t cut = end; cut-- > 0;) {
    LUMEN_CHECK(lumen::wire::parse_http_head(bytes.substr(0, cut)).progress ==
                HeadProgress::kNeedMore);
    if (cut > 64) cut -= cut / 16;
  }
  return 0;
}
