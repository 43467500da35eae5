// Lfu: the newcomers that are admitted, the entries that a scan evicts, and how the window follows
// the load.
#include "policy_driver.h"

#include <lumen/cache/lfu.h>

#include <random>
#include <unordered_map>

namespace lumen::cache::test {
namespace {

using Keys = std::vector<uint64_t>;

// Full: each of the keys below `bound` was used four times.
void fill(PolicyDriver<Lfu>& cache, uint64_t bound) {
  for (uint64_t key = 0; key < bound; ++key) cache.insert(key);
  for (int round = 0; round < 4; ++round) {
    for (Handle h = 0; h < bound; ++h) cache.policy.used(h);
  }
}

TEST(Lfu, EvictsTheNewcomerThatWasSeenLessOften) {
  CountingMemory memory;
  PolicyDriver<Lfu> cache(&memory, 200);
  fill(cache, 200);
  size_t evicted_old = 0;
  for (uint64_t key = 1000; key < 1300; ++key) {
    const Keys evicted = cache.insert(key);
    ASSERT_EQ(evicted.size(), 1U);
    evicted_old += evicted[0] < 200 ? 1U : 0U;
  }
  EXPECT_LE(evicted_old, 4U) << "the two that the window held at first, and an error of the sketch";
}

TEST(Lfu, AdmitsANewcomerThatComesAgainAndAgain) {
  CountingMemory memory;
  PolicyDriver<Lfu> cache(&memory, 200);
  for (uint64_t key = 0; key < 200; ++key) cache.insert(key);
  for (int round = 0; round < 6; ++round) {
    if (!cache.ask(5000)) {
      for (uint64_t scan = 0; scan < 3; ++scan) {
        cache.insert(10'000 + 10 * static_cast<uint64_t>(round) + scan);
      }
    }
  }
  EXPECT_TRUE(cache.holds(5000));
  EXPECT_TRUE(cache.insert(6000).at(0) != 5000);
}

TEST(Lfu, LosesNothingThatIsUsedToAScan) {
  CountingMemory memory;
  PolicyDriver<Lfu> cache(&memory, 500);
  fill(cache, 500);
  for (uint64_t key = 10'000; key < 12'000; ++key) cache.insert(key);
  size_t kept = 0;
  for (uint64_t key = 0; key < 490; ++key) kept += cache.holds(key) ? 1U : 0U;
  EXPECT_GE(kept, 485U);
}

TEST(Lfu, EvictsANewcomerThatIsHeavierThanTheWholeCache) {
  CountingMemory memory;
  PolicyDriver<Lfu> cache(&memory, 100);
  for (uint64_t key = 0; key < 10; ++key) cache.insert(key, 10);
  EXPECT_EQ(cache.insert(77, 101), Keys{77});
}

TEST(Lfu, EvictsByWeightUntilTheBoundHolds) {
  CountingMemory memory;
  PolicyDriver<Lfu> cache(&memory, 1000);
  for (uint64_t key = 0; key < 10; ++key) cache.insert(key, 100);
  cache.reweigh(9, 350);
  EXPECT_LE(cache.weight(), 1000U);
  EXPECT_LE(cache.live(), 8U);
}

// An attacker that has raised the counters of cached keys cannot keep others out for ever. Two keys
// push one another out of a window of one entry; all counters are full, so neither is rarer than
// the victim.
TEST(Lfu, AdmitsAWarmNewcomerNowAndThenThoughItIsNoMoreFrequentThanTheVictim) {
  CountingMemory memory;
  PolicyDriver<Lfu> cache(&memory, 8);
  cache.policy.reserve(1000);  // a sketch so large that nothing is halved
  for (uint64_t key = 0; key < 8; ++key) cache.insert(key);
  uint64_t asked = 0;
  while (asked < 2000 && !(cache.holds(100) && cache.holds(101))) {
    for (uint64_t key = 0; key < 8; ++key) {
      if (cache.holds(key)) cache.use(key);
    }
    cache.ask(100 + asked++ % 2);
  }
  EXPECT_GT(asked, 20U);
  EXPECT_LT(asked, 2000U) << "none of so many, of which one of 128 should be let in";
}

// A loop over more keys than fit: each key that stays is hit once a round.
TEST(Lfu, KeepsAPartOfALoop) {
  CountingMemory memory;
  PolicyDriver<Lfu> cache(&memory, 700);
  size_t hits = 0;
  for (uint64_t i = 0; i < 70'000; ++i) hits += cache.ask(i % 7000) ? 1U : 0U;
  EXPECT_GT(hits, 70'000U * 7 / 100);
}

// Keys come again soon or never: a large window hits keys that a window of 1 % loses.
TEST(Lfu, GrowsTheWindowWhereRecentKeysComeAgain) {
  CountingMemory memory;
  constexpr uint64_t kEntries = 512;
  Lfu policy(&memory, kEntries, kEntries);
  std::unordered_map<uint64_t, Handle> handles;
  std::vector<uint64_t> keys;
  std::vector<Handle> free;
  const uint64_t window_before = policy.window_target();
  std::mt19937_64 random(1);
  uint64_t hits = 0;
  constexpr uint64_t kRequests = 2'000'000;
  for (uint64_t i = 0; i < kRequests; ++i) {
    // Each key is asked for three times, 150 requests apart.
    const uint64_t key = i / 3 - std::min<uint64_t>(i / 3, (i % 3) * 50);
    if (const auto found = handles.find(key); found != handles.end()) {
      policy.used(found->second);
      hits += i >= kRequests / 2 ? 1U : 0U;
      continue;
    }
    Handle h = static_cast<Handle>(keys.size());
    if (free.empty()) {
      policy.reserve(h);
      keys.push_back(key);
    } else {
      h = free.back();
      free.pop_back();
      keys[h] = key;
    }
    handles[key] = h;
    policy.inserted(h, hash_of(key), 1);
    if (handles.size() <= kEntries) continue;
    const Handle victim = policy.victim();
    policy.erased(victim);
    handles.erase(keys[victim]);
    free.push_back(victim);
  }
  EXPECT_GT(policy.window_target(), 10 * window_before);
  EXPECT_GT(hits, kRequests / 2 * 55 / 100) << "two of three are hits where the window is large";
}

TEST(Lfu, KeepsTwentyFourToThirtyTwoBytesAnEntry) {
  CountingMemory memory;
  Lfu policy(&memory, 1 << 20, 1 << 20);
  for (Handle h = 0; h < 1 << 20; ++h) policy.reserve(h);
  EXPECT_GE(memory.bytes(), (24U << 20));
  EXPECT_LE(memory.bytes(), (28U << 20));
  policy.reserve(1 << 20);
  EXPECT_LE(memory.bytes(), (37U << 20));
  EXPECT_EQ(memory.bytes(), policy.bytes());
}

}  // namespace
}  // namespace lumen::cache::test
