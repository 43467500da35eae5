// Histogram: durations counted in buckets whose width grows with the value (log-linear, the layout
// of HdrHistogram): 64 buckets an octave, so a value read back is within 0.8 % of the one recorded.
// Threads: one that records; readers any, meanwhile.
// Memory: 18 KiB, fixed layout without pointers, so that it may lie in a mapped file
// (docs/formats/counters.md); zeroes are an empty one. Errors: none; values above kMaxValue count
// as kMaxValue.
//
// Why not 3 significant digits: 2,048 buckets an octave are 500 KiB a histogram, which a cache does
// not hold, for digits that the noise of a latency makes up. Why not fewer: 2 % steps show in a
// p50.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lumen::telemetry {

class Histogram {
 public:
  static constexpr unsigned kSubBits = 6;
  static constexpr uint64_t kSubBuckets = uint64_t{1} << kSubBits;
  static constexpr unsigned kValueBits = 40;  // in ns: up to 18 minutes
  static constexpr uint64_t kMaxValue = (uint64_t{1} << kValueBits) - 1;
  // Below 64 a bucket a value; then 64 an octave.
  static constexpr size_t kBuckets = (kValueBits - kSubBits + 1) * kSubBuckets;

  struct Summary {
    uint64_t count = 0;
    double mean = 0;
    uint64_t min = 0, p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
  };

  // Plain loads and stores, about 1 ns.
  void record(uint64_t value) noexcept;
  // Adds the counts of `other`, which may go on counting: then of the moment of each bucket.
  void merge(const Histogram& other) noexcept;
  // No writer at that time.
  void reset() noexcept;

  [[nodiscard]] uint64_t count() const noexcept;
  [[nodiscard]] bool was_empty() const noexcept;  // without a look at the buckets
  // Exact, unlike the percentiles: sum and extremes are kept beside the buckets.
  [[nodiscard]] double mean() const noexcept;
  [[nodiscard]] uint64_t sum() const noexcept;
  [[nodiscard]] uint64_t min() const noexcept;
  [[nodiscard]] uint64_t max() const noexcept;
  // The value that `percent` (0 to 100) of the recorded ones do not exceed: the middle of its
  // bucket, within [min, max]. 0 when nothing was recorded.
  [[nodiscard]] uint64_t percentile(double percent) const noexcept;
  [[nodiscard]] Summary summary() const noexcept;

  [[nodiscard]] static constexpr size_t bucket_of(uint64_t value) noexcept {
    if (value > kMaxValue) value = kMaxValue;
    if (value < kSubBuckets) return value;
    const auto octave = static_cast<unsigned>(std::bit_width(value)) - 1 - kSubBits;
    return static_cast<size_t>(octave) * kSubBuckets + (value >> octave);
  }
  // The smallest value of a bucket, and how many values share it.
  [[nodiscard]] static constexpr uint64_t lowest_of(size_t bucket) noexcept {
    if (bucket < 2 * kSubBuckets) return bucket;
    const size_t octave = bucket / kSubBuckets - 1;
    return (bucket - octave * kSubBuckets) << octave;
  }
  [[nodiscard]] static constexpr uint64_t width_of(size_t bucket) noexcept {
    return bucket < 2 * kSubBuckets ? 1 : uint64_t{1} << (bucket / kSubBuckets - 1);
  }
  [[nodiscard]] uint64_t count_of(size_t bucket) const noexcept;

 private:
  std::atomic<uint64_t> sum_{0};
  std::atomic<uint64_t> least_complement_{0};  // ~min, so that 0 means "none" and zeroes are valid
  std::atomic<uint64_t> most_{0};
  [[maybe_unused]] uint64_t reserved_[5] = {};
  std::atomic<uint64_t> buckets_[kBuckets] = {};
};

static_assert(std::is_standard_layout_v<Histogram> && std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(Histogram) == 64 + 8 * Histogram::kBuckets);
static_assert(Histogram::bucket_of(Histogram::kMaxValue) == Histogram::kBuckets - 1);

}  // namespace lumen::telemetry
