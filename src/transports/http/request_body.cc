// Where each byte of a body goes. See the header.
#include "transports/http/request_body.h"

#include <lumen/base/cache_line.h>
#include <lumen/base/check.h>
#include <lumen/base/limits.h>
#include <lumen/wire/oip.h>

#include <algorithm>
#include <array>

namespace lumen::http {
namespace {

// 0.5 ms of inflating: one receive may bring a thousand times as much.
constexpr size_t kMostAtOnce = 256 * 1024;

constexpr wire::Refusal kMoreBytes{
    400,
    "more bytes follow the JSON than the binary_data_size of all inputs add up to; check "
    "Inference-Header-Content-Length"};
constexpr wire::Refusal kFewerBytes{
    400, "the body ends before the binary_data_size of all inputs; send the bytes of all of them"};

}  // namespace

void RequestBody::begin(const wire::HttpHead& head) noexcept {
  is_chunked_ = head.framing == wire::BodyFraming::kChunked;
  total_bytes_ = head.framing == wire::BodyFraming::kLength ? head.content_length : 0;
  identity_ = IdentityReader(*buffer_, total_bytes_);
}

RequestBody::Progress RequestBody::begin_text(std::optional<uint64_t> text_bytes, size_t max_bytes,
                                              RequestMemory& memory) noexcept {
  text_bytes_ = text_bytes.value_or(is_collected() ? UINT64_MAX : total_bytes_);
  if (is_collected()) return begin_collecting(max_bytes, memory);
  if (text_bytes_ > total_bytes_) return Progress::kTextTooLong;
  return buffer_->fits(text_bytes_) ? take_text() : begin_long_text(text_bytes_, memory);
}

// Parsed where it has been received.
RequestBody::Progress RequestBody::take_text() noexcept {
  if (identity_.received().size() < text_bytes_) return Progress::kNeedMore;
  text_ = identity_.received().substr(0, text_bytes_);
  identity_.take(text_.size());
  return Progress::kComplete;
}

// Too long for the receive buffer: bytes that have not come yet are received to their place
// directly.
RequestBody::Progress RequestBody::begin_long_text(size_t bytes, RequestMemory& memory) noexcept {
  auto* place = static_cast<char*>(memory.allocate(bytes + wire::JsonParser::kPadding, kCacheLine));
  if (place == nullptr) return Progress::kNoMemory;
  text_ = {place, bytes};
  const size_t here = identity_.read({place, bytes}).bytes;
  segment_ = {place + here, bytes - here};
  text_place_ = service::Places(std::span(&segment_, 1));
  places_ = &text_place_;
  return Progress::kNeedMore;
}

RequestBody::Progress RequestBody::begin_collecting(size_t max_bytes,
                                                    RequestMemory& memory) noexcept {
  reader_ = &identity_;
  if (is_chunked_) reader_ = &chunked_.emplace(*buffer_, max_bytes);
  if (coding_ != wire::ContentCoding::kIdentity) {
    const std::span block{
        static_cast<std::byte*>(memory.allocate(InflateReader::kBytes, kCacheLine)),
        InflateReader::kBytes};
    if (block.data() == nullptr) return Progress::kNoMemory;
    reader_ = &inflated_.emplace(*reader_, coding_, max_bytes, block);
  }
  // Readers write at most the limit, or a byte more to see that it is crossed; the one of chunks
  // wants as much room as its input has bytes.
  const size_t bytes = max_bytes + limits::kReceiveBufferBytes + wire::JsonParser::kPadding;
  // How long it is only its end says: memory is taken as it comes.
  auto* place = static_cast<char*>(memory.begin_growing(bytes, kCacheLine));
  if (place == nullptr) return Progress::kNoMemory;
  memory_ = &memory;
  collected_ = {place, 0};
  max_bytes_ = max_bytes;
  return collect();
}

RequestBody::Progress RequestBody::collect() noexcept {
  size_t taken = 0;
  for (;;) {
    const size_t room =
        inflated_ ? std::min(limits::kReceiveBufferBytes, max_bytes_ + 1 - collected_.size())
                  : buffer_->unread().size();
    const std::span<char> space{collected_.data() + collected_.size(), room};
    if (!memory_->grow_to(space.data() + space.size() + wire::JsonParser::kPadding)) {
      return Progress::kNoMemory;
    }
    const BodyReader::Step step = reader_->read(space);
    collected_ = {collected_.data(), collected_.size() + step.bytes};
    taken += step.bytes;
    if (step.progress == BodyReader::Progress::kRefused) return refuse(step.refusal);
    if (step.progress == BodyReader::Progress::kComplete) return end_collecting();
    if (step.has_more && taken < kMostAtOnce) continue;
    if (may_stream()) return begin_streaming();
    if (step.has_more) return Progress::kHasMore;
    buffer_->make_room();
    return Progress::kNeedMore;
  }
}

// The rest is decoded to its places: a large tensor is in memory once.
RequestBody::Progress RequestBody::begin_streaming() noexcept {
  is_streamed_ = true;
  memory_->shrink_last(collected_.data(), collected_.size() + wire::JsonParser::kPadding);
  text_ = std::string_view(collected_.data(), text_bytes_);
  total_bytes_ = collected_.size();  // so far
  return Progress::kComplete;
}

RequestBody::Progress RequestBody::stream() noexcept {
  LUMEN_CHECK(places_ != nullptr);
  size_t taken = 0;
  for (;;) {
    // Once the tensors are there the coding's own end is to come, and no byte of a body.
    std::array<char, 64> beyond;
    std::span<char> space(beyond);
    if (!places_->empty()) {
      const iovec& first = places_->segments().front();
      space = {static_cast<char*>(first.iov_base),
               std::min(first.iov_len, limits::kReceiveBufferBytes)};
    }
    const size_t unread = buffer_->unread().size();
    const BodyReader::Step step = reader_->read(space);
    if (step.progress == BodyReader::Progress::kRefused) return refuse(step.refusal);
    if (places_->empty() && step.bytes > 0) return refuse(kMoreBytes);
    places_->advance(step.bytes);
    taken += step.bytes;
    total_bytes_ += step.bytes;
    if (step.progress == BodyReader::Progress::kComplete) {
      is_complete_ = true;
      return places_->empty() ? Progress::kComplete : refuse(kFewerBytes);
    }
    // Chunks are read as far as there is space, which may be less than has been received.
    const bool has_read = step.bytes > 0 || buffer_->unread().size() < unread;
    if (!step.has_more && (buffer_->unread().empty() || !has_read)) {
      buffer_->make_room();
      return Progress::kNeedMore;
    }
    if (taken >= kMostAtOnce) return Progress::kHasMore;
  }
}

RequestBody::Progress RequestBody::end_collecting() noexcept {
  is_complete_ = true;
  total_bytes_ = collected_.size();
  // The room for the longest possible body shrinks to the body that came; the bytes stay where they
  // are.
  memory_->shrink_last(collected_.data(), total_bytes_ + wire::JsonParser::kPadding);
  if (text_bytes_ != UINT64_MAX && text_bytes_ > total_bytes_) return Progress::kTextTooLong;
  text_ = std::string_view(collected_.data(), total_bytes_).substr(0, text_bytes_);
  return Progress::kComplete;
}

RequestBody::Progress RequestBody::begin_tensors(service::Places& places) noexcept {
  if (is_collected()) {
    const std::span<const char> rest = collected_.subspan(text_.size());
    const size_t filled = places.fill({rest.data(), rest.size()});
    if (is_streamed_) {
      places_ = &places;
      return filled == rest.size() ? stream() : refuse(kMoreBytes);
    }
  } else {
    identity_.take(places.fill(identity_.received()));
  }
  places_ = &places;
  return places.empty() ? Progress::kComplete : Progress::kNeedMore;
}

std::span<iovec> RequestBody::wanted() noexcept {
  return places_ != nullptr && !is_streamed_ ? places_->segments() : buffer_->wanted();
}

RequestBody::Progress RequestBody::received(size_t bytes) noexcept {
  if (places_ != nullptr && !is_streamed_) {
    identity_.pass(bytes);
    places_->advance(bytes);
    if (places_ != &text_place_) direct_bytes_ += bytes;
    return places_->empty() ? Progress::kComplete : Progress::kNeedMore;
  }
  buffer_->add(bytes);
  if (is_streamed_) return stream();
  return is_collected() ? collect() : take_text();
}

}  // namespace lumen::http
