// How much memory a call may take, told before its body is read, so that the whole of it can be reserved.
// An output whose shape only the run knows counts as much as all inputs: many are of their size, fewer are
// larger. What is larger is taken when it is there, or the request is refused then.
// Threads: any. Memory: none. Errors: none.
#pragma once

#include <lumen/engine/metadata.h>

#include <cstddef>
#include <cstdint>

namespace lumen::service {

struct BodySize {
  size_t binary_bytes = 0;     // tensors as they are: a place for each is taken
  size_t text_bytes = 0;       // tensors as numbers in text: decoded beside it
  size_t collected_bytes = 0;  // of the text, what has to be collected in the call's memory first
};

struct MemoryNeed {
  size_t body_bytes = 0;   // until the model runs: text, places of inputs, lists
  size_t reply_bytes = 0;  // outputs, and their text if the client wants text
  [[nodiscard]] size_t all_bytes() const noexcept {
    size_t sum = 0;
    return __builtin_add_overflow(body_bytes, reply_bytes, &sum) ? SIZE_MAX : sum;
  }
};

[[nodiscard]] MemoryNeed memory_need(const engine::ModelMetadata& model,
                                     const BodySize& body) noexcept;

}  // namespace lumen::service
