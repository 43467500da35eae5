// WaitingPlace: one futex word where several classes of threads sleep, each woken on its own.
// Threads: any. Memory: none; one cache line. Errors: wait() returns false on timeout.
//
// Use: ticket = prepare(c), look for work once more, then wait(ticket, c) or walk away. A class is
// woken as a whole: right for a pipeline, where a class is one stage or the producers. Where one of
// many equal sleepers is to be woken, use base/doorbell.h.
//
//   asleep  one bit a class: somebody of it may sleep. Set by sleepers, cleared by wakers alone, so
//           a thread that does not sleep after all costs one idle futex call, never a lost wake-up.
//   epoch   the futex word. Changed by each waker that found a bit, before its futex call.
// Invariant: prepare() reads the epoch BEFORE it sets the bit. A waker that clears this bit will
// change the epoch after, and the sleeper's ticket is then out of date. The other way round, a
// waker's clear and change may both fall between the two: a sleeper with a good ticket and no bit,
// which nobody wakes (tests/spin/pipeline.pml, BROKEN_ORDER).
// 2^32 wakes between a prepare() and its futex call would bring the same epoch back; at 6 µs a wake
// that is 7 hours of being held on the way to sleep.
// A thread that dies asleep leaves nothing behind. One that dies in wake() between the clear and
// the futex call loses that wake-up.
#pragma once

#include <lumen/base/cache_line.h>

#include <atomic>
#include <cstdint>

namespace lumen {

class alignas(kCacheLine) WaitingPlace {
 public:
  using Ticket = uint32_t;
  static constexpr uint32_t kMaxClasses = 32;
  [[nodiscard]] static constexpr uint32_t bit(uint32_t waiting_class) noexcept {
    return uint32_t{1} << waiting_class;
  }

  [[nodiscard]] Ticket prepare(uint32_t waiting_class) noexcept {
    // sync[place.epoch]: seq_cst, before the bit (see the invariant)
    const Ticket ticket = epoch_.load(std::memory_order_seq_cst);
    // sync[place.asleep]: seq_cst, so that either the waker sees this bit or the look that follows
    // sees the waker's publication
    asleep_.fetch_or(bit(waiting_class), std::memory_order_seq_cst);
    return ticket;
  }
  // True: woken since prepare(), for this class or another; false: `deadline_ns` has passed.
  bool wait(Ticket ticket, uint32_t waiting_class, uint64_t deadline_ns = UINT64_MAX) noexcept;

  // Wakes all sleepers of the classes in `classes` (bits). The event that they wait for must have
  // been published by a seq_cst operation. If none sleeps: one load of a line that is not written.
  void wake_published(uint32_t classes) noexcept {
    // sync[place.asleep]: pairs with prepare(), by the total order of seq_cst
    if ((asleep_.load(std::memory_order_seq_cst) & classes) != 0) wake_slow(classes);
  }

  // The same where several plain releases were published: a read-modify-write orders them all.
  void wake(uint32_t classes) noexcept {
    // sync[place.asleep]: pairs with prepare(), by the order of modifications
    if ((asleep_.fetch_or(0, std::memory_order_seq_cst) & classes) != 0) wake_slow(classes);
  }

  // Racy: futex calls made by wakers so far.
  [[nodiscard]] uint64_t wakes_were() const noexcept {
    return wakes_.load(std::memory_order_relaxed);  // relaxed: a statistic
  }
  [[nodiscard]] bool was_asleep(uint32_t waiting_class) const noexcept {
    // relaxed: racy by name
    return (asleep_.load(std::memory_order_relaxed) & bit(waiting_class)) != 0;
  }

 private:
  void wake_slow(uint32_t classes) noexcept;

  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> asleep_{0};
  std::atomic<uint64_t> wakes_{0};
};

static_assert(sizeof(WaitingPlace) == kCacheLine);

}  // namespace lumen
