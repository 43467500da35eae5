// WriterLock: the lock of a shard's writers. A mutex in one word: lock and unlock are one locked
// instruction each in the caller's own code where no other thread wants it, and a thread polls for
// 2 µs before it sleeps. A put of one thread spent 2 of its 8 ns on the calls of std::mutex; and
// where two threads put, std::mutex slept at once for a lock that is held for 20 to 50 ns.
//
// Source: mutex 2 of Ulrich Drepper, "Futexes Are Tricky" (2011). Modelled in
// tests/spin/writer_lock.pml.
// Threads: any. Memory: none. Errors: none. A thread that dies while it has the lock leaves it
// locked, as it does a std::mutex.
#pragma once

#include <lumen/base/clock.h>
#include <lumen/base/idle_strategy.h>

#include <atomic>
#include <cstdint>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

namespace lumen::cache {

class WriterLock {
 public:
  WriterLock() noexcept = default;
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

  void lock() noexcept {
    if (!try_lock()) [[unlikely]]
      lock_slow();
  }
  [[nodiscard]] bool try_lock() noexcept {
    if (is_only_thread()) {
      // relaxed, both: no other thread is there
      if (state_.load(std::memory_order_relaxed) != kFree) return false;
      state_.store(kTaken, std::memory_order_relaxed);
      return true;
    }
    uint32_t expected = kFree;
    // sync[cache.lock]: acquire, pairs with the release in unlock()
    return state_.compare_exchange_strong(expected, kTaken, std::memory_order_acquire,
                                          std::memory_order_relaxed);  // relaxed: not taken
  }
  void unlock() noexcept {
    if (is_only_thread()) {
      state_.store(kFree, std::memory_order_relaxed);  // relaxed: as above
      return;
    }
    // sync[cache.lock]: release of all that was written under the lock; seq_cst, so that
    // notify_one()'s look at the waiters stays behind it
    if (state_.exchange(kFree, std::memory_order_seq_cst) == kWaitedFor) [[unlikely]]
      state_.notify_one();
  }

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kTaken = 1;
  static constexpr uint32_t kWaitedFor = 2;  // taken, and a thread may sleep
  // Several times as long as a put takes on far cores, and less than a sleep. Looks get rarer
  // meanwhile, since each takes the line away from the thread that is to free it.
  static constexpr uint64_t kPollNs = 2'000;

  // As std::mutex has it: a process of one thread needs no locked instruction. A thread that is
  // started sees all that was stored before.
  [[nodiscard]] static bool is_only_thread() noexcept {
#if __has_include(<sys/single_threaded.h>)
    return __libc_single_threaded != 0;
#else
    return false;
#endif
  }

  [[gnu::noinline, gnu::cold]] void lock_slow() noexcept {
    const uint64_t until = now_ns() + kPollNs;
    for (uint32_t pauses = 1; now_ns() < until; pauses *= 2) {
      for (uint32_t i = 0; i < pauses; ++i) cpu_pause();
      // relaxed: a look; try_lock() acquires
      if (state_.load(std::memory_order_relaxed) == kFree && try_lock()) return;
    }
    // sync[cache.lock]: acquire, as in try_lock()
    while (state_.exchange(kWaitedFor, std::memory_order_acquire) != kFree) {
      state_.wait(kWaitedFor, std::memory_order_relaxed);  // relaxed: the exchange acquires
    }
  }

  std::atomic<uint32_t> state_{kFree};
};

}  // namespace lumen::cache
