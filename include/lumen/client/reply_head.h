// parse_reply_head: the little of an HTTP/1.1 reply's head that a client needs to find its end.
// Threads: any. Memory: none. Errors: kBroken, with a static sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lumen::client {

struct ReplyHead {
  int status = 0;
  size_t head_bytes = 0;  // up to and with the empty line
  std::optional<uint64_t> content_length;
  bool chunked = false;
  std::optional<uint64_t> retry_after_s;  // given as a date it is left out
  bool closes = false;                    // the server ends the connection after this reply
};

enum class HeadState : uint8_t { kNeedMore, kComplete, kBroken };

struct ReplyHeadResult {
  HeadState state = HeadState::kNeedMore;
  ReplyHead head;             // with kComplete
  std::string_view reason{};  // with kBroken
};

// Lenient where no harm can come of it: the server is the one under test, and other servers'
// replies are measured too. A head over 64 KiB is broken.
[[nodiscard]] ReplyHeadResult parse_reply_head(std::string_view received) noexcept;

}  // namespace lumen::client
