// Gates: how the stages of a ThreadPipeline tell each other which positions they are done with. Of
// the toolkit: the server itself does not use them.
// Threads: publish() by the gate's own stage, the rest by any. Memory: MarkGate an array at start.
// Errors: done_from() is 0.
//
// A stage with one thread has a CursorGate: positions are done in order, so one number says it all,
// and a batch of any size is published by one operation (5 ns). A stage with several threads is
// done out of order and has a MarkGate: a word a slot, holding the lap in which it was done; a
// thread that is held in the middle of an item holds up the items after it in the next stage, but
// no other thread of its own stage, where a cursor moved on in order would make them wait for it.
#pragma once

#include <lumen/base/cache_line.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace lumen {

class CursorGate {
 public:
  static constexpr bool kOneLine = true;  // a look fetches one line, so that it tells the distance
  explicit CursorGate(size_t /*capacity*/) noexcept {}

  // How many positions from `position` on are done, in one run; `most` is only a hint.
  [[nodiscard]] size_t done_from(size_t position, size_t /*most*/) const noexcept {
    // sync[pipeline.gate]: acquire of the stage's writes to the items; seq_cst since it may be the
    // look of a thread that is about to sleep
    const size_t done = done_.load(std::memory_order_seq_cst);
    return static_cast<ptrdiff_t>(done - position) > 0 ? done - position : 0;
  }
  // True where one seq_cst operation has published all (WaitingPlace::wake_published suffices).
  bool publish(size_t position, size_t count) noexcept {
    // sync[pipeline.gate]: release, and seq_cst against a sleeper's announcement
    done_.exchange(position + count, std::memory_order_seq_cst);
    return true;
  }

 private:
  alignas(kFalseSharingRange) std::atomic<size_t> done_{0};
  [[maybe_unused]] char padding_[kFalseSharingRange - sizeof(size_t)];
};

// The gate of a single producer: the pipeline's tail itself, whose top bit is `closed`.
class TailGate {
 public:
  static constexpr bool kOneLine = true;
  static constexpr size_t kClosedBit = ~(~size_t{0} >> 1);
  explicit TailGate(const std::atomic<size_t>& tail) noexcept : tail_(tail) {}
  [[nodiscard]] size_t done_from(size_t position, size_t /*most*/) const noexcept {
    // sync[pipeline.tail]: acquire of the items; seq_cst since it may be the look of a thread that
    // is about to sleep
    return (tail_.load(std::memory_order_seq_cst) & ~kClosedBit) - position;
  }

 private:
  const std::atomic<size_t>& tail_;
};

class MarkGate {
 public:
  static constexpr bool kOneLine = false;
  explicit MarkGate(size_t capacity)
      : mask_(capacity - 1),
        shift_(static_cast<uint32_t>(std::countr_zero(capacity))),
        // alloc: once, with the pipeline
        marks_(new std::atomic<uint32_t>[capacity]) {
    for (size_t i = 0; i < capacity; ++i) {
      marks_[i].store(0, std::memory_order_relaxed);  // relaxed: not shared yet
    }
  }

  [[nodiscard]] size_t done_from(size_t position, size_t most) const noexcept {
    most = std::min(most, mask_ + 1);
    size_t count = 0;
    while (count < most && is_done(position + count)) ++count;
    return count;
  }
  bool publish(size_t position, size_t count) noexcept {
    if (count == 1) {
      // sync[pipeline.mark]: release, and seq_cst against a sleeper's announcement
      marks_[position & mask_].exchange(lap(position), std::memory_order_seq_cst);
      return true;
    }
    for (size_t i = position; i != position + count; ++i) {
      // sync[pipeline.mark]: release
      marks_[i & mask_].store(lap(i), std::memory_order_release);
    }
    return false;
  }

 private:
  // From 1 on, so that 0 is "never". It wraps after 2^32 laps; no reader is that far behind.
  [[nodiscard]] uint32_t lap(size_t position) const noexcept {
    return static_cast<uint32_t>(position >> shift_) + 1;
  }
  [[nodiscard]] bool is_done(size_t position) const noexcept {
    // sync[pipeline.mark]: acquire of the stage's writes to the item; seq_cst since it may be the
    // look of a thread that is about to sleep
    const uint32_t mark = marks_[position & mask_].load(std::memory_order_seq_cst);
    return static_cast<int32_t>(mark - lap(position)) >= 0;
  }

  const size_t mask_;
  const uint32_t shift_;
  const std::unique_ptr<std::atomic<uint32_t>[]> marks_;
};

}  // namespace lumen
