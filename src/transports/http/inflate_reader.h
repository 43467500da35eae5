// InflateReader: the plain bytes of a body that was sent compressed; it reads from the body's
// framing.
// Threads: one. Memory: a block of the request's, kBytes. Errors: kRefused: the data is damaged, is
// cut, or has more bytes than it may.
#pragma once

#include "transports/http/body_reader.h"

#include <lumen/base/limits.h>
#include <lumen/wire/inflate.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lumen::http {

class InflateReader final : public BodyReader {
 public:
  // The inflater, and all that one receive can bring.
  static constexpr size_t kBytes = wire::Inflater::kMemoryBytes + limits::kReceiveBufferBytes;

  // `memory`: kBytes. `max_bytes`: of the plain body.
  InflateReader(BodyReader& framing, wire::ContentCoding coding, uint64_t max_bytes,
                std::span<std::byte> memory) noexcept
      : framing_(&framing),
        inflater_(wire::Inflater::create(coding, memory.first(wire::Inflater::kMemoryBytes))),
        piece_(reinterpret_cast<char*>(memory.data()) + wire::Inflater::kMemoryBytes,
               limits::kReceiveBufferBytes),
        bytes_left_(max_bytes) {}

  [[nodiscard]] Step read(std::span<char> space) noexcept override {
    if (compressed_.empty() && !is_framing_complete_) {
      const Step framed = framing_->read(piece_);
      if (framed.progress == Progress::kRefused) return framed;
      compressed_ = {piece_.data(), framed.bytes};
      is_framing_complete_ = framed.progress == Progress::kComplete;
    }
    const wire::Inflater::Step step = inflater_->step(compressed_, space);
    compressed_.remove_prefix(step.consumed);
    if (step.state == wire::Inflater::State::kRefused) {
      return {.progress = Progress::kRefused, .refusal = step.refusal};
    }
    if (step.produced > bytes_left_) {
      return {.progress = Progress::kRefused,
              .refusal = {413, "the body is larger than the server takes, once it is inflated"}};
    }
    bytes_left_ -= step.produced;
    if (step.state == wire::Inflater::State::kFull) {
      return {.bytes = step.produced, .has_more = true};
    }
    if (!is_framing_complete_) return {.bytes = step.produced};
    if (inflater_->is_at_end()) return {.progress = Progress::kComplete, .bytes = step.produced};
    return {.progress = Progress::kRefused,
            .refusal = {400, "the body ends within its compressed data"}};
  }

 private:
  BodyReader* framing_;
  wire::Inflater* inflater_;
  std::span<char> piece_;
  std::string_view compressed_;  // of the piece, not inflated yet
  uint64_t bytes_left_;
  bool is_framing_complete_ = false;
};

}  // namespace lumen::http
