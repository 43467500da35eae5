// Backoff: how long a thread waits after it lost a compare-and-swap; and keep_distance(): how long
// when it has caught up with the other side of a ring. Both in transfers of a cache line.
// Threads: one Backoff a call, on the stack. Memory: none. Errors: never.
//
// A lost compare-and-swap means that another thread owns the line right now; trying again at once
// takes it away from the winner in the middle of its work. Measured on a Vyukov ring, 2 producers
// and 2 consumers on 2 cores: 17 -> 55 M/s with 1,024 slots, 23 -> 99 with 65,536; nothing at 1 and
// 1. It never yields: a lost race says that somebody made progress, so there is nobody to wait for.
#pragma once

#include <lumen/base/clock.h>
#include <lumen/base/core_distance.h>
#include <lumen/base/idle_strategy.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lumen {

// No wait near another core is longer, however far it is: from there on latency counts for more.
inline constexpr uint64_t kMostWaitNs = 4'000;

// The time of a pause and of a clock read here, measured once, before main (10 to 30 µs): a pause
// takes 11 ns on one machine, 23 on Zen 5 and 40 on Skylake. Picoseconds and nanoseconds.
struct ShortTimes {
  uint64_t pause_ps = 1'000;
  uint64_t clock_ns = 0;
};
[[nodiscard]] inline ShortTimes measure_short_times() noexcept {
  constexpr uint32_t kCalls = 64;
  uint64_t pauses_ns = UINT64_MAX;  // noise of the machine only ever adds
  uint64_t clock_ns = UINT64_MAX;
  for (int run = 0; run < 8; ++run) {
    const uint64_t before = now_ns();
    for (uint32_t i = 0; i < kCalls; ++i) cpu_pause();
    const uint64_t between = now_ns();
    for (uint32_t i = 1; i < kCalls; ++i) static_cast<void>(now_ns());
    const uint64_t after = now_ns();
    pauses_ns = std::min(pauses_ns, between - before);
    clock_ns = std::min(clock_ns, (after - between) / kCalls);
  }
  return {std::max<uint64_t>(1'000 * pauses_ns / kCalls, 1'000), clock_ns};
}
inline const ShortTimes short_times = measure_short_times();

// How many pauses make about `ns`: never none. Rounded down, a wait for a short burst was none
// where a pause takes 25 ns, and 2 and 2 threads at 65,536 slots fell from 112 to 57 M/s.
[[nodiscard]] constexpr uint64_t pauses_for(uint64_t ns, uint64_t pause_ps) noexcept {
  return std::max<uint64_t>((ns * 1'000 + pause_ps / 2) / pause_ps, 1);
}
// Reads no clock, which would take as long as the shortest of these waits.
inline void wait_for(uint64_t ns) noexcept {
  for (uint64_t i = pauses_for(ns, short_times.pause_ps); i != 0; --i) cpu_pause();
}

// How long look() took, less the clock's own time.
template <typename Look>
[[nodiscard]] uint64_t time_of(Look&& look) noexcept {
  const uint64_t before = now_ns();
  look();
  const uint64_t took = now_ns() - before;
  return took - std::min(took, short_times.clock_ns);
}

// The unit of waits: 23 ns, found on machines with a transfer of 30 to 65, and longer in proportion
// on machines with a slower transfer. In proportion below that too (48 ns at 64) the mpmc ring lost
// half of its throughput.
inline constexpr uint64_t kNearUnitNs = 23;
inline constexpr uint64_t kMostNearNs = 75;
[[nodiscard]] constexpr uint64_t wait_unit_ns(const CoreDistance& distance) noexcept {
  return kNearUnitNs * std::max(distance.transfer_ns(), kMostNearNs) / kMostNearNs;
}

class Backoff {
 public:
  // 64 units are 1.5 µs where cores are near: 20 to 50 transfers, of which the winner needs two or
  // three to get the lines and has the rest to itself.
  static constexpr uint64_t kMostUnits = 64;

  // How long to wait now, longer each time.
  [[nodiscard]] constexpr uint64_t next_wait_ns(const CoreDistance& distance) noexcept {
    const uint64_t ns = std::min(units_ * wait_unit_ns(distance), kMostWaitNs);
    if (units_ < kMostUnits) units_ *= 2;
    return ns;
  }
  void lost(const CoreDistance& distance) noexcept { wait_for(next_wait_ns(distance)); }
  // The waits have become so long that timing the next look, 40 ns, is nothing beside them.
  [[nodiscard]] constexpr bool is_long() const noexcept { return units_ >= 16; }

 private:
  uint64_t units_ = 1;
};

// Distance between the two sides of a ring. A side that has caught up with the other polls the very
// line that the other is working on, and each takes it from the other (100 ns) for every few items.
// So the first look that finds nothing after a burst of n items waits n / 2 units, at most 64, and
// the other side gets some lines ahead. Later looks don't wait: a thread that polls for a single
// item sees it at once. One producer and one consumer, 8 bytes, 1,024 slots, near: MpmcQueue 77 ->
// 175 M/s with 16 units, 185 with 64; where a transfer takes 280 ns 75 and 130 M/s. A ring that is
// filled by few claims is full (empty) before a long wait is over: 256 slots make 182 M/s with 16
// units, 112 with 64; 1,024 in batches of 256 788 and 460.
inline constexpr size_t kMostDistanceUnits = 64;
inline constexpr size_t kMostDistanceUnitsOfFewClaims = 16;
inline constexpr size_t kClaimsADistanceUnit = 16;
inline constexpr size_t kLongestBurst = 4096;  // above it the last failure says nothing

// How long that is in a ring that `claims` claims fill, of a slot or a batch each; 0: no wait.
[[nodiscard]] constexpr uint64_t distance_wait_ns(const CoreDistance& distance, size_t burst,
                                                  size_t claims) noexcept {
  if (burst > kLongestBurst) return 0;
  const size_t most =
      std::clamp(claims / kClaimsADistanceUnit, kMostDistanceUnitsOfFewClaims, kMostDistanceUnits);
  return std::min(std::min(burst / 2, most) * wait_unit_ns(distance), kMostWaitNs);
}
// True: it has waited, so that another look is due and will cost a transfer.
inline bool keep_distance(const CoreDistance& distance, size_t burst, size_t claims) noexcept {
  const uint64_t ns = distance_wait_ns(distance, burst, claims);
  if (ns == 0) return false;
  wait_for(ns);
  return true;
}

}  // namespace lumen
