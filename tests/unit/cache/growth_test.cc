// How many slots a ChronoCache takes for its entries, by the order in which keys come.
#include <lumen/cache/chrono_cache.h>

#include "support/stress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory_resource>
#include <random>
#include <vector>

namespace lumen {
namespace {

using cache::CachedTick;
using cache::Concurrent;
using cache::OneThread;
using std::chrono::hours;

constexpr int kBlock = 1 << cache::SeededHash::kNeighbourBits;

template <typename Threads>
class CacheGrowth : public testing::Test {
 protected:
  using Cache = ChronoCache<int, int, Threads, CachedTick>;

  // All are found again. Slots for each entry.
  static double slots_an_entry(const std::vector<int>& keys, uint64_t seed,
                               std::pmr::memory_resource* memory = nullptr) {
    cache::Options options;
    options.seed = seed;
    options.shards = 1;
    options.memory = memory;
    Cache cache(options);
    for (const int key : keys) EXPECT_TRUE(cache.put(key, key, hours(1)));
    for (const int key : keys) EXPECT_EQ(cache.get(key), key);
    const cache::Stats stats = cache.stats();
    EXPECT_EQ(stats.entries, keys.size());
    return static_cast<double>(stats.slots) / static_cast<double>(stats.entries);
  }
  static std::vector<int> clusters(int count, int of) {
    std::vector<int> keys;
    for (int i = 0; i < count; ++i) {
      for (int j = 0; j < of; ++j) keys.push_back(i * kBlock + j);
    }
    return keys;
  }
};
using BothThreads = testing::Types<OneThread, Concurrent>;
TYPED_TEST_SUITE(CacheGrowth, BothThreads);

// 1.03 is a segment that is as full as it may be.
TYPED_TEST(CacheGrowth, TakesFewSlotsBesideThoseOfIdsInOrder) {
  const uint64_t seeds = std::max<uint64_t>(1, test::stress_count(5));
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    EXPECT_LE(this->slots_an_entry(this->clusters(100, kBlock), seed), 1.09) << "seed " << seed;
  }
}

TYPED_TEST(CacheGrowth, TakesNoMoreSlotsForIdsInOrderWhereMemoryIsAResources) {
  std::pmr::synchronized_pool_resource pool;
  EXPECT_LE(this->slots_an_entry(this->clusters(100, kBlock), 1, &pool), 1.2);
}

// A block that has begun is expected to be filled only where the others are full.
TYPED_TEST(CacheGrowth, ReservesNothingForBlocksThatStayPartlyEmpty) {
  for (const int of : {70, 400, 2'000}) {
    EXPECT_LE(this->slots_an_entry(this->clusters(400'000 / of, of), 1), 1.3) << of << " a block";
  }
}

TYPED_TEST(CacheGrowth, TakesAsFewSlotsForIdsInAnyOrder) {
  std::vector<int> keys = this->clusters(100, kBlock);
  std::mt19937 random(7);
  std::shuffle(keys.begin(), keys.end(), random);
  EXPECT_LE(this->slots_an_entry(keys, 1), 1.3);
}

// The directory doubled until it told two such blocks apart, and had two bytes an entry (seed 19).
TYPED_TEST(CacheGrowth, MakesNoHugeDirectoryForBlocksOfNearlyOneHash) {
  constexpr int kEntries = 500'000;
  // A key, a value, a control byte, and the number of a deadline.
  constexpr size_t kBytesASlot = 11;
  const uint64_t seeds = test::stress_count(25);  // 2 under a sanitizer
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    cache::Options options;
    options.seed = seed;
    options.shards = 1;
    typename TestFixture::Cache cache(options);
    for (int key = 0; key < kEntries; ++key) cache.put(key, key, hours(1));
    const cache::Stats stats = cache.stats();
    EXPECT_LE(stats.bytes_used - stats.slots * kBytesASlot, kEntries / 2) << "seed " << seed;
  }
}

}  // namespace
}  // namespace lumen
