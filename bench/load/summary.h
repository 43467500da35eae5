// Summary: both bench programs' figures of a run: how many, how fast, at which percentiles.
// Threads: one. Memory: one float an operation, reserved before the run where the count is known.
// Errors: never; an empty run prints zeros.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <vector>

namespace lumen::bench {

class Summary {
 public:
  // 32 MiB: eight million operations before the vector has to grow within a run.
  Summary() { latencies_us_.reserve(size_t{1} << 23); }
  void add_ns(unsigned long latency_ns) {
    latencies_us_.push_back(static_cast<float>(latency_ns) / 1000.0f);
  }
  void clear() { latencies_us_.clear(); }

  // One JSON object on stdout.
  void print(double seconds) {
    const auto count = latencies_us_.size();
    const double sum = std::accumulate(latencies_us_.begin(), latencies_us_.end(), 0.0);
    std::printf(
        "{\"count\": %zu, \"seconds\": %.6f, \"per_second\": %.2f, \"mean_us\": %.3f, "
        "\"p50_us\": %.3f, \"p99_us\": %.3f}\n",
        count, seconds, seconds > 0 ? static_cast<double>(count) / seconds : 0,
        count > 0 ? sum / static_cast<double>(count) : 0, percentile(0.50), percentile(0.99));
  }

 private:
  double percentile(double portion) {
    if (latencies_us_.empty()) return 0;
    const auto rank = static_cast<size_t>(portion * static_cast<double>(latencies_us_.size() - 1));
    const auto at = latencies_us_.begin() + static_cast<std::ptrdiff_t>(rank);
    std::nth_element(latencies_us_.begin(), at, latencies_us_.end());
    return static_cast<double>(*at);
  }

  std::vector<float> latencies_us_;
};

}  // namespace lumen::bench
