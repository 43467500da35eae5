// CoreDistance: the time to get a cache line that another core has written, learnt from the
// attempts themselves. Waits near another core are counted in it.
// Threads: a CoreDistance belongs to one; the figure at start may be read by any.
// Memory: none. Errors: never.
//
// 25 to 45 ns between the cores of one die, 75 to 300 if a hypervisor has put two virtual CPUs on
// two sockets, and it changes while a program runs. A wait that is right for one is wrong for the
// other: too short and the two sides take the line from each other for every item, too long and no
// thread works. So there is no constant for it: queues start with the result of
// start_core_distance() (or a near machine's figure), time one of 16 looks that must have cost a
// transfer, and go on from there.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace lumen {

class CoreDistance {
 public:
  // Less says that both threads share a core; more, that one was preempted while it was timed.
  static constexpr uint64_t kLeastNs = 8;
  static constexpr uint64_t kMostNs = 1'000;
  static constexpr uint64_t kNearNs = 31;  // until something was measured
  // Of the looks that cost a transfer, one in so many is timed: two clock reads are 40 ns.
  static constexpr uint32_t kLooksASample = 16;

  constexpr explicit CoreDistance(uint64_t transfer_ns = kNearNs) noexcept
      : sixteenths_(16 * static_cast<uint32_t>(std::clamp(transfer_ns, kLeastNs, kMostNs))) {}

  [[nodiscard]] constexpr uint64_t transfer_ns() const noexcept { return sixteenths_ / 16; }
  // A transfer took `ns`. A sample far from the estimate moves it by a part of the estimate,
  // however far it is, and down four times as much as up: so it comes to rest where a fifth of the
  // transfers are quicker. Other causes only make a transfer longer: a thread that was preempted,
  // or that fetches a line that others fight for, says nothing of the distance. (A mean of clipped
  // samples found 4 threads on 2 near cores far apart.)
  constexpr void took(uint64_t ns) noexcept {
    const uint32_t sample = 16 * static_cast<uint32_t>(std::clamp(ns, kLeastNs, kMostNs));
    const uint32_t up = sixteenths_ / 32;
    const uint32_t down = sixteenths_ / 8;
    if (sample > sixteenths_) {
      sixteenths_ += std::min(sample - sixteenths_, up);
    } else {
      sixteenths_ -= std::min(sixteenths_ - sample, down);
    }
  }
  // Whether this look is to be timed.
  [[nodiscard]] constexpr bool is_sampled() noexcept { return ++looks_ % kLooksASample == 0; }

 private:
  uint32_t sixteenths_;
  uint32_t looks_ = 0;
};

// The value with which queues start: kNearNs, or the last result of measure_core_distance().
inline std::atomic<uint64_t> core_distance_at_start_ns{CoreDistance::kNearNs};
[[nodiscard]] inline CoreDistance start_core_distance() noexcept {
  // relaxed: a first guess
  return CoreDistance(core_distance_at_start_ns.load(std::memory_order_relaxed));
}

// Measures it between two of the CPUs that this thread may use and keeps it for queues that are
// made later; under a millisecond, two threads that end with the call. With one CPU: changes
// nothing. For a program's start; returns the value with which queues now start.
uint64_t measure_core_distance();

}  // namespace lumen
