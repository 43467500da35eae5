// Schedule: when each request of an open loop is due: evenly spaced from a beginning.
// Threads: one. Memory: none. Errors: never.
#pragma once

#include <cstdint>

namespace lumen::client {

class Schedule {
 public:
  Schedule() noexcept = default;
  // `phase` of an interval (0 to 1) shifts it, so that several threads interleave.
  Schedule(uint64_t start_ns, double per_second, double phase) noexcept
      : start_ns_(start_ns), interval_ns_(1e9 / per_second), phase_(phase) {}

  // From the index, not by adding up: no rounding error grows with the run.
  [[nodiscard]] uint64_t due_ns(uint64_t index) const noexcept {
    return start_ns_ + static_cast<uint64_t>((static_cast<double>(index) + phase_) * interval_ns_);
  }
  // How many are due before `now`.
  [[nodiscard]] uint64_t due_count(uint64_t now) const noexcept {
    if (now <= start_ns_) return 0;
    auto count = static_cast<uint64_t>(static_cast<double>(now - start_ns_) / interval_ns_);
    // The division may be off by one either way; due_ns() decides.
    while (count > 0 && due_ns(count - 1) >= now) --count;
    while (due_ns(count) < now) ++count;
    return count;
  }

 private:
  uint64_t start_ns_ = 0;
  double interval_ns_ = 1e9;
  double phase_ = 0;
};

}  // namespace lumen::client
