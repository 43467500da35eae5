// RequestBody: a request's body on its way: first its text (JSON, or nothing), then its tensors,
// each byte to where it belongs. Text that fits stays in the receive buffer; longer text is
// collected. Tensors are received straight into their places, and those of a chunked or compressed
// body are decoded into them. Such a body is collected as far as one receive has brought it, and
// to its end where its length is needed to understand it.
//
//   begin(head) ─► begin_text() ─► text() ─► begin_tensors(places) ─► end
//                     └─ kNeedMore: receive into wanted(), then received() ─┘
//
// Threads: one. Memory: the request's, for collected bytes. Errors: a Progress that says which.
#pragma once

#include "transports/http/body_reader.h"
#include "transports/http/inflate_reader.h"

#include <lumen/memory/request_memory.h>
#include <lumen/service/places.h>

#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lumen::http {

class RequestBody {
 public:
  enum class Progress : uint8_t {
    kNeedMore,
    kHasMore,  // go_on() has work; not at once, so that other connections have their turn
    kComplete,
    kRefused,      // refusal() says why
    kNoMemory,     // for text that has to be collected
    kTextTooLong,  // longer than the body
  };

  explicit RequestBody(ReceiveBuffer& buffer) noexcept : buffer_(&buffer), identity_(buffer, 0) {}
  RequestBody(const RequestBody&) = delete;
  RequestBody& operator=(const RequestBody&) = delete;

  void begin(const wire::HttpHead& head) noexcept;
  // The body's plain bytes are those that come out of it. Before begin_text().
  void decode_by(wire::ContentCoding coding) noexcept { coding_ = coding; }
  // `text_bytes`: how much of it is text; nullopt: all. `max_bytes`: of a body whose size is not
  // known.
  [[nodiscard]] Progress begin_text(std::optional<uint64_t> text_bytes, size_t max_bytes,
                                    RequestMemory& memory) noexcept;
  // The parts that the text announces, the rest of the body. `places` is used up.
  [[nodiscard]] Progress begin_tensors(service::Places& places) noexcept;

  // Where the next bytes are to be received.
  [[nodiscard]] std::span<iovec> wanted() noexcept;
  // So many have been received there.
  [[nodiscard]] Progress received(size_t bytes) noexcept;
  // After kHasMore.
  [[nodiscard]] Progress go_on() noexcept { return is_in_tensors() ? stream() : collect(); }
  [[nodiscard]] bool is_in_tensors() const noexcept {
    return places_ != nullptr && places_ != &text_place_;
  }
  // Whether the tensors' bytes are known when the text is there; otherwise their places say how
  // many are to come, and more or fewer of them are refused.
  [[nodiscard]] bool is_length_known() const noexcept { return !is_streamed_; }
  // The rest is of no use: its part in the receive buffer is dropped, then `bytes` of the socket.
  void drop_received() noexcept { identity_.take(identity_.received().size()); }
  void drop(size_t bytes) noexcept { identity_.pass(bytes); }

  [[nodiscard]] std::string_view text() const noexcept { return text_; }
  // Of the whole body, plain; of one that is chunked or compressed once it is complete.
  [[nodiscard]] size_t total_bytes() const noexcept { return total_bytes_; }
  // Bytes that have not been taken from the socket or the buffer.
  [[nodiscard]] uint64_t left() const noexcept { return identity_.left(); }
  // Of a chunked body only once it is complete.
  [[nodiscard]] bool is_end_known() const noexcept { return !is_chunked_ || is_complete_; }
  // Received straight into tensors, without a copy.
  [[nodiscard]] size_t direct_bytes() const noexcept { return direct_bytes_; }
  [[nodiscard]] const wire::Refusal& refusal() const noexcept { return refusal_; }

 private:
  [[nodiscard]] Progress begin_long_text(size_t bytes, RequestMemory& memory) noexcept;
  [[nodiscard]] Progress begin_collecting(size_t max_bytes, RequestMemory& memory) noexcept;
  [[nodiscard]] Progress collect() noexcept;
  [[nodiscard]] Progress end_collecting() noexcept;
  // Where the text is whole and has to wait for the rest no longer.
  [[nodiscard]] bool may_stream() const noexcept {
    return text_bytes_ != 0 && text_bytes_ != UINT64_MAX && collected_.size() >= text_bytes_;
  }
  [[nodiscard]] Progress begin_streaming() noexcept;
  [[nodiscard]] Progress stream() noexcept;
  [[nodiscard]] Progress refuse(wire::Refusal refusal) noexcept {
    refusal_ = refusal;
    return Progress::kRefused;
  }
  [[nodiscard]] bool is_collected() const noexcept {
    return is_chunked_ || coding_ != wire::ContentCoding::kIdentity;
  }
  [[nodiscard]] Progress take_text() noexcept;

  ReceiveBuffer* buffer_;
  IdentityReader identity_;  // of a body without a length: of none
  std::optional<ChunkedReader> chunked_;
  std::optional<InflateReader> inflated_;
  BodyReader* reader_ = nullptr;  // of a body that is collected
  wire::ContentCoding coding_ = wire::ContentCoding::kIdentity;
  RequestMemory* memory_ = nullptr;  // that grows with the body
  std::span<char> collected_;        // the part that is there of a body that is collected
  uint64_t text_bytes_ = 0;          // UINT64_MAX: all there will be
  std::string_view text_;
  service::Places* places_ = nullptr;  // that bytes are received into; nullptr: the buffer
  service::Places text_place_;
  iovec segment_{};
  size_t total_bytes_ = 0;
  size_t direct_bytes_ = 0;
  size_t max_bytes_ = 0;
  wire::Refusal refusal_;
  bool is_chunked_ = false;
  bool is_complete_ = false;  // a chunked or compressed body
  bool is_streamed_ = false;  // to the tensors' places, from the reader
};

}  // namespace lumen::http
