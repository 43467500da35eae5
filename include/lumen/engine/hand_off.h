// hand_off_ns: the cost of bringing a request to a worker's thread and its reply back, as measured
// on this machine.
// Threads: any. Memory: none. Errors: never.
#pragma once

#include <lumen/base/doorbell.h>

#include <algorithm>
#include <cstdint>

namespace lumen::engine {

// The wake-up is a hand-off's largest part. Below 2 us the rest of it (queue, two cache lines, the
// way back) weighs as much; more than 30 is a busy machine, not a costly hand-off.
inline constexpr uint64_t kLeastHandOffNs = 2'000;
inline constexpr uint64_t kMostHandOffNs = 30'000;

[[nodiscard]] inline uint64_t hand_off_ns() noexcept {
  return std::clamp(wake_cost_ns(), kLeastHandOffNs, kMostHandOffNs);
}

}  // namespace lumen::engine
