// InlineChoice: whether the next request of a model runs on its I/O thread or goes to a worker
// (queue type `auto`). A run that costs less than the hand-off to a worker is better run on the
// thread that has the request.
//
// The cost of a run is expected by the request's size (RunCosts), so a large request of a light
// model goes to a worker. The cost of a hand-off is measured as wake-ups happen (wake_cost_ns()).
// The way of a size stays as it is until the expectation is beyond the limit by a quarter, so that
// a cost near the limit does not change its way with each sample.
//
// Threads: choose() by any submitter; two at once may both change a size's way, to the same.
// Memory: at construction. Errors: none.
#pragma once

#include <lumen/base/limits.h>
#include <lumen/engine/hand_off.h>
#include <lumen/models/run_costs.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace lumen::engine {

class InlineChoice {
 public:
  // Of a model whose lightest requests cost no more the I/O threads get instances: the measured
  // hand-off may grow to as much.
  static constexpr uint64_t kMostInlineNs = 2 * kMostHandOffNs;

  // Control plane, while no request of the model can come.
  void reset(uint32_t model) noexcept {
    for (auto& way : ways_[model]) way.store(Way::kOpen, std::memory_order_relaxed);  // relaxed: so
  }
  [[nodiscard]] bool is_inline(uint32_t model, uint64_t input_bytes,
                               uint64_t expected_ns) noexcept {
    std::atomic<Way>& way = ways_[model][models::RunCosts::size_of(input_bytes)];
    const Way before = way.load(std::memory_order_relaxed);  // relaxed: a value of its own
    const Way now = choose(before, expected_ns, hand_off_ns());
    if (now != before) way.store(now, std::memory_order_relaxed);  // relaxed: as above
    return now == Way::kInline;
  }

  enum class Way : uint8_t { kOpen, kInline, kWorker };
  // `expected_ns` 0: not known, which a worker is to find out.
  [[nodiscard]] static constexpr Way choose(Way before, uint64_t expected_ns,
                                            uint64_t cost_ns) noexcept {
    if (expected_ns == 0) return Way::kWorker;
    uint64_t limit = cost_ns;
    if (before == Way::kInline) limit += cost_ns / 4;
    if (before == Way::kWorker) limit -= cost_ns / 4;
    return expected_ns <= limit ? Way::kInline : Way::kWorker;
  }

 private:
  std::array<std::array<std::atomic<Way>, models::RunCosts::kSizes>, limits::kMaxModels> ways_{};
};

}  // namespace lumen::engine
