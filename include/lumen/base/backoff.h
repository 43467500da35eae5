// Backoff: what a thread does after it lost a compare-and-swap: pause, longer each time; and
// keep_distance(): what it does when it has caught up with the other side of a ring.
// Threads: one Backoff a call, on the stack. Memory: none. Says no: never.
//
// A lost compare-and-swap means that another thread owns the line right now; trying again at once
// takes it away from the winner in the middle of its work. Measured on a Vyukov ring, 2 producers
// and 2 consumers on 2 cores: 17 -> 55 M/s with 1,024 slots, 23 -> 99 with 65,536; nothing at 1 and
// 1. It never yields: a lost race says that somebody made progress, so there is nobody to wait for.
#pragma once

#include <lumen/base/clock.h>
#include <lumen/base/idle_strategy.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lumen {

class Backoff {
 public:
  // 64 pauses of 23 ns are 1.5 µs: about fifteen transfers of a cache line between cores.
  static constexpr uint32_t kMostPauses = 64;

  void lost() noexcept {
    for (uint32_t i = 0; i < pauses_; ++i) cpu_pause();
    if (pauses_ < kMostPauses) pauses_ *= 2;
  }

 private:
  uint32_t pauses_ = 1;
};

// What waiting near another core is counted in. A pause takes 11 ns on one machine, 23 on Zen 5 and 40 on
// Skylake, so the machine's own is measured once, before main (10 to 30 µs).
inline constexpr uint64_t kShortWaitNs = 23;
[[nodiscard]] inline uint32_t measure_pauses_per_short_wait() noexcept {
  constexpr uint32_t kPauses = 64;
  uint64_t fastest_ns = UINT64_MAX;  // noise of the machine only ever adds
  for (int run = 0; run < 8; ++run) {
    const uint64_t before = now_ns();
    for (uint32_t i = 0; i < kPauses; ++i) cpu_pause();
    fastest_ns = std::min(fastest_ns, now_ns() - before);
  }
  const uint64_t pauses =
      (kPauses * kShortWaitNs + fastest_ns / 2) / std::max<uint64_t>(fastest_ns, 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(pauses, 1, kPauses));
}
inline const uint32_t pauses_per_short_wait = measure_pauses_per_short_wait();

inline void wait_shortly(size_t times) noexcept {
  for (size_t i = times * pauses_per_short_wait; i != 0; --i) cpu_pause();
}

// Distance between the two sides of a ring. A side that has caught up with the other polls the very
// line that the other is working on, and each takes it from the other (100 ns) for every few items.
// So the first look that finds nothing after a burst of n items waits n / 2 times 23 ns, at most 16
// (370 ns, less than the burst itself took), and the other side gets some lines ahead. Looks after
// that one don't wait: who polls for a single item sees it at once.
// One producer and one consumer, 8 bytes, 1,024 slots: MpmcQueue 77 -> 175 M/s.
inline constexpr size_t kMostDistanceWaits = 16;
inline constexpr size_t kLongestBurst = 4096;  // above it the last failure says nothing

inline void keep_distance(size_t burst) noexcept {
  if (burst > kLongestBurst) return;
  wait_shortly(std::min(burst / 2, kMostDistanceWaits));
}

}  // namespace lumen
