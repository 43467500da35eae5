// Words that all queues share: whether a queue has doorbells, how a blocking call ended, raw slots.
// Threads: values; RawSlots belongs to one queue. Memory: RawSlots takes one array at construction.
// Errors: RawSlots throws std::bad_alloc, at start-up.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/check.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace lumen {

// kNone: only the forms that never wait; a publication is one release store.
// kDoorbell: blocking forms and close() from any thread; each publication is a locked operation
// (5 ns) and a load of the doorbell, because the other side may be asleep.
enum class Waiting : uint8_t { kNone, kDoorbell };

enum class [[nodiscard]] QueueOutcome : uint8_t { kOk, kClosed, kTimedOut };

// A queue moves its items between threads that could not tell anyone of an exception.
template <typename T>
concept QueueItem = std::is_nothrow_move_constructible_v<T> &&
                    std::is_nothrow_move_assignable_v<T> && std::is_nothrow_destructible_v<T>;

// `count` places for a T each, cache-line aligned, written once so that no page fault is left for
// later. The queue constructs and destroys the elements in them.
template <typename Slot>
class RawSlots {
 public:
  explicit RawSlots(size_t count)
      : bytes_(count * sizeof(Slot)), memory_(::operator new(bytes_, kAlignment)) {
    std::memset(memory_, 0, bytes_);
  }
  ~RawSlots() { ::operator delete(memory_, kAlignment); }
  RawSlots(const RawSlots&) = delete;
  RawSlots& operator=(const RawSlots&) = delete;

  [[nodiscard]] Slot* get() const noexcept { return static_cast<Slot*>(memory_); }

 private:
  static constexpr std::align_val_t kAlignment{
      alignof(Slot) > kFalseSharingRange ? alignof(Slot) : kFalseSharingRange};
  size_t bytes_;
  void* memory_;
};

[[nodiscard]] inline size_t checked_capacity(size_t capacity, size_t smallest) noexcept {
  LUMEN_CHECK(capacity >= smallest && std::has_single_bit(capacity));
  return capacity;
}

}  // namespace lumen
