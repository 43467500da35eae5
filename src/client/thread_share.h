// The parts that the load threads of all transports share: their part of a plan, and their CPU
// time.
// Threads: any. Memory: none. Errors: never.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>

namespace lumen::client {

// A text of a reply in the report: enough for a server's own words.
inline constexpr size_t kErrorTextBytes = 300;

[[nodiscard]] inline uint64_t thread_cpu_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

// The part of `total` that the one of `parts` at `index` takes.
[[nodiscard]] inline uint64_t share(uint64_t total, uint32_t parts, uint32_t index) noexcept {
  return total / parts + (index < total % parts ? 1 : 0);
}

}  // namespace lumen::client
