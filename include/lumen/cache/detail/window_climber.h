// WindowClimber: finds the window of a W-TinyLFU cache that gives the most hits, by trying.
// Threads: one at a time. Memory, Errors: none.
//
// The hill climbing of Einziger, Eytan, Friedman, Manes: "Adaptive Software Cache Management"
// (Middleware 2018). It shifts the window by a step, and after a period asks whether more were
// hits: if so it goes on, else it turns back. Steps shrink, until the hit ratio changes by so much
// that the load must be another. It also turns where the window is at its end and hits stay as they
// are: a cache that hits next to nothing with the least window has to look elsewhere.
#pragma once

#include <cmath>
#include <cstdint>

namespace lumen::cache {

class WindowClimber {
 public:
  // Of the first step, in the unit of the capacity. It shrinks the window.
  explicit WindowClimber(uint64_t capacity) noexcept
      : largest_step_(kStepPart * static_cast<double>(capacity)), step_(-largest_step_) {}

  void count_hit() noexcept { ++hits_; }
  void count_miss() noexcept { ++misses_; }

  // A period is over: at the first of its whole multiples where the hit ratio has changed by more
  // than chance does, or after kLeastRequests. Steps that help a lot so follow one another quickly
  // in a small cache too, and where nothing helps chance moves the window seldom.
  [[nodiscard]] bool is_due(uint64_t period) noexcept {
    const uint64_t requests = hits_ + misses_;
    if (requests < next_look_) return false;
    next_look_ = requests + period;
    return requests >= period && (requests >= kLeastRequests || has_changed());
  }

  // By how much the window is to grow (or, below 0, to shrink) now that a period is over.
  [[nodiscard]] int64_t next_step(bool can_shrink, bool can_grow) noexcept {
    const double ratio = hit_ratio();
    const double gain = ratio - last_ratio_;
    const bool is_level = std::fabs(gain) < kNoGain;
    const bool is_at_end = !(step_ < 0 ? can_shrink : can_grow);
    const bool turns = is_level ? is_at_end : gain < 0;
    const double step = turns ? -step_ : step_;
    step_ = std::fabs(gain) >= kRestartGain ? std::copysign(largest_step_, step) : kDecay * step;
    last_ratio_ = ratio;
    forget_period();
    return static_cast<int64_t>(step);
  }
  void forget_period() noexcept { hits_ = misses_ = next_look_ = 0; }

 private:
  static constexpr uint64_t kLeastRequests = 16'000;
  static constexpr double kDeviations = 2;  // of the difference of two ratios
  // As the paper's authors have them in their own cache.
  static constexpr double kStepPart = 0.0625;
  static constexpr double kDecay = 0.98;
  static constexpr double kRestartGain = 0.05;
  static constexpr double kNoGain = 0.0005;  // of this one's own

  [[nodiscard]] double hit_ratio() const noexcept {
    return static_cast<double>(hits_) / static_cast<double>(hits_ + misses_);
  }
  [[nodiscard]] bool has_changed() const noexcept {
    const double ratio = hit_ratio();
    const double variance = 2 * ratio * (1 - ratio) / static_cast<double>(hits_ + misses_);
    return std::fabs(ratio - last_ratio_) > kDeviations * std::sqrt(variance);
  }

  double largest_step_;
  double step_;
  double last_ratio_ = 0;
  uint64_t hits_ = 0;
  uint64_t misses_ = 0;
  uint64_t next_look_ = 0;
};

}  // namespace lumen::cache
