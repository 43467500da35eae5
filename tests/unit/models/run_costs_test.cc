// RunCosts: the expected time of a request by its size. One thread.
#include <lumen/models/run_costs.h>

#include <gtest/gtest.h>

namespace lumen::models {
namespace {

constexpr uint64_t kUs = 1'000;

TEST(RunCosts, ExpectsNothingBeforeTheFirstRun) {
  const RunCosts costs;
  EXPECT_EQ(costs.expect_ns(1024), 0u);
}

TEST(RunCosts, ExpectsTheTimeOfRunsOfTheSameSize) {
  RunCosts costs;
  for (int i = 0; i < 100; ++i) costs.add(1024, 2 * kUs);
  for (int i = 0; i < 100; ++i) costs.add(64 * 1024, 50 * kUs);
  EXPECT_NEAR(static_cast<double>(costs.expect_ns(1024)), 2e3, 100);
  EXPECT_NEAR(static_cast<double>(costs.expect_ns(1500)), 2e3, 100) << "the same power of two";
  EXPECT_NEAR(static_cast<double>(costs.expect_ns(64 * 1024)), 50e3, 1e3);
  EXPECT_EQ(costs.usual_bytes(), 64u * 1024);
}

// [10000,256] for the MLP: nobody has run as much yet.
TEST(RunCosts, ExpectsOfALargerRequestAsMuchMoreAsItsBytesAre) {
  RunCosts costs;
  costs.add(1024, 2 * kUs);
  EXPECT_EQ(costs.expect_ns(1024 * 1024), 2048 * kUs);
  EXPECT_EQ(costs.expect_ns(0), 2 * kUs) << "no less than a run takes";
  EXPECT_GT(costs.expect_ns(uint64_t{1} << 60), costs.expect_ns(1024 * 1024));
}

TEST(RunCosts, ExpectsNoMoreThanALargerRequestTook) {
  RunCosts costs;
  costs.add(1024, 2 * kUs);
  costs.add(1024 * 1024, 100 * kUs);
  EXPECT_EQ(costs.expect_ns(512 * 1024), 100 * kUs);
  EXPECT_EQ(costs.expect_ns(4 * 1024), 8 * kUs);
}

// The kernel takes the CPU away for milliseconds in the middle of a run.
TEST(RunCosts, OneRunThatWasInterruptedChangesLittle) {
  RunCosts costs;
  for (int i = 0; i < 50; ++i) costs.add(1024, 2 * kUs);
  costs.add(1024, 4000 * kUs);
  EXPECT_LT(costs.expect_ns(1024), 3 * kUs);
}

TEST(RunCosts, BelievesAModelThatGotSlowerAfterSomeRuns) {
  RunCosts costs;
  for (int i = 0; i < 50; ++i) costs.add(1024, 2 * kUs);
  for (int i = 0; i < 50; ++i) costs.add(1024, 400 * kUs);
  EXPECT_GT(costs.expect_ns(1024), 300 * kUs);
}

}  // namespace
}  // namespace lumen::models
