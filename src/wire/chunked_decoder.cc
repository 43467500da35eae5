// Chunked bodies (RFC 9112 7.1), byte by byte for the framing and by memmove for the data.
// Threads: one connection. Memory: none, for any number of chunks (CVE-2025-23310 was an alloca for
// each). Errors: Refusal 400, or 413 at the size line that crosses the limit.
#include <lumen/wire/http.h>

#include "wire/ascii.h"

#include <algorithm>
#include <cstring>

namespace lumen::wire {
namespace {

constexpr uint32_t kMaxSizeDigits = 16;

ChunkedDecoder::Step refuse(ChunkedDecoder::Step step, int status,
                            std::string_view reason) noexcept {
  step.state = ChunkedDecoder::State::kRefused;
  step.refusal = {status, reason};
  return step;
}

}  // namespace

Refusal ChunkedDecoder::end_of_size() noexcept {
  if (size_digits_ == 0) return {400, "a chunk has no size"};
  size_digits_ = 0;
  if (chunk_left_ > max_body_bytes_ - body_bytes_) return {413, "the chunked body is too large"};
  return {};
}

Refusal ChunkedDecoder::in_size(char c) noexcept {
  if (const int digit = hex_value(c); digit >= 0) {
    if (++size_digits_ > kMaxSizeDigits) return {400, "a chunk size has more than 16 digits"};
    chunk_left_ = chunk_left_ * 16 + static_cast<uint64_t>(digit);
    return {};
  }
  if (c == '\r') {
    position_ = Position::kSizeLf;
  } else if (c == ';') {
    position_ = Position::kExtension;
    line_bytes_ = 0;
  } else {
    return {400, "a chunk size is not hexadecimal"};
  }
  return end_of_size();
}

Refusal ChunkedDecoder::in_framing(char c) noexcept {
  ++overhead_bytes_;
  switch (position_) {
    case Position::kSize: return in_size(c);
    case Position::kExtension:
      if (c == '\r') {
        position_ = Position::kSizeLf;
      } else if (++line_bytes_ > limits::kMaxChunkExtensionBytes) {
        return {400, "a chunk extension is too long"};
      } else if (is_control(c) && c != '\t') {
        return {400, "a chunk extension has a control character"};
      }
      return {};
    case Position::kSizeLf:
      if (c != '\n') return {400, "a chunk size line ends in a bare CR"};
      line_bytes_ = 0;
      position_ = chunk_left_ > 0 ? Position::kData : Position::kEndCr;
      return {};
    case Position::kDataCr:
      if (c != '\r') return {400, "a chunk is longer than its size"};
      position_ = Position::kDataLf;
      return {};
    case Position::kDataLf:
      if (c != '\n') return {400, "a chunk does not end in CR LF"};
      position_ = Position::kSize;
      return {};
    case Position::kEndCr:
      // Nothing here reads a trailer, and fields behind the body are how those get in that the
      // head's checks have not seen (RFC 9110 6.5.1): refused, not dropped.
      if (c != '\r') return {400, "trailers are not taken: the last chunk ends the body"};
      position_ = Position::kEndLf;
      return {};
    case Position::kEndLf:
      if (c != '\n') return {400, "a chunked body ends in a bare CR"};
      position_ = Position::kDone;
      return {};
    case Position::kData:
    case Position::kDone: break;
  }
  return {};
}

ChunkedDecoder::Step ChunkedDecoder::decode(std::span<const char> input,
                                            std::span<char> output) noexcept {
  Step step;
  while (step.consumed < input.size() && position_ != Position::kDone) {
    if (position_ == Position::kData) {
      const size_t take =
          static_cast<size_t>(std::min<uint64_t>(chunk_left_, input.size() - step.consumed));
      std::memmove(output.data() + step.produced, input.data() + step.consumed, take);
      step.consumed += take;
      step.produced += take;
      body_bytes_ += take;
      chunk_left_ -= take;
      if (chunk_left_ == 0) position_ = Position::kDataCr;
      continue;
    }
    const Refusal refusal = in_framing(input[step.consumed++]);
    if (refusal.status != 0) return refuse(step, refusal.status, refusal.reason);
    if (overhead_bytes_ > body_bytes_ / 4 + limits::kChunkOverheadSlackBytes) {
      return refuse(step, 400, "the chunks are too small for their body");
    }
  }
  if (position_ == Position::kDone) step.state = State::kComplete;
  return step;
}

}  // namespace lumen::wire
