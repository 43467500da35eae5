// BodyReader: a body's plain bytes, decoded from the received ones. Readers stack: a framing, which
// knows where the body ends, reads from the receive buffer, and a content coding (gzip, say) reads
// from another reader and is read in its place.
// Threads: one. Memory: none. Errors: kRefused, with the answer; the end of the body is not known
// then.
#pragma once

#include "transports/http/receive_buffer.h"

#include <lumen/wire/http.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace lumen::http {

class BodyReader {
 public:
  enum class Progress : uint8_t {
    kNeedMore,  // all that was received has been used, or `space` is full
    kComplete,
    kRefused,
  };
  struct Step {
    Progress progress = Progress::kNeedMore;
    size_t bytes = 0;  // written to `space`
    wire::Refusal refusal{};
    bool has_more = false;  // `space` is full, and more may be read without a receive
  };
  // Puts the next plain bytes into `space`. Once for all that a receive has brought.
  [[nodiscard]] virtual Step read(std::span<char> space) noexcept = 0;

 protected:
  ~BodyReader() = default;
};

// A body as it is, of a length that is known. Bytes that have not been received yet may be received
// straight to their places.
class IdentityReader final : public BodyReader {
 public:
  IdentityReader(ReceiveBuffer& buffer, uint64_t bytes) noexcept : buffer_(&buffer), left_(bytes) {}

  [[nodiscard]] Step read(std::span<char> space) noexcept override {
    const std::string_view some = received().substr(0, space.size());
    std::memcpy(space.data(), some.data(), some.size());
    take(some.size());
    return {left_ == 0 ? Progress::kComplete : Progress::kNeedMore, some.size(), {}};
  }
  // Bytes of the body that lie in the receive buffer.
  [[nodiscard]] std::string_view received() const noexcept {
    return buffer_->unread().substr(0, left_);
  }
  // The first of these are through.
  void take(size_t bytes) noexcept {
    buffer_->take(bytes);
    left_ -= bytes;
  }
  // So many have been received past the buffer.
  void pass(size_t bytes) noexcept { left_ -= bytes; }
  [[nodiscard]] uint64_t left() const noexcept { return left_; }

 private:
  ReceiveBuffer* buffer_;
  uint64_t left_;
};

class ChunkedReader final : public BodyReader {
 public:
  ChunkedReader(ReceiveBuffer& buffer, uint64_t max_bytes) noexcept
      : buffer_(&buffer), decoder_(max_bytes) {}

  [[nodiscard]] Step read(std::span<char> space) noexcept override {
    const std::string_view input = buffer_->unread().substr(0, space.size());
    const wire::ChunkedDecoder::Step step = decoder_.decode(input, space);
    buffer_->take(step.consumed);
    switch (step.state) {
      case wire::ChunkedDecoder::State::kNeedMore: break;
      case wire::ChunkedDecoder::State::kComplete: return {Progress::kComplete, step.produced, {}};
      case wire::ChunkedDecoder::State::kRefused: return {Progress::kRefused, 0, step.refusal};
    }
    return {Progress::kNeedMore, step.produced, {}};
  }

 private:
  ReceiveBuffer* buffer_;
  wire::ChunkedDecoder decoder_;
};

}  // namespace lumen::http
