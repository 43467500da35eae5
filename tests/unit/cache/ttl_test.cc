// Ttl: every duration as nanoseconds, without overflow.
#include <lumen/cache/ttl.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>

namespace lumen::cache {
namespace {

using std::chrono::duration;
using std::chrono::hours;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr uint64_t kLongest = INT64_MAX;

TEST(Ttl, IsTheDurationInNanoseconds) {
  static_assert(Ttl(nanoseconds(7)).ns() == 7);
  static_assert(Ttl(seconds(7)).ns() == 7'000'000'000);
  static_assert(Ttl(hours(2)).ns() == 7'200'000'000'000);
  static_assert(Ttl(duration<double>(1.5)).ns() == 1'500'000'000);
  static_assert(Ttl(duration<int8_t, std::ratio<1, 30>>(3)).ns() == 100'000'000);
  static_assert(Ttl(nanoseconds::max()).ns() == kLongest);
}

TEST(Ttl, IsTheLongestWhereNanosecondsHoldNoMore) {
  EXPECT_EQ(Ttl(seconds::max()).ns(), kLongest);
  EXPECT_EQ(Ttl(hours::max()).ns(), kLongest);
  EXPECT_EQ(Ttl(seconds(INT64_MAX / 1'000'000'000 + 1)).ns(), kLongest);
  EXPECT_EQ(Ttl(seconds(INT64_MAX / 1'000'000'000)).ns(), kLongest / 1'000'000'000 * 1'000'000'000);
  EXPECT_EQ(Ttl(duration<uint64_t, std::giga>(UINT64_MAX)).ns(), kLongest);
  EXPECT_EQ(Ttl(duration<float>(std::numeric_limits<float>::infinity())).ns(), kLongest);
  EXPECT_EQ(Ttl(duration<double, std::nano>(0x1p63)).ns(), kLongest);
}

TEST(Ttl, IsZeroWhereTheDurationIsNotAboveIt) {
  EXPECT_EQ(Ttl(seconds(0)).ns(), 0u);
  EXPECT_EQ(Ttl(seconds(-1)).ns(), 0u);
  EXPECT_EQ(Ttl(hours::min()).ns(), 0u);
  EXPECT_EQ(Ttl(duration<double>(-std::numeric_limits<double>::infinity())).ns(), 0u);
  EXPECT_EQ(Ttl(duration<double>(std::numeric_limits<double>::quiet_NaN())).ns(), 0u);
}

TEST(Ttl, AFractionOfANanosecondIsOne) {
  EXPECT_EQ(Ttl(duration<int64_t, std::pico>(1)).ns(), 1u);
  EXPECT_EQ(Ttl(duration<int64_t, std::pico>(1'001)).ns(), 2u);
  EXPECT_EQ(Ttl(duration<double, std::pico>(1)).ns(), 1u);
}

}  // namespace
}  // namespace lumen::cache
