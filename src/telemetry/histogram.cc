// Counting into and reading from a Histogram. Threads: as the header says.
// Memory: none. Errors: none.
#include <lumen/telemetry/histogram.h>

#include <algorithm>
#include <cmath>

namespace lumen::telemetry {
namespace {

// relaxed everywhere: counts order nothing, and a reader accepts a view a moment old.
constexpr auto kRelaxed = std::memory_order_relaxed;

void raise_to(std::atomic<uint64_t>& cell, uint64_t value) noexcept {
  // relaxed, both: as above
  if (cell.load(kRelaxed) < value) cell.store(value, kRelaxed);
}

void add_to(std::atomic<uint64_t>& cell, uint64_t n) noexcept {
  cell.store(cell.load(kRelaxed) + n, kRelaxed);  // relaxed: as above
}

}  // namespace

void Histogram::record(uint64_t value) noexcept {
  add_to(buckets_[bucket_of(value)], 1);
  add_to(sum_, value);
  raise_to(least_complement_, ~value);
  raise_to(most_, value);
}

void Histogram::merge(const Histogram& other) noexcept {
  // relaxed, all of them: see kRelaxed
  for (size_t i = 0; i < kBuckets; ++i) {
    if (const uint64_t n = other.buckets_[i].load(kRelaxed); n != 0) add_to(buckets_[i], n);
  }
  add_to(sum_, other.sum_.load(kRelaxed));
  raise_to(least_complement_, other.least_complement_.load(kRelaxed));
  raise_to(most_, other.most_.load(kRelaxed));
}

void Histogram::reset() noexcept {
  // relaxed, all of them: see kRelaxed
  for (std::atomic<uint64_t>& bucket : buckets_) bucket.store(0, kRelaxed);
  sum_.store(0, kRelaxed);
  least_complement_.store(0, kRelaxed);
  most_.store(0, kRelaxed);
}

uint64_t Histogram::count_of(size_t bucket) const noexcept {
  return buckets_[bucket].load(kRelaxed);  // relaxed: see kRelaxed
}

uint64_t Histogram::count() const noexcept {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBuckets; ++i) sum += count_of(i);
  return sum;
}

bool Histogram::was_empty() const noexcept {
  return least_complement_.load(kRelaxed) == 0;  // relaxed: see kRelaxed
}

double Histogram::mean() const noexcept {
  const uint64_t n = count();
  // relaxed: see kRelaxed
  return n == 0 ? 0 : static_cast<double>(sum_.load(kRelaxed)) / static_cast<double>(n);
}

uint64_t Histogram::sum() const noexcept {
  return sum_.load(kRelaxed);  // relaxed: see kRelaxed
}

uint64_t Histogram::min() const noexcept {
  const uint64_t complement = least_complement_.load(kRelaxed);  // relaxed: see kRelaxed
  return complement == 0 ? 0 : ~complement;
}

uint64_t Histogram::max() const noexcept {
  return most_.load(kRelaxed);  // relaxed: see kRelaxed
}

uint64_t Histogram::percentile(double percent) const noexcept {
  const uint64_t total = count();
  if (total == 0) return 0;
  const double share = std::clamp(percent, 0.0, 100.0) / 100.0 * static_cast<double>(total);
  // A hair less: 55 % of 100 comes out as 55.000000000000007, and its ceiling is not 56.
  const double rounded_up = std::ceil(share * (1 - 1e-12));
  const uint64_t rank = std::max<uint64_t>(1, static_cast<uint64_t>(rounded_up));
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += count_of(i);
    if (seen >= rank) {
      return std::clamp(lowest_of(i) + width_of(i) / 2, min(), std::max(min(), max()));
    }
  }
  return max();  // counts that came while we were adding
}

Histogram::Summary Histogram::summary() const noexcept {
  return {count(),        mean(),           min(), percentile(50), percentile(90),
          percentile(99), percentile(99.9), max()};
}

}  // namespace lumen::telemetry
