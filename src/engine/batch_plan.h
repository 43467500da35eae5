// BatchPlan: how many rows of one model to run in one call, by the times of its warm-up; and
// decide_batch(): run, or wait for more. Pure: no clock, no thread, so a test drives them by hand.
// Threads: any, immutable once made. Memory: a few small arrays at construction. Errors: never.
//
// Measured, not assumed, because it goes both ways: sixteen rows of a small MLP cost twice one row
// (a tenth by the row), while a convolution net in bf16 gets dearer by the row. With cost(s) for
// each compiled size s, the cheapest way to run n rows is best(n) = min over s of
// cost(s) + best(max(0, n - s)), so padding a batch and cutting it up are weighed by the same sum.
#pragma once

#include <lumen/base/limits.h>
#include <lumen/models/size_cost.h>

#include <cstdint>
#include <span>
#include <vector>

namespace lumen::engine {

class BatchPlan {
 public:
  // Never packs.
  BatchPlan() : BatchPlan({}, 1) {}
  // `costs`: the sizes that may be run, 1 among them; others than 1 only where they were shown to
  // give the same rows. `max_rows`: the most rows that a batch may have.
  BatchPlan(std::span<const models::SizeCost> costs, uint32_t max_rows);

  // The most that one call ever has.
  [[nodiscard]] uint32_t max_rows() const noexcept { return max_rows_; }
  // Of `waiting` rows (1 on), how many to run in the next call; 1: a request by itself.
  [[nodiscard]] uint32_t step(uint32_t waiting) const noexcept;
  // The size to run `rows` in: the cheapest measured one that holds them.
  [[nodiscard]] uint32_t padded(uint32_t rows) const noexcept;
  // Whether more than one row is ever run at once.
  [[nodiscard]] bool packs() const noexcept { return packs_; }

 private:
  uint32_t max_rows_;
  bool packs_ = false;
  std::vector<uint32_t> steps_;   // by rows waiting
  std::vector<uint32_t> padded_;  // by rows to run
};

// Requests that may share a call, the oldest first.
struct BatchView {
  std::span<const uint32_t> rows;  // of each
  uint64_t oldest_ns = 0;          // when the first began to wait
};

struct BatchDecision {
  uint32_t count = 0;     // how many of the oldest to run now; 0: wait
  uint32_t rows = 0;      // that they have together
  uint64_t until_ns = 0;  // with count 0: decide again then, or when another has come
};

// `max_delay_ns`: how long the oldest may wait for others.
[[nodiscard]] BatchDecision decide_batch(const BatchView& view, const BatchPlan& plan,
                                         uint64_t now_ns, uint64_t max_delay_ns) noexcept;

}  // namespace lumen::engine
