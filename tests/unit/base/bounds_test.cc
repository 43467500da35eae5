// Bounds: the values within, and the error's text. One thread.
#include <lumen/base/bounds.h>

#include <gtest/gtest.h>

namespace lumen {
namespace {

TEST(Bounds, BothEndsAreWithin) {
  constexpr Bounds kBounds = {2, 64};
  EXPECT_TRUE(kBounds.check(2).ok());
  EXPECT_TRUE(kBounds.check(63).ok());
  EXPECT_TRUE(kBounds.check(64).ok());
  EXPECT_EQ("got 1, wanted 2 to 64", kBounds.check(1).message());
  EXPECT_EQ("got 65, wanted 2 to 64", kBounds.check(65).message());
}

TEST(Bounds, MayAskForAPowerOfTwo) {
  constexpr Bounds kBounds = {2, 64, true};
  EXPECT_TRUE(kBounds.check(2).ok());
  EXPECT_TRUE(kBounds.check(64).ok());
  EXPECT_EQ("got 63, wanted a power of two from 2 to 64", kBounds.check(63).message());
  EXPECT_FALSE(kBounds.check(0).ok());
  EXPECT_FALSE(kBounds.check(128).ok());
}

}  // namespace
}  // namespace lumen
