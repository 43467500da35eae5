// SmoothedTime: running mean and mean deviation of recent times, in ns, as TCP keeps them of round
// trips (RFC 6298: alpha 1/8, beta 1/4), but that the first sample leaves the deviation 0.
// Threads: any, without a lock: an update lost to another's is one sample less. Memory: none.
// Errors: never; all is 0 before the first sample.
#pragma once

#include <atomic>
#include <cstdint>

namespace lumen::models {

class SmoothedTime {
 public:
  void add(uint64_t ns) noexcept {
    const uint64_t mean = mean_ns();
    if (mean == 0) {
      restart(ns);
      return;
    }
    const int64_t error = static_cast<int64_t>(ns) - static_cast<int64_t>(mean);
    const auto deviation = static_cast<int64_t>(deviation_ns());
    set(mean + static_cast<uint64_t>(error / 8),
        static_cast<uint64_t>(deviation + ((error < 0 ? -error : error) - deviation) / 4));
  }
  // Forgets earlier samples: `ns` is all that is known.
  void restart(uint64_t ns) noexcept { set(ns, 0); }

  [[nodiscard]] uint64_t mean_ns() const noexcept {
    return mean_ns_.load(std::memory_order_relaxed);  // relaxed: a statistic of its own
  }
  [[nodiscard]] uint64_t deviation_ns() const noexcept {
    return deviation_ns_.load(std::memory_order_relaxed);  // relaxed: as above
  }
  // A time that hardly any sample exceeds: the mean and four deviations, as TCP sets its timeout.
  [[nodiscard]] uint64_t high_ns() const noexcept { return mean_ns() + 4 * deviation_ns(); }

 private:
  void set(uint64_t mean, uint64_t deviation) noexcept {
    // relaxed: as above
    mean_ns_.store(mean, std::memory_order_relaxed);
    deviation_ns_.store(deviation, std::memory_order_relaxed);  // relaxed: as above
  }

  std::atomic<uint64_t> mean_ns_{0};
  std::atomic<uint64_t> deviation_ns_{0};
};

}  // namespace lumen::models
