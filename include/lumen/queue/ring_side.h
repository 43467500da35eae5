// RingSide: the producers' or the consumers' side of MpmcQueue: its index, and how long its threads
// wait after a lost race and before they follow the other side too closely (base/backoff.h).
// Threads: any of that side. Memory: none. Errors: never.
#pragma once

#include <lumen/base/backoff.h>
#include <lumen/base/cache_line.h>
#include <lumen/base/core_distance.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lumen {

// Written by the threads of one side only, so the first two members may share a line.
// relaxed, all but `index`, which is MpmcQueue's: hints among the threads of one side, and an
// estimate that may lose a sample; the caller reads the timed value again.
struct alignas(kFalseSharingRange) RingSide {
  std::atomic<size_t> index{0};
  std::atomic<size_t> stuck_at{0};  // where a thread of this side last found nothing to claim
  // Read whenever a race is lost, and written for one wait in 16: in the line of `index` it took
  // that line from the thread that had won, 122 -> 80 M/s at 2 and 2.
  alignas(kCacheLine) std::atomic<CoreDistance> distance{start_core_distance()};

  // The compare-and-swap at `position` was lost.
  void lost(Backoff& backoff, size_t position) noexcept {
    const CoreDistance now = distance.load(std::memory_order_relaxed);  // relaxed: as above
    backoff.lost(now);
    // Others have claimed meanwhile, so this look fetches the line.
    if (backoff.is_long() && is_sampled(position))
      learn(now, time_of([&] {
              (void)index.load(std::memory_order_relaxed);  // relaxed: as above
            }));
  }
  // Nothing to claim at `position`, whose slot has `turn`, in a ring that `claims` claims fill.
  // True: a burst has ended here, it has waited, and another look is due.
  bool kept_distance(size_t position, const std::atomic<size_t>& slot_turn, size_t turn,
                     size_t claims) noexcept {
    const size_t burst = position - stuck_at.load(std::memory_order_relaxed);  // relaxed: as above
    if (burst == 0) return false;
    stuck_at.store(position, std::memory_order_relaxed);                // relaxed: as above
    const CoreDistance now = distance.load(std::memory_order_relaxed);  // relaxed: as above
    if (!keep_distance(now, burst, claims)) return false;
    if (is_sampled(position)) {
      size_t seen = turn;
      const uint64_t ns = time_of([&] {
        seen = slot_turn.load(std::memory_order_relaxed);  // relaxed: as above
      });
      if (seen != turn) learn(now, ns);
    }
    return true;
  }

 private:
  // A line that a thread of this very core has written says nothing, and is not worth a store.
  static constexpr uint64_t kLocalNs = 15;
  void learn(CoreDistance before, uint64_t ns) noexcept {
    if (ns < kLocalNs) return;
    before.took(ns);
    distance.store(before, std::memory_order_relaxed);  // relaxed: as above
  }
  // One position in 16, without a counter that all threads of a side would write. Batches end at
  // multiples of their size, so the low bits say nothing.
  static constexpr bool is_sampled(size_t position) noexcept {
    return position * 0x9e3779b97f4a7c15 >> 60 == 0;  // the golden ratio's bits (Knuth 6.4)
  }
};

static_assert(std::atomic<CoreDistance>::is_always_lock_free);

}  // namespace lumen
