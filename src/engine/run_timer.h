// RunTimer: the CPU time of a run on the calling thread, for its model's share of the workers' time
// and for the expected time of its next runs. By the clock, a run in which the kernel gave the CPU
// to another thread for a time slice of 3 ms would count as a long one: its model would have had
// more than its share, and be taken for a heavy one that waits for others.
// Threads: one, from the run's beginning to its end. Memory: none. Errors: never.
#pragma once

#include <lumen/base/thread_clock.h>

#include <algorithm>
#include <cstdint>

namespace lumen::engine {

class RunTimer {
 public:
  // `expected_ns`: the expected time of the run; 0: not known.
  explicit RunTimer(uint64_t expected_ns) noexcept
      : expected_ns_(expected_ns), began_ns_(is_measured() ? thread_cpu_ns() : 0) {}

  // `wall_ns`: the time of the run by the clock. Backends that wait for a device complete on
  // threads of their own, and are not timed by this.
  [[nodiscard]] uint64_t used_ns(uint64_t wall_ns) const noexcept {
    if (is_measured()) return std::min(thread_cpu_ns() - began_ns_, wall_ns);
    return expected_ns_ == 0 ? wall_ns : std::min(wall_ns, kMostGrowth * expected_ns_);
  }

 private:
  // The thread's own clock is a system call, 0.2 us: not for runs of a few microseconds, of which
  // one that takes many times as long was interrupted.
  static constexpr uint64_t kLeastMeasuredNs = 50'000;
  static constexpr uint64_t kMostGrowth = 4;
  [[nodiscard]] bool is_measured() const noexcept { return expected_ns_ >= kLeastMeasuredNs; }

  const uint64_t expected_ns_;
  const uint64_t began_ns_;
};

}  // namespace lumen::engine
