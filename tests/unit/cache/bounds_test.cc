// The bounds of a ChronoCache: never passed, and used up by any pattern of keys.
#include <lumen/cache/chrono_cache.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace lumen {
namespace {

using cache::Concurrent;
using cache::FakeClock;
using cache::OneThread;
using std::chrono::hours;

template <typename T>
class CacheBounds : public testing::Test {};
template <typename ThreadsT, typename PolicyT>
struct Case {
  using Threads = ThreadsT;
  using Policy = PolicyT;
};
using Cases = testing::Types<Case<OneThread, cache::Lru>, Case<Concurrent, cache::Lru>,
                             Case<Concurrent, cache::Lfu>, Case<Concurrent, cache::S3Fifo>>;
TYPED_TEST_SUITE(CacheBounds, Cases);

// Keys as programs have them: each pattern is a key of its number.
struct Pattern {
  const char* name;
  std::function<uint64_t(uint64_t)> key;
};
std::vector<Pattern> patterns() {
  std::mt19937_64 random(7);
  const uint64_t factor = random() | 1;
  return {{"one after the other", [](uint64_t i) { return i; }},
          {"from a large id on", [](uint64_t i) { return (uint64_t{1} << 40) + i; }},
          {"pages", [](uint64_t i) { return i * 4'096; }},
          {"powers apart", [](uint64_t i) { return i << 20; }},
          {"clusters of ten", [](uint64_t i) { return i / 10 * 1'000'003 + i % 10; }},
          {"random", [factor](uint64_t i) { return i * factor; }}};
}

// Was: 16 shards had a sixteenth of the bound each, and neighbouring ids share a shard: a bound of
// 1,000 kept 63 of the ids 0 to 999.
TYPED_TEST(CacheBounds, AreUsedUpByAnyPatternOfKeys) {
  for (const size_t bound : {size_t{1}, size_t{100}, size_t{1'000}, size_t{50'000}}) {
    for (const Pattern& pattern : patterns()) {
      ChronoCache<uint64_t, int, typename TypeParam::Threads, FakeClock, typename TypeParam::Policy>
          cache({.max_entries = bound});
      for (uint64_t i = 0; i < bound; ++i) cache.put(pattern.key(i), 1, hours(1));
      EXPECT_EQ(cache.size(), bound) << pattern.name;
      for (uint64_t i = bound; i < bound + 500; ++i) {
        cache.put(pattern.key(i), 1, hours(1));
        ASSERT_LE(cache.size(), bound) << pattern.name;
      }
      EXPECT_EQ(cache.size(), bound) << pattern.name;
    }
  }
}

// Ids one after the other fall on the shards by blocks; a shard keeps as many as its part holds.
TEST(CacheBoundsOfShards, AreUsedToNineteenTwentiethsByBlocksOfNeighbours) {
  using Table = cache::Table<uint64_t, int, cache::PolicySet<Concurrent, cache::Lru>>;
  using Hash = cache::SeededHash;
  constexpr uint64_t kBlocks =
      cache::ManyShards<Table>::kLeastBoundOfAShard >> Hash::kNeighbourBits;
  for (uint64_t shards = 2; shards <= cache::ManyShards<Table>::kMost; shards *= 2) {
    for (uint64_t seed = 1; seed < 100; seed += 2) {
      std::vector<uint64_t> found(shards);
      for (uint64_t block = 0; block < shards * kBlocks; ++block) {
        const uint64_t hash = Hash{}(block << Hash::kNeighbourBits, seed);
        ++found[(hash >> Hash::kPlaceBits) % shards];
      }
      uint64_t kept = 0;
      for (const uint64_t blocks : found) kept += std::min(blocks, kBlocks);
      EXPECT_GE(kept * 20, shards * kBlocks * 19) << shards << " shards, seed " << seed;
    }
  }
}

// The same of a whole cache, with the smallest bound that shards divide by default. Without a
// sanitizer: it takes 15 s with one, which has nothing to find in it.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(CacheBoundsOfShards, AreUsedToNineteenTwentiethsByNeighbours) {
  constexpr size_t kBound = size_t{2} << 22;
  ChronoCache<uint64_t, int, Concurrent, FakeClock, cache::Lru> cache({.max_entries = kBound});
  for (uint64_t i = 0; i < kBound; ++i) cache.put(i, 1, hours(1));
  EXPECT_GE(cache.size(), kBound / 20 * 19);
  EXPECT_LE(cache.size(), kBound);
}
#endif

// Was: a bound of 1 was a part of 1 for each of 16 shards.
TEST(CacheBoundsOfShards, AreNotPassedWhereTheyDoNotDivide) {
  for (const size_t bound : {size_t{1}, size_t{3}, size_t{17}, size_t{1'001}}) {
    ChronoCache<uint64_t, int, Concurrent, FakeClock, cache::Lru> cache(
        {.max_entries = bound, .shards = 16});
    std::mt19937_64 random(bound);
    for (int i = 0; i < 20'000; ++i) cache.put(random(), 1, hours(1));
    EXPECT_EQ(cache.size(), bound);
  }
}

struct Length {
  size_t operator()(uint64_t, const std::string& value) const noexcept { return value.size(); }
};
// Was: no value above a sixteenth of the bound was kept, and 4 of 64 that fit together.
TYPED_TEST(CacheBounds, TakeValuesUpToTheWholeWeight) {
  constexpr size_t kBound = 1 << 20;
  for (const size_t count : {size_t{64}, size_t{8}, size_t{1}}) {
    ChronoCache<uint64_t, std::string, typename TypeParam::Threads, FakeClock,
                typename TypeParam::Policy, cache::WeighWith<Length>>
        cache({.max_weight = kBound});
    for (uint64_t i = 0; i < count; ++i) {
      EXPECT_TRUE(cache.put(i, std::string(kBound / count, 'x'), hours(1)));
    }
    EXPECT_EQ(cache.size(), count);
  }
}

}  // namespace
}  // namespace lumen
