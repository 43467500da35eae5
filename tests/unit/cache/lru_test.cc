// Lru against a std::list, in every order of uses.
#include "policy_driver.h"

#include <lumen/cache/lru.h>

#include <list>
#include <random>

namespace lumen::cache::test {
namespace {

using Keys = std::vector<uint64_t>;

TEST(Lru, EvictsTheLeastRecentlyUsed) {
  CountingMemory memory;
  PolicyDriver<Lru> cache(&memory, 3);
  for (const uint64_t key : {1U, 2U, 3U}) cache.insert(key);
  cache.use(1);
  EXPECT_EQ(cache.insert(4), Keys{2});
  EXPECT_EQ(cache.drain(), (Keys{3, 1, 4}));
}

TEST(Lru, TakesAnOverwriteForAUse) {
  CountingMemory memory;
  PolicyDriver<Lru> cache(&memory, 3);
  for (const uint64_t key : {1U, 2U, 3U}) cache.insert(key);
  cache.reweigh(cache.handle_of(1), 1);
  EXPECT_EQ(cache.insert(4), Keys{2});
}

TEST(Lru, EvictsAsManyAsTheWeightOfTheNewestNeeds) {
  CountingMemory memory;
  PolicyDriver<Lru> cache(&memory, 10);
  for (const uint64_t key : {1U, 2U, 3U, 4U, 5U}) cache.insert(key, 2);
  EXPECT_EQ(cache.insert(6, 5), (Keys{1, 2, 3}));
  EXPECT_EQ(cache.weight(), 9U);
}

TEST(Lru, GivesAHandleThatIsUsedAgainItsOwnPlace) {
  CountingMemory memory;
  PolicyDriver<Lru> cache(&memory, 10);
  for (const uint64_t key : {1U, 2U, 3U}) cache.insert(key);
  cache.erase(0);
  cache.insert(4);
  ASSERT_EQ(cache.handle_of(4), 0U);
  EXPECT_EQ(cache.drain(), (Keys{2, 3, 4}));
}

TEST(Lru, OrdersAsAListDoesForAnyOrderOfCalls) {
  for (const uint64_t seed : {11U, 12U, 13U}) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    CountingMemory memory;
    PolicyDriver<Lru> cache(&memory, 300);
    std::list<uint64_t> model;  // the oldest in front
    uint64_t next_key = 0;
    for (int step = 0; step < 10'000; ++step) {
      const uint64_t number = random();
      if (model.empty() || number % 4 == 0) {
        model.push_back(next_key);
        Keys expected;
        if (model.size() > 300) {
          expected.push_back(model.front());
          model.pop_front();
        }
        ASSERT_EQ(cache.insert(next_key++), expected);
        continue;
      }
      auto at = model.begin();
      std::advance(at, static_cast<std::ptrdiff_t>((number >> 8) % model.size()));
      if (number % 16 == 1) {
        cache.erase(cache.handle_of(*at));
        model.erase(at);
      } else {
        cache.use(*at);
        model.splice(model.end(), model, at);
      }
    }
    EXPECT_EQ(cache.drain(), Keys(model.begin(), model.end()));
  }
}

TEST(Lru, KeepsEightBytesAnEntry) {
  CountingMemory memory;
  Lru lru(&memory, 1'000'000, 1'000'000);
  for (Handle h = 0; h < 1'000'000; ++h) lru.reserve(h);
  EXPECT_LE(memory.bytes(), 10'000'000U);
  EXPECT_EQ(memory.bytes(), lru.bytes());
}

}  // namespace
}  // namespace lumen::cache::test
