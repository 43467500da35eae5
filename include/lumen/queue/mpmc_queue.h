// MpmcQueue: bounded multi-producer multi-consumer ring (Dmitry Vyukov's, 1024cores.net, 2010).
// Threads: any may push and pop. Memory: one array at construction.
// Says no: try_push and try_pop return false when full or empty and never wait.
// A thread that dies between claiming a slot and publishing it blocks that slot for ever: consumers
// see the queue as empty from there on, producers see it full one lap later. Nothing is torn.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/check.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace lumen {

template <typename T>
class MpmcQueue {
 public:
  // `capacity` is a power of two, at least 2.
  explicit MpmcQueue(size_t capacity) : mask_(capacity - 1), slots_(new Slot[capacity]) {
    LUMEN_CHECK(capacity >= 2 && std::has_single_bit(capacity));
    for (size_t i = 0; i < capacity; ++i) {
      slots_[i].turn.store(i, std::memory_order_relaxed);  // relaxed: not shared yet
    }
  }
  MpmcQueue(const MpmcQueue&) = delete;
  MpmcQueue& operator=(const MpmcQueue&) = delete;

  [[nodiscard]] bool try_push(T&& value) noexcept {
    size_t position = tail_.load(std::memory_order_relaxed);  // relaxed: the CAS checks it
    for (;;) {
      Slot& slot = slots_[position & mask_];
      // sync[mpmc.slot]: acquire, the consumer of the last lap has left the slot
      const size_t turn = slot.turn.load(std::memory_order_acquire);
      if (turn == position) {
        // relaxed: claiming orders nothing, the slot's turn publishes
        if (tail_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
          slot.value = std::move(value);
          // sync[mpmc.slot]: release, the value is there for the consumer
          slot.turn.store(position + 1, std::memory_order_release);
          return true;
        }
      } else if (static_cast<intptr_t>(turn - position) < 0) {
        return false;  // full: the slot still holds the item of one lap ago
      } else {
        position = tail_.load(std::memory_order_relaxed);  // relaxed: as above
      }
    }
  }

  [[nodiscard]] bool try_pop(T& value) noexcept {
    size_t position = head_.load(std::memory_order_relaxed);  // relaxed: the CAS checks it
    for (;;) {
      Slot& slot = slots_[position & mask_];
      // sync[mpmc.slot]: acquire, the producer has published the value
      const size_t turn = slot.turn.load(std::memory_order_acquire);
      if (turn == position + 1) {
        // relaxed: claiming orders nothing, the slot's turn publishes
        if (head_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
          value = std::move(slot.value);
          // sync[mpmc.slot]: release, the slot is free for the producer of the next lap
          slot.turn.store(position + mask_ + 1, std::memory_order_release);
          return true;
        }
      } else if (static_cast<intptr_t>(turn - (position + 1)) < 0) {
        return false;  // empty
      } else {
        position = head_.load(std::memory_order_relaxed);  // relaxed: as above
      }
    }
  }

  [[nodiscard]] size_t capacity() const noexcept { return mask_ + 1; }
  // Racy: what the size was a moment ago, for statistics.
  [[nodiscard]] size_t size_was() const noexcept {
    const size_t tail = tail_.load(std::memory_order_relaxed);  // relaxed: a statistic
    const size_t head = head_.load(std::memory_order_relaxed);  // relaxed: a statistic
    return tail > head ? tail - head : 0;
  }
  [[nodiscard]] bool was_empty() const noexcept { return size_was() == 0; }

 private:
  struct Slot {
    std::atomic<size_t> turn;
    T value;
  };

  const size_t mask_;
  const std::unique_ptr<Slot[]> slots_;
  alignas(kFalseSharingRange) std::atomic<size_t> tail_{0};
  alignas(kFalseSharingRange) std::atomic<size_t> head_{0};
};

}  // namespace lumen
