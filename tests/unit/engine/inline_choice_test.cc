// InlineChoice: the way that follows from a request's expected time. One thread.
#include "engine/inline_choice.h"

#include <gtest/gtest.h>

namespace lumen::engine {
namespace {

using Way = InlineChoice::Way;
constexpr uint64_t kUs = 1'000;

TEST(InlineChoice, ARunThatCostsLessThanTheHandOffIsInline) {
  EXPECT_EQ(InlineChoice::choose(Way::kOpen, 2 * kUs, 5 * kUs), Way::kInline);
  EXPECT_EQ(InlineChoice::choose(Way::kOpen, 6 * kUs, 5 * kUs), Way::kWorker);
  EXPECT_EQ(InlineChoice::choose(Way::kOpen, 0, 5 * kUs), Way::kWorker) << "not known";
}

TEST(InlineChoice, NearTheLimitItStaysAsItIs) {
  EXPECT_EQ(InlineChoice::choose(Way::kInline, 6 * kUs, 5 * kUs), Way::kInline);
  EXPECT_EQ(InlineChoice::choose(Way::kInline, 7 * kUs, 5 * kUs), Way::kWorker);
  EXPECT_EQ(InlineChoice::choose(Way::kWorker, 4 * kUs, 5 * kUs), Way::kWorker);
  EXPECT_EQ(InlineChoice::choose(Way::kWorker, 3 * kUs, 5 * kUs), Way::kInline);
}

TEST(InlineChoice, EachSizeOfAModelHasItsOwn) {
  InlineChoice choice;
  choice.reset(3);
  EXPECT_TRUE(choice.is_inline(3, 1024, 1));
  EXPECT_FALSE(choice.is_inline(3, 1024 * 1024, 1'000'000));
  EXPECT_TRUE(choice.is_inline(3, 1024, 1));
}

}  // namespace
}  // namespace lumen::engine
