// Which entries have ended, by each kind of CPU, and how expired entries leave the table.
#include <lumen/cache/chrono_cache.h>
#include <lumen/cache/detail/sweep.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <vector>

namespace lumen::cache {
namespace {

using std::chrono::seconds;

class EndedMaskTest : public testing::Test {
 protected:
  // Ticks around `now`, among them `now` itself, 0 and the greatest there is; ids up to the last
  // number.
  void compare(EndedMask mask) {
    std::mt19937_64 random(7);
    std::vector<uint64_t> ticks(UINT16_MAX);
    for (int round = 0; round < 5'000; ++round) {
      const uint64_t now = random() >> (1 + random() % 62);
      std::array<DeadlineId, 16> ids;
      for (DeadlineId& id : ids) {
        id = static_cast<DeadlineId>(random() % UINT16_MAX);
        switch (random() % 6) {
          case 0: ticks[id] = now; break;
          case 1: ticks[id] = now + 1; break;
          case 2: ticks[id] = now == 0 ? 0 : now - 1; break;
          case 3: ticks[id] = kNeverTick; break;
          default: ticks[id] = random() >> 1;
        }
      }
      uint32_t wanted = 0;
      for (size_t i = 0; i < 16; ++i) wanted |= uint32_t{ticks[ids[i]] <= now} << i;
      ASSERT_EQ(mask(ids.data(), ticks.data(), now), wanted) << "now " << now;
    }
  }
};

// All that this CPU can run; a CPU without AVX has one, and no test of what it cannot run.
TEST_F(EndedMaskTest, IsRightByEachKindOfInstructionsThatTheCpuHas) {
  std::vector<EndedMask> masks = {ended_mask_portable};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) masks.push_back(ended_mask_avx2);
  if (__builtin_cpu_supports("avx512f")) masks.push_back(ended_mask_avx512);
#endif
  for (const EndedMask mask : masks) compare(mask);
  EXPECT_EQ(ended_mask, masks.back()) << "the widest is chosen";
}

struct Ended {
  static inline size_t expired = 0;
  static inline size_t others = 0;
  template <typename K, typename V>
  void operator()(const K&, const V&, Removal why) const noexcept {
    ++(why == Removal::kExpired ? expired : others);
  }
};

template <typename T>
class SweepOf : public testing::Test {
 protected:
  using Cache = ChronoCache<int, int, T, FakeClock, OnRemoval<Ended>>;
  void SetUp() override {
    FakeClock::set_ns(FakeClock::kStartNs);
    Ended::expired = 0;
    Ended::others = 0;
  }
  static Options one_shard() {
    Options options;
    options.shards = 1;
    return options;
  }
};
using Flavours = testing::Types<OneThread, Concurrent>;
TYPED_TEST_SUITE(SweepOf, Flavours);

TYPED_TEST(SweepOf, FreesABoundedPartATickAndInTheEndAll) {
  typename TestFixture::Cache cache(this->one_shard());
  constexpr size_t kEntries = 50'000;
  for (size_t i = 0; i < kEntries; ++i) cache.put(static_cast<int>(i), 1, seconds(1));
  const size_t groups = cache.stats().slots / kGroupSlots;
  FakeClock::advance_ns(2'000'000'000);
  EXPECT_EQ(cache.size(), 0u) << "before any is freed";
  size_t ticks = 0;
  for (size_t before = 0; Ended::expired < kEntries; before = Ended::expired, ++ticks) {
    cache.tick();
    ASSERT_LE(Ended::expired - before, cache.kSweptATick * kGroupSlots);
    ASSERT_LE(ticks, groups / cache.kSweptATick + 1);
    ASSERT_EQ(cache.stats().reclaimable, kEntries - Ended::expired);
  }
  EXPECT_GE(ticks, groups / cache.kSweptATick);
  EXPECT_EQ(cache.stats().expired, kEntries);
  EXPECT_EQ(Ended::others, 0u);
}

TYPED_TEST(SweepOf, LeavesLiveEntries) {
  typename TestFixture::Cache cache(this->one_shard());
  for (int i = 0; i < 20'000; ++i) cache.put(i, i, seconds(i % 2 == 0 ? 1 : 100));
  FakeClock::advance_ns(2'000'000'000);
  for (int i = 0; i < 100; ++i) cache.tick();
  EXPECT_EQ(Ended::expired, 10'000u);
  EXPECT_EQ(cache.stats().reclaimable, 0u);
  for (int i = 0; i < 20'000; ++i) ASSERT_EQ(cache.contains(i), i % 2 == 1);
}

TYPED_TEST(SweepOf, IsNotNeededForRoomToBeUsedAgain) {
  typename TestFixture::Cache cache(this->one_shard());
  size_t most = 0;
  for (int i = 0; i < 400'000; ++i) {
    cache.put(i, i, std::chrono::milliseconds(100));
    FakeClock::advance_ns(100'000);  // a thousand live at a time
    most = std::max(most, cache.stats().slots);
  }
  EXPECT_LT(most, 6'000u) << "400,000 have come, and nobody has called tick()";
}

}  // namespace
}  // namespace lumen::cache
