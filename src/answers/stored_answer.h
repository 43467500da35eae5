// StoredAnswer: an answer as it lies in a block of the store: its question, to compare with, and
// the outputs.
//
//   StoredAnswer │ StoredInput each │ TensorView of each output │ structure │ inputs up to 4 KiB │ outputs
//
// Threads: written by one before it is published, then read by any. Memory: the block. Errors:
// none.
#pragma once

#include "answers/fingerprint.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace lumen::answers {

class StoredAnswer {
 public:
  // Inputs up to here are kept and compared byte by byte: 0.1 us, and hardly more memory than the
  // rest. Of larger ones the second hash is kept.
  static constexpr size_t kComparedBytes = 4096;

  [[nodiscard]] static uint64_t bytes_for(const service::Call& call,
                                          const Fingerprint& print) noexcept;
  // `at`: bytes_for() many.
  static void write(std::byte* at, const service::Call& call, Fingerprint& print,
                    const KeyedHash& hash, uint64_t now_ns) noexcept;
  [[nodiscard]] static const StoredAnswer& at(const std::byte* data) noexcept {
    return *reinterpret_cast<const StoredAnswer*>(data);
  }

  [[nodiscard]] bool answers(const service::Call& call, Fingerprint& print,
                             const KeyedHash& hash) const noexcept;
  [[nodiscard]] std::span<const TensorView> outputs() const noexcept;
  [[nodiscard]] uint64_t stored_ns() const noexcept { return stored_ns_; }

 private:
  struct StoredInput {
    Hash128 second;     // of a large one
    uint64_t bytes_at;  // of a small one, from the begin of the block's data
  };
  class Layout;
  [[nodiscard]] const std::byte* base() const noexcept {
    return reinterpret_cast<const std::byte*>(this);
  }
  [[nodiscard]] std::span<const StoredInput> inputs() const noexcept;

  uint64_t stored_ns_;
  uint32_t inputs_;
  uint32_t outputs_;
  uint32_t structure_at_;
  uint32_t structure_bytes_;
};

}  // namespace lumen::answers
