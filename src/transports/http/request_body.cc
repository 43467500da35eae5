// Where each byte of a body goes. See the header.
#include "transports/http/request_body.h"

#include <lumen/base/cache_line.h>
#include <lumen/base/limits.h>
#include <lumen/wire/oip.h>

namespace lumen::http {

void RequestBody::begin(const wire::HttpHead& head) noexcept {
  is_chunked_ = head.framing == wire::BodyFraming::kChunked;
  total_bytes_ = head.framing == wire::BodyFraming::kLength ? head.content_length : 0;
  identity_ = IdentityReader(*buffer_, total_bytes_);
}

RequestBody::Progress RequestBody::begin_text(std::optional<uint64_t> text_bytes, size_t max_bytes,
                                              RequestMemory& memory) noexcept {
  text_bytes_ = text_bytes.value_or(is_chunked_ ? UINT64_MAX : total_bytes_);
  if (is_chunked_) return begin_collecting(max_bytes, memory);
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
  // The decoder writes at most the limit, but wants as much room as its input has bytes.
  const size_t bytes = max_bytes + limits::kReceiveBufferBytes + wire::JsonParser::kPadding;
  // How long it is only its end says: memory is taken as it comes.
  auto* place = static_cast<char*>(memory.begin_growing(bytes, kCacheLine));
  if (place == nullptr) return Progress::kNoMemory;
  memory_ = &memory;
  collected_ = {place, 0};
  chunked_.emplace(*buffer_, max_bytes);
  return collect();
}

RequestBody::Progress RequestBody::collect() noexcept {
  BodyReader& reader = *chunked_;  // a content coding would read from it, and be read here
  const std::span<char> space{collected_.data() + collected_.size(), buffer_->unread().size()};
  if (!memory_->grow_to(space.data() + space.size() + wire::JsonParser::kPadding)) {
    return Progress::kNoMemory;
  }
  const BodyReader::Step step = reader.read(space);
  collected_ = {collected_.data(), collected_.size() + step.bytes};
  if (step.progress == BodyReader::Progress::kNeedMore) return Progress::kNeedMore;
  if (step.progress == BodyReader::Progress::kRefused) {
    refusal_ = step.refusal;
    return Progress::kRefused;
  }
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
  if (is_chunked_) {
    (void)places.fill({collected_.data() + text_.size(), collected_.size() - text_.size()});
  } else {
    identity_.take(places.fill(identity_.received()));
  }
  places_ = &places;
  return places.empty() ? Progress::kComplete : Progress::kNeedMore;
}

std::span<iovec> RequestBody::wanted() noexcept {
  return places_ != nullptr ? places_->segments() : buffer_->wanted();
}

RequestBody::Progress RequestBody::received(size_t bytes) noexcept {
  if (places_ != nullptr) {
    identity_.pass(bytes);
    places_->advance(bytes);
    if (places_ != &text_place_) direct_bytes_ += bytes;
    return places_->empty() ? Progress::kComplete : Progress::kNeedMore;
  }
  buffer_->add(bytes);
  return is_chunked_ ? collect() : take_text();
}

}  // namespace lumen::http
