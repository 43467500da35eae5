// See the header. Pure.
#include "engine/batch_plan.h"

#include <algorithm>
#include <limits>

namespace lumen::engine {

BatchPlan::BatchPlan(std::span<const models::SizeCost> costs, uint32_t max_rows)
    : max_rows_(std::max<uint32_t>(1, max_rows)), steps_(max_rows_ + 1, 1), padded_(max_rows_ + 1) {
  std::vector<uint64_t> best(max_rows_ + 1, std::numeric_limits<uint64_t>::max());
  best[0] = 0;
  for (uint32_t rows = 1; rows <= max_rows_; ++rows) {
    for (const models::SizeCost& size : costs) {
      if (size.rows > max_rows_) continue;
      const uint64_t rest = best[rows - std::min(rows, size.rows)];
      if (rest == std::numeric_limits<uint64_t>::max()) continue;
      const uint64_t total = size.ns + rest;
      // Of equals the larger call: fewer turns.
      if (total < best[rows] || (total == best[rows] && size.rows > steps_[rows])) {
        best[rows] = total;
        steps_[rows] = size.rows;
      }
    }
    const models::SizeCost* cheapest = nullptr;
    for (const models::SizeCost& size : costs) {
      const bool holds = size.rows >= rows;
      if (holds && (cheapest == nullptr || size.ns < cheapest->ns)) cheapest = &size;
    }
    padded_[rows] = cheapest == nullptr ? rows : cheapest->rows;
    packs_ = packs_ || (rows > 1 && steps_[rows] > 1);
  }
  // More rows than the largest call that pays would only be kept from other workers.
  max_rows_ = *std::ranges::max_element(steps_);
}

uint32_t BatchPlan::step(uint32_t waiting) const noexcept {
  return std::min(steps_[std::min(waiting, max_rows_)], std::max<uint32_t>(1, waiting));
}

uint32_t BatchPlan::padded(uint32_t rows) const noexcept {
  return rows > max_rows_ ? rows : padded_[rows];
}

BatchDecision decide_batch(const BatchView& view, const BatchPlan& plan, uint64_t now_ns,
                           uint64_t max_delay_ns) noexcept {
  if (view.rows.empty()) return {};
  uint32_t waiting = 0;
  bool full = false;
  for (const uint32_t rows : view.rows) {
    full = waiting + rows >= plan.max_rows();
    if (waiting + rows > plan.max_rows()) break;
    waiting += rows;
  }
  // One that fills a call by itself runs as it is.
  if (waiting == 0 || !plan.packs()) return {.count = 1, .rows = view.rows[0]};
  const uint64_t until = view.oldest_ns + max_delay_ns;
  if (!full && max_delay_ns > 0 && now_ns < until) return {.until_ns = until};
  const uint32_t step = plan.step(waiting);
  BatchDecision decision{.count = 1, .rows = view.rows[0]};
  while (decision.count < view.rows.size() && decision.rows + view.rows[decision.count] <= step) {
    decision.rows += view.rows[decision.count++];
  }
  return decision;
}

}  // namespace lumen::engine
