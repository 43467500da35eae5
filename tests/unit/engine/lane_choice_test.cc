// LaneChoice: the lane that follows from a request's expected time. One thread.
#include "engine/lane_choice.h"

#include <gtest/gtest.h>

namespace lumen::engine {
namespace {

using Lane = LaneChoice::Lane;
constexpr uint64_t kUs = 1'000;

TEST(LaneChoice, ARunThatCostsLessThanTheHandOffIsInline) {
  EXPECT_EQ(LaneChoice::choose(Lane::kOpen, 2 * kUs, 5 * kUs), Lane::kInline);
  EXPECT_EQ(LaneChoice::choose(Lane::kOpen, 6 * kUs, 5 * kUs), Lane::kWorker);
  EXPECT_EQ(LaneChoice::choose(Lane::kOpen, 0, 5 * kUs), Lane::kWorker) << "not known";
}

TEST(LaneChoice, NearTheLimitItStaysAsItIs) {
  EXPECT_EQ(LaneChoice::choose(Lane::kInline, 6 * kUs, 5 * kUs), Lane::kInline);
  EXPECT_EQ(LaneChoice::choose(Lane::kInline, 7 * kUs, 5 * kUs), Lane::kWorker);
  EXPECT_EQ(LaneChoice::choose(Lane::kWorker, 4 * kUs, 5 * kUs), Lane::kWorker);
  EXPECT_EQ(LaneChoice::choose(Lane::kWorker, 3 * kUs, 5 * kUs), Lane::kInline);
}

TEST(LaneChoice, EachSizeOfAModelHasItsOwn) {
  LaneChoice choice;
  choice.reset(3);
  EXPECT_TRUE(choice.is_inline(3, 1024, 1));
  EXPECT_FALSE(choice.is_inline(3, 1024 * 1024, 1'000'000));
  EXPECT_TRUE(choice.is_inline(3, 1024, 1));
}

}  // namespace
}  // namespace lumen::engine
