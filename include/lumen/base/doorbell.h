// Doorbell: sleep until rung, with no system call on ring() when nobody sleeps. Futex-based.
// Threads: any number of ringers and waiters. Memory: none.
// Says no: wait_until returns false on timeout; never loses a wake-up.
// Use: prepare(), look for work once more, then wait(ticket) or cancel().
#pragma once

#include <lumen/base/cache_line.h>

#include <atomic>
#include <cstdint>

namespace lumen {

class alignas(kCacheLine) Doorbell {
 public:
  using Ticket = uint32_t;

  // Announces a waiter. Work published before the ringer's ring() is seen after prepare(), or the
  // ticket is out of date and wait() returns at once.
  [[nodiscard]] Ticket prepare() noexcept {
    // sync[doorbell.waiters]: store-load order against ring(): both sides are seq_cst, so either
    // the ringer sees this waiter or this waiter's next look sees the ringer's work.
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    return epoch_.load(std::memory_order_seq_cst);
  }
  void cancel() noexcept {
    waiters_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: only costs a wasted futex call
  }
  // Ends the announcement of prepare(). True: rung since; false: `deadline_ns` (CLOCK_MONOTONIC,
  // UINT64_MAX for never) passed.
  bool wait(Ticket ticket, uint64_t deadline_ns = UINT64_MAX) noexcept;

  // Call after publishing work. `count`: how many waiters to wake at most.
  void ring(uint32_t count = 1) noexcept {
    // A read-modify-write of the seq_cst total order instead of a fence: TSan sees it.
    // sync[doorbell.waiters]: pairs with prepare().
    if (waiters_.fetch_add(0, std::memory_order_seq_cst) != 0) ring_slow(count);
  }
  void ring_all() noexcept { ring(INT32_MAX); }
  // Racy: how many had announced themselves a moment ago.
  [[nodiscard]] uint32_t waiters_were() const noexcept {
    return waiters_.load(std::memory_order_relaxed);  // relaxed: a statistic
  }

 private:
  void ring_slow(uint32_t count) noexcept;

  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> waiters_{0};
};

}  // namespace lumen
