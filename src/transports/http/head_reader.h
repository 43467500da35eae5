// HeadReader: one request's head, as its bytes come in.
// Threads: one. Memory: none; the head's texts lie in the receive buffer. Errors: kRefused, with
// the answer.
#pragma once

#include "transports/http/receive_buffer.h"

#include <lumen/base/clock.h>
#include <lumen/wire/http.h>

#include <cstdint>

namespace lumen::http {

class HeadReader {
 public:
  // After each receive: looks at the unread bytes and takes the head once it is whole. kNeedMore:
  // there is free space for more.
  [[nodiscard]] wire::HeadProgress read(ReceiveBuffer& buffer) noexcept {
    if (first_byte_ns_ == 0) first_byte_ns_ = now_ns();
    const wire::HeadResult result = wire::parse_http_head(buffer.unread());
    switch (result.progress) {
      case wire::HeadProgress::kNeedMore: buffer.make_room(); break;
      case wire::HeadProgress::kRefused: refusal_ = result.refusal; break;
      case wire::HeadProgress::kComplete:
        head_ = result.head;
        buffer.take(head_.head_bytes);
        break;
    }
    return result.progress;
  }

  // Empty until it is complete.
  [[nodiscard]] const wire::HttpHead& head() const noexcept { return head_; }
  [[nodiscard]] const wire::Refusal& refusal() const noexcept { return refusal_; }
  // When the request began; 0: not yet.
  [[nodiscard]] uint64_t first_byte_ns() const noexcept { return first_byte_ns_; }

 private:
  wire::HttpHead head_;
  wire::Refusal refusal_;
  uint64_t first_byte_ns_ = 0;
};

}  // namespace lumen::http
