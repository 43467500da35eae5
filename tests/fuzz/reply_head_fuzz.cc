// parse_reply_head: a head ends with its empty line and within the input, every shorter part of it
// wants more or is broken already, and a refusal says why.
#include <lumen/client/reply_head.h>
#include "fuzz/fuzz_support.h"

using lumen::client::HeadState;
using lumen::client::ReplyHeadResult;
using lumen::fuzz::Copy;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Copy whole(bytes);
  const ReplyHeadResult result = lumen::client::parse_reply_head(whole.view());
  switch (result.state) {
    case HeadState::kNeedMore: break;
    case HeadState::kBroken: LUMEN_CHECK(!result.reason.empty()); break;
    case HeadState::kComplete: {
      LUMEN_CHECK(result.head.head_bytes <= size);
      LUMEN_CHECK(whole.view().substr(0, result.head.head_bytes).ends_with("\r\n\r\n"));
      LUMEN_CHECK(result.head.status >= 100 && result.head.status <= 599);
      const Copy exact(bytes.substr(0, result.head.head_bytes));
      const ReplyHeadResult again = lumen::client::parse_reply_head(exact.view());
      LUMEN_CHECK(again.state == HeadState::kComplete);
      LUMEN_CHECK(again.head.content_length == result.head.content_length);
      const Copy cut(bytes.substr(0, result.head.head_bytes - 1));
      LUMEN_CHECK(lumen::client::parse_reply_head(cut.view()).state == HeadState::kNeedMore);
      break;
    }
  }
  return 0;
}
