// RunCosts: the time of a model's runs by the size of the input, learnt from its runs; the expected
// time of a request before it runs.
// Threads: any, without a lock, as SmoothedTime. Memory: none allocated. Errors: never; 0 before
// the first sample.
#pragma once

#include <lumen/models/smoothed_time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace lumen::models {

class RunCosts {
 public:
  // Sizes that share a mean: those of one power of two.
  static constexpr uint32_t kSizes = 41;  // up to 1 TiB
  [[nodiscard]] static uint32_t size_of(uint64_t input_bytes) noexcept {
    return std::min<uint32_t>(static_cast<uint32_t>(std::bit_width(input_bytes)), kSizes - 1);
  }

  void add(uint64_t input_bytes, uint64_t ns) noexcept {
    usual_bytes_.store(input_bytes, std::memory_order_relaxed);  // relaxed: a statistic
    SmoothedTime& time = times_[size_of(input_bytes)];
    const uint64_t mean = time.mean_ns();
    // A run that the kernel has interrupted for a time slice says nothing about the model. A model
    // that really got slower is believed after a few runs.
    time.add(mean == 0 ? std::max<uint64_t>(ns, 1) : std::min(ns, kMostGrowth * mean));
  }
  // Of the run that was measured last.
  [[nodiscard]] uint64_t usual_bytes() const noexcept {
    return usual_bytes_.load(std::memory_order_relaxed);  // relaxed: as above
  }
  // Of a size that has not run yet: the next smaller one that has, by the bytes, but no more than
  // the next larger one took.
  [[nodiscard]] uint64_t expect_ns(uint64_t input_bytes) const noexcept {
    const uint32_t size = size_of(input_bytes);
    if (const uint64_t own = times_[size].mean_ns(); own != 0) return own;
    uint64_t expected = UINT64_MAX;
    for (uint32_t larger = size + 1; larger < kSizes && expected == UINT64_MAX; ++larger) {
      if (const uint64_t mean = times_[larger].mean_ns(); mean != 0) expected = mean;
    }
    for (uint32_t below = 1; below <= size; ++below) {
      const uint64_t mean = times_[size - below].mean_ns();
      if (mean == 0) continue;
      const bool is_beyond = mean > (UINT64_MAX >> below);
      return std::min(expected, is_beyond ? UINT64_MAX : mean << below);
    }
    return expected == UINT64_MAX ? 0 : expected;
  }

 private:
  static constexpr uint64_t kMostGrowth = 4;
  std::array<SmoothedTime, kSizes> times_;
  std::atomic<uint64_t> usual_bytes_{0};
};

}  // namespace lumen::models
