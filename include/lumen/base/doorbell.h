// Doorbell: sleep until woken, with no system call on wake() when nobody sleeps. Futex-based.
// Threads: any number of wakers and waiters; SharedDoorbell also across processes.
// Memory: none; 64 bytes, fixed layout, all zeros is a valid doorbell (so that a segment may hold
// it).
// Errors: wait() returns false on timeout and only then; never loses a wake-up.
//
// Use: prepare(), look for work once more, then wait(ticket) or cancel(). wait() may also return
// true without work for this waiter (another took it), so the caller looks again in a loop.
//
// One 64-bit word counts both kinds of waiter: {waiters: high 32, tokens: low 32 and futex word}.
//   prepare  waiters + 1                       wake(k)  moves min(k, waiters) to tokens, wakes as many
//   wait     takes a token, or sleeps while there is none
//   cancel   takes back a waiter, or, when all are promised, a token
// Invariant: waiters + tokens = threads between prepare() and the end of wait() or cancel(). So a
// waiter that steals another's token leaves its own count behind for it, and a waker that finds
// waiters == 0 knows that each sleeper has a wake-up on its way already: one futex call a sleeper,
// not one a wake (a sleeper takes 20 µs to run on some machines; 200 pushes fit into that).
// Two separate words, as in folly's EventCount, would need a bounded spin in cancel() for a waker
// that is held between the two. tests/spin/doorbell.pml proves the protocol for 3 waiters.
//
// Dead threads: a waiter that dies leaves its count; the next wake turns it into a token, which one
// later waiter takes as a wake-up without work. Nothing blocks. A waker that dies between its
// compare-and-swap and the futex call leaves that token with a sleeper that nobody wakes until the
// next waiter comes: across processes, wait with a deadline.
#pragma once

#include <lumen/base/cache_line.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lumen {

enum class FutexScope : uint8_t { kProcess, kShared };

// The cost of a wake-up here, from the futex call until the sleeper runs: a running mean over the
// wake-ups that this process has seen; 20 µs before the first.
[[nodiscard]] uint64_t wake_cost_ns() noexcept;

template <FutexScope kScope>
class alignas(kCacheLine) BasicDoorbell {
 public:
  struct Ticket {};

  // Announces a waiter. Work that was published before a wake() which missed this announcement is
  // seen by the look that follows, if that look's loads are seq_cst or read-modify-writes.
  [[nodiscard]] Ticket prepare() noexcept {
    // sync[doorbell.state]: store-load order against wake(): both sides are seq_cst, so either the
    // waker sees this waiter or this waiter's look sees the waker's work.
    state_.fetch_add(kOneWaiter, std::memory_order_seq_cst);
    return {};
  }
  void cancel() noexcept { (void)leave(); }

  // Ends the announcement of prepare(). True: woken since; false: `deadline_ns` (CLOCK_MONOTONIC,
  // UINT64_MAX for never) has passed.
  bool wait(Ticket ticket, uint64_t deadline_ns = UINT64_MAX) noexcept;

  // Call after publishing work. `count`: how many waiters to wake at most.
  void wake(uint32_t count = 1) noexcept {
    // A read-modify-write of the seq_cst total order instead of a fence, since TSan can't see
    // fences. sync[doorbell.state]: pairs with prepare().
    if (state_.fetch_add(0, std::memory_order_seq_cst) >= kOneWaiter) wake_slow(count);
  }
  // The same where the publishing operation was itself seq_cst (an exchange, say): on x86 a plain
  // load of a line that stays shared, where wake() takes it exclusively (5 ns alone, 14 contended).
  void wake_published(uint32_t count = 1) noexcept {
    // sync[doorbell.state]: pairs with prepare(), by the total order of seq_cst
    if (state_.load(std::memory_order_seq_cst) >= kOneWaiter) wake_slow(count);
  }
  void wake_all() noexcept { wake(UINT32_MAX); }

  // Racy: how many had announced themselves and were not yet woken for, a moment ago.
  [[nodiscard]] uint32_t waiters_were() const noexcept {
    return waiters_of(state_.load(std::memory_order_relaxed));  // relaxed: a statistic
  }

 private:
  static constexpr uint64_t kOneWaiter = uint64_t{1} << 32;
  static constexpr uint64_t kOneToken = 1;
  static uint32_t waiters_of(uint64_t state) noexcept { return static_cast<uint32_t>(state >> 32); }
  static uint32_t tokens_of(uint64_t state) noexcept { return static_cast<uint32_t>(state); }

  bool take_token() noexcept;
  // Takes back the announcement. True: it took a token, since a wake has come in between.
  bool leave() noexcept;
  void wake_slow(uint32_t count) noexcept;

  std::atomic<uint64_t> state_{0};
  std::atomic<uint64_t> woken_at_ns_{0};  // of the latest futex call: feeds wake_cost_ns()
};

using Doorbell = BasicDoorbell<FutexScope::kProcess>;
using SharedDoorbell = BasicDoorbell<FutexScope::kShared>;

extern template class BasicDoorbell<FutexScope::kProcess>;
extern template class BasicDoorbell<FutexScope::kShared>;

static_assert(sizeof(SharedDoorbell) == kCacheLine && alignof(SharedDoorbell) == kCacheLine);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::endian::native == std::endian::little, "the futex word is the low half");

}  // namespace lumen
