// The batch plan and the batcher's decision: pure, so the clock is a number here.
#include "engine/batch_plan.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace lumen::engine {
namespace {

// The times of the MLP and SqueezeNet on the reference machine, in ns.
const std::vector<models::SizeCost> kMlp = {{1, 3200}, {2, 3300}, {4, 3400}, {8, 4300}, {16, 5800}};
const std::vector<models::SizeCost> kConvolution = {
    {1, 1'690'000}, {2, 3'400'000}, {4, 6'900'000}, {8, 14'000'000}};

uint64_t cost_of(const BatchPlan& plan, std::span<const models::SizeCost> costs, uint32_t rows) {
  uint64_t total = 0;
  while (rows > 0) {
    const uint32_t step = plan.step(rows);
    const uint32_t size = plan.padded(step);
    for (const models::SizeCost& cost : costs) total += cost.rows == size ? cost.ns : 0;
    rows -= std::min(rows, step);
  }
  return total;
}

TEST(BatchPlanTest, PacksAllThatWaitsWhereACallCostsLittleMoreForMoreRows) {
  const BatchPlan plan(kMlp, 16);
  EXPECT_TRUE(plan.packs());
  for (uint32_t rows = 1; rows <= 16; ++rows) EXPECT_EQ(plan.step(rows), rows) << rows;
  EXPECT_EQ(plan.step(40), 16u);
  EXPECT_EQ(plan.padded(13), 16u);
  EXPECT_EQ(plan.padded(8), 8u);
}

TEST(BatchPlanTest, NeverPacksWhereRowsGetDearerTogether) {
  const BatchPlan plan(kConvolution, 8);
  EXPECT_FALSE(plan.packs());
  for (uint32_t rows = 1; rows <= 8; ++rows) EXPECT_EQ(plan.step(rows), 1u) << rows;
}

TEST(BatchPlanTest, CutsUpABatchThatWouldBePaddedTooFar) {
  // Five rows as 4 + 1 cost 8, padded to eight 12.
  const std::vector<models::SizeCost> costs = {{1, 3}, {4, 5}, {8, 12}};
  const BatchPlan plan(costs, 8);
  EXPECT_EQ(plan.step(5), 4u);
  EXPECT_EQ(plan.step(4), 4u);
}

TEST(BatchPlanTest, HasNoMoreRowsThanTheLargestCallThatPays) {
  const std::vector<models::SizeCost> costs = {{1, 3}, {4, 5}, {8, 12}, {16, 30}};
  EXPECT_EQ(BatchPlan(costs, 16).max_rows(), 4u);
  EXPECT_EQ(BatchPlan(kConvolution, 8).max_rows(), 1u);
}

TEST(BatchPlanTest, IsNeverDearerThanOneByOneNorThanAnySingleSizeForRandomCosts) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<models::SizeCost> costs;
    for (const uint32_t rows : {1u, 2u, 4u, 8u, 16u}) costs.push_back({rows, 1 + random() % 1000});
    const BatchPlan plan(costs, 16);
    for (uint32_t rows = 1; rows <= 16; ++rows) {
      const uint64_t total = cost_of(plan, costs, rows);
      EXPECT_LE(total, rows * costs[0].ns);
      for (const models::SizeCost& size : costs) {
        EXPECT_LE(total, (rows + size.rows - 1) / size.rows * size.ns) << "round " << round;
      }
    }
  }
}

TEST(BatchPlanTest, WithNothingMeasuredRunsOneAtATime) {
  const BatchPlan plan;
  EXPECT_FALSE(plan.packs());
  EXPECT_EQ(plan.step(5), 1u);
  EXPECT_EQ(plan.padded(1), 1u);
}

TEST(BatcherTest, RunsWaitingRequestsAtOnceWithoutADelay) {
  const std::array<uint32_t, 3> rows = {1, 2, 1};
  const BatchDecision decision = decide_batch({rows, 1000}, BatchPlan(kMlp, 16), 1000, 0);
  EXPECT_EQ(decision.count, 3u);
  EXPECT_EQ(decision.rows, 4u);
}

TEST(BatcherTest, WaitsForOthersUntilTheOldestHasWaitedLongEnough) {
  const BatchPlan plan(kMlp, 16);
  const std::array<uint32_t, 3> rows = {1, 2, 1};
  const BatchDecision early = decide_batch({rows, 1000}, plan, 5999, 5000);
  EXPECT_EQ(early.count, 0u);
  EXPECT_EQ(early.until_ns, 6000u);
  EXPECT_EQ(decide_batch({rows, 1000}, plan, 6000, 5000).count, 3u);
}

TEST(BatcherTest, DoesNotWaitOnceTheBatchIsFull) {
  const std::vector<uint32_t> rows(16, 1);
  EXPECT_EQ(decide_batch({rows, 1000}, BatchPlan(kMlp, 16), 1000, 5000).count, 16u);
  // The next would not fit any more.
  const std::array<uint32_t, 2> large = {12, 5};
  const BatchDecision decision = decide_batch({large, 1000}, BatchPlan(kMlp, 16), 1000, 5000);
  EXPECT_EQ(decision.count, 1u);
  EXPECT_EQ(decision.rows, 12u);
}

TEST(BatcherTest, RunsARequestWithMoreRowsThanABatchByItself) {
  const std::array<uint32_t, 2> rows = {64, 1};
  const BatchDecision decision = decide_batch({rows, 1000}, BatchPlan(kMlp, 16), 1000, 5000);
  EXPECT_EQ(decision.count, 1u);
}

TEST(BatcherTest, DoesNotWaitForAModelThatNeverPacks) {
  const std::array<uint32_t, 2> rows = {1, 1};
  EXPECT_EQ(decide_batch({rows, 1000}, BatchPlan(kConvolution, 8), 1000, 5000).count, 1u);
}

TEST(BatcherTest, SaysNothingToDoForNothing) {
  EXPECT_EQ(decide_batch({}, BatchPlan(kMlp, 16), 1000, 0).count, 0u);
  EXPECT_EQ(decide_batch({}, BatchPlan(kMlp, 16), 1000, 0).until_ns, 0u);
}

}  // namespace
}  // namespace lumen::engine
