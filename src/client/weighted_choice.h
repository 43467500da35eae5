// WeightedChoice: which of several a client asks next, by their weights: the golden-ratio sequence,
// so that after any number of choices each has its share to within a few, in no pattern that
// repeats.
// Threads: one. Memory: the heap, when made. Errors: never; weights are above 0.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lumen::client {

class WeightedChoice {
 public:
  // `stream`: those of several threads begin at different places of the sequence.
  WeightedChoice(const std::vector<double>& weights, uint32_t stream) {
    double sum = 0;
    for (const double weight : weights) ends_.push_back(sum += weight);
    for (double& end : ends_) end /= sum;
    position_ = fraction(0.5 + stream * kSilverRatio);
  }

  [[nodiscard]] size_t next() noexcept {
    position_ = fraction(position_ + kGoldenRatio);
    size_t index = 0;
    // The last has the rest, for any rounding of the sums.
    while (index + 1 < ends_.size() && position_ >= ends_[index]) ++index;
    return index;
  }

 private:
  static constexpr double kGoldenRatio = 0.6180339887498949;
  static constexpr double kSilverRatio = 0.4142135623730950;
  static double fraction(double value) noexcept { return value - std::floor(value); }

  std::vector<double> ends_;  // of each one's part of [0, 1)
  double position_ = 0;
};

}  // namespace lumen::client
