// SharedCounter: one number that several threads count, if that is rare. Counters of the requests'
// path have blocks of their own: counters.h.
// Threads: any. Memory: none. Errors: never.
#pragma once

#include <atomic>
#include <cstdint>

namespace lumen::telemetry {

class SharedCounter {
 public:
  // relaxed, both: counters order nothing, and a reader accepts a view a moment old
  void add(uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  [[nodiscard]] uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

}  // namespace lumen::telemetry
