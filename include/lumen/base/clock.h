// Time, always monotonic: a jump of the wall clock changes no deadline.
// Threads: any. Memory: none. Errors: never.
#pragma once

#include <ctime>

#include <cstdint>

namespace lumen {

// Nanoseconds of CLOCK_MONOTONIC; 21 ns a call on the reference machine (vDSO).
[[nodiscard]] inline uint64_t now_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

// The same clock in steps of a kernel tick (4 ms), 3 ns a call: for timeouts and the Date header.
[[nodiscard]] inline uint64_t coarse_now_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}
// Such a step, 1 to 10 ms.
[[nodiscard]] inline uint64_t coarse_step_ns() noexcept {
  timespec t;
  clock_getres(CLOCK_MONOTONIC_COARSE, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace lumen
