// Which clock ExactClock asks, and that an entry ends on time by it.
#include <lumen/cache/chrono_cache.h>
#include <lumen/cache/detail/ticker.h>

#include <gtest/gtest.h>

#include <chrono>

namespace lumen {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A clock whose two times a test sets.
struct TwoTimes {
  static constexpr cache::ClockKind kKind = cache::ClockKind::kRead;
  static constexpr uint64_t kCoarseLateNs = cache::ExactClock::kCoarseLateNs;
  [[nodiscard]] uint64_t read_ns() const noexcept {
    ++exact_reads;
    return exact_ns;
  }
  [[nodiscard]] static uint64_t read_coarse_ns() noexcept { return coarse_ns; }
  [[nodiscard]] static bool is_long(uint64_t ttl_ns) noexcept { return ttl_ns >= kLongNs; }
  static constexpr uint64_t kLongNs = 4'000'000'000;
  static inline uint64_t exact_ns = 0;
  static inline uint64_t coarse_ns = 0;
  static inline int exact_reads = 0;
};

class CoarseFirst : public testing::Test {
 protected:
  static constexpr uint32_t kTickBits = 19;
  [[nodiscard]] static uint64_t tick_of(uint64_t ns) { return ns >> kTickBits; }
  [[nodiscard]] bool has_come(uint64_t deadline_ns) {
    TwoTimes::exact_reads = 0;
    return ticker_.moment().has_come(tick_of(deadline_ns));
  }
  static void set(uint64_t coarse_ns, uint64_t exact_ns) {
    TwoTimes::coarse_ns = coarse_ns;
    TwoTimes::exact_ns = exact_ns;
  }
  static constexpr uint64_t kNow = 100'000'000'000;
  cache::Ticker<TwoTimes, true> ticker_{kTickBits};
};

TEST_F(CoarseFirst, AsksNoExactTimeWhereTheDeadlineIsFarAway) {
  set(kNow, kNow + 4'000'000);
  EXPECT_FALSE(has_come(kNow + 2'000'000'000));
  EXPECT_EQ(TwoTimes::exact_reads, 0);
  EXPECT_FALSE(ticker_.moment().has_come(cache::kNeverTick));
  EXPECT_EQ(TwoTimes::exact_reads, 0);
}

TEST_F(CoarseFirst, AsksNoneWhereEvenALateClockIsPastIt) {
  set(kNow, kNow + 4'000'000);
  EXPECT_TRUE(has_come(kNow - 1'000'000));
  EXPECT_TRUE(has_come(kNow));
  EXPECT_EQ(TwoTimes::exact_reads, 0);
}

TEST_F(CoarseFirst, LetsTheExactTimeDecideInBetween) {
  set(kNow, kNow + 10'000'000);
  EXPECT_TRUE(has_come(kNow + 9'000'000));
  EXPECT_EQ(TwoTimes::exact_reads, 1);
  EXPECT_FALSE(has_come(kNow + 11'000'000));
  EXPECT_EQ(TwoTimes::exact_reads, 1);
  // The latest that the coarse time may be.
  set(kNow, kNow + TwoTimes::kCoarseLateNs);
  EXPECT_TRUE(has_come(kNow + TwoTimes::kCoarseLateNs));
  EXPECT_FALSE(has_come(kNow + TwoTimes::kCoarseLateNs + 1'000'000));
}

TEST_F(CoarseFirst, CountsALongTimeToLiveFromTheCoarseTimeAndAShortOneFromTheExactTime) {
  set(kNow, kNow + 4'000'000);
  EXPECT_EQ(ticker_.start_ns(TwoTimes::kLongNs), kNow);
  EXPECT_EQ(ticker_.start_ns(TwoTimes::kLongNs - 1), kNow + 4'000'000);
}

// The kernel's tick is late, never early, and by less than a deadline is rounded.
TEST(ExactClock, CallsATimeToLiveLongWhereTheRoundingOfItsDeadlineIsAKernelTickOrMore) {
  const cache::ExactClock clock;
  const uint64_t step = coarse_step_ns();
  EXPECT_GE(step, 1'000'000U);
  EXPECT_LE(step, 10'000'000U);
  EXPECT_TRUE(clock.is_long(step << cache::kDeadlineBits));
  EXPECT_FALSE(clock.is_long((step << cache::kDeadlineBits) - 1));
  for (int i = 0; i < 1'000; ++i) EXPECT_LE(clock.read_coarse_ns(), now_ns());
}

// By the kernel's tick alone it would live on for up to 10 ms.
TEST(ExactClockCache, EndsAnEntryOnTimeThoughTheKernelsTickIsLate) {
  for (int round = 0; round < 20; ++round) {
    ChronoCache<int, int> cache;
    const auto before_put = steady_clock::now();
    cache.put(1, 1, milliseconds(5));
    const auto after_put = steady_clock::now();
    auto asked = after_put;
    for (;;) {
      const auto now = steady_clock::now();
      if (!cache.contains(1)) break;
      asked = now;
    }
    const auto error = std::chrono::nanoseconds(cache::TscClock::kDriftNs);
    EXPECT_LT(asked, after_put + milliseconds(5) + error);
    EXPECT_GE(steady_clock::now(), before_put + milliseconds(5) - cache.resolution() - error);
  }
}

}  // namespace
}  // namespace lumen
