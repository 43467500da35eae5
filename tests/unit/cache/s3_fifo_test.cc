// S3Fifo: which queue an entry is in, told by when it goes.
#include "policy_driver.h"

#include <lumen/cache/s3_fifo.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace lumen::cache::test {
namespace {

using Keys = std::vector<uint64_t>;

// Full, with 10 entries in the small queue (keys 0 to 9) and 90 in main (11 to 100).
void fill(PolicyDriver<S3Fifo>& cache) {
  for (uint64_t key = 0; key < 100; ++key) cache.insert(key);
  ASSERT_EQ(cache.insert(100), Keys{10}) << "until something was evicted, new keys go to main";
}

TEST(S3Fifo, LetsEntriesNotUsedTwiceGoFromTheSmallQueueFirst) {
  CountingMemory memory;
  PolicyDriver<S3Fifo> cache(&memory, 100);
  fill(cache);
  for (const uint64_t key : {0U, 2U}) {
    cache.use(key);
    cache.use(key);
  }
  cache.use(1);
  EXPECT_EQ(cache.insert(101), Keys{11}) << "0 went on to main, and small is within its tenth";
  EXPECT_EQ(cache.insert(102), Keys{1}) << "used once only";
  EXPECT_EQ(cache.insert(103), Keys{12}) << "2 went on to main too";
}

TEST(S3Fifo, GivesAnEntryOfMainARoundForEachUse) {
  CountingMemory memory;
  PolicyDriver<S3Fifo> cache(&memory, 100);
  fill(cache);
  for (uint64_t key = 0; key < 10; ++key) cache.erase(cache.handle_of(key));
  for (uint64_t key = 11; key <= 100; ++key) cache.use(key);
  for (uint64_t key = 20; key <= 100; ++key) cache.use(key);
  const Keys order = cache.drain();
  ASSERT_EQ(order.size(), 90U);
  for (uint64_t i = 0; i < 90; ++i)
    EXPECT_EQ(order[i], 11 + i) << "those used once, then the others";
}

TEST(S3Fifo, PutsAKeyThatComesAgainIntoMain) {
  CountingMemory memory;
  PolicyDriver<S3Fifo> cache(&memory, 100);
  fill(cache);
  ASSERT_EQ(cache.insert(101), Keys{0});
  ASSERT_EQ(cache.insert(0), Keys{11}) << "0 is a ghost and goes to main";
  for (uint64_t key = 200; key < 260; ++key) cache.insert(key);
  EXPECT_TRUE(cache.holds(0)) << "60 new keys went through the small queue";
  EXPECT_FALSE(cache.holds(101));
}

TEST(S3Fifo, ForgetsAGhostAfterAsManyAsMainHolds) {
  CountingMemory memory;
  PolicyDriver<S3Fifo> cache(&memory, 100);
  fill(cache);
  cache.insert(101);  // evicts 0
  for (uint64_t key = 1000; key < 1100; ++key) cache.insert(key);
  ASSERT_FALSE(cache.holds(0));
  cache.insert(0);
  for (uint64_t key = 2000; key < 2015; ++key) cache.insert(key);
  EXPECT_FALSE(cache.holds(0)) << "it went through the small queue";
}

TEST(S3Fifo, LosesNothingThatIsUsedToAScan) {
  CountingMemory memory;
  PolicyDriver<S3Fifo> cache(&memory, 100);
  fill(cache);
  for (uint64_t key = 10'000; key < 13'000; ++key) {
    cache.insert(key);
    if (key % 10 == 0) cache.use(50 + key / 10 % 40);
  }
  size_t kept = 0;
  for (uint64_t key = 50; key < 90; ++key) kept += cache.holds(key) ? 1U : 0U;
  EXPECT_EQ(kept, 40U);
}

TEST(S3Fifo, CountsTheSmallQueueByWeight) {
  CountingMemory memory;
  PolicyDriver<S3Fifo> cache(&memory, 1000);
  cache.insert(1, 100);  // all of the small queue
  for (uint64_t key = 2; key <= 10; ++key) cache.insert(key, 100);
  ASSERT_EQ(cache.insert(11, 100), Keys{2}) << "from here on new keys go to small";
  EXPECT_EQ(cache.insert(12, 50), Keys{1}) << "small weighs 150";
  EXPECT_EQ(cache.insert(13, 50), Keys{}) << "small weighs 100";
  EXPECT_EQ(cache.reweigh(cache.handle_of(3), 150), Keys{4}) << "a tenth is not too much";
  EXPECT_EQ(cache.insert(14, 100), Keys{12}) << "small weighs 200";
}

TEST(S3Fifo, BoundsTheWorkOfOneVictim) {
  CountingMemory memory;
  S3Fifo policy(&memory, 10'000, 10'000);
  for (Handle h = 0; h < 10'000; ++h) {
    policy.reserve(h);
    policy.inserted(h, hash_of(h), 1);
    for (int use = 0; use < 3; ++use) policy.touch(h);
  }
  // After 1024 moves, and not after three rounds over 9,000 entries.
  EXPECT_EQ(policy.victim(), 1000U + 1024U);
}

TEST(S3Fifo, LetsReadersTellOfHitsWhileItGrowsAndEvicts) {
  CountingMemory memory;
  S3Fifo policy(&memory, 1000, 1000);
  std::atomic<Handle> reserved = 0;
  for (Handle h = 0; h < 100; ++h) policy.reserve(h);
  reserved.store(100, std::memory_order_release);
  std::atomic<bool> is_over = false;
  std::thread reader([&] {
    for (Handle h = 0; !is_over.load(std::memory_order_acquire); h += 7) {
      policy.touch(h % reserved.load(std::memory_order_acquire));
    }
  });
  size_t evicted = 0;
  for (Handle h = 0; h < 20'000; ++h) {
    policy.reserve(h);
    reserved.store(std::max<Handle>(h + 1, 100), std::memory_order_release);
    policy.inserted(h, hash_of(h), 1);
    if (h < 1000) continue;
    const Handle victim = policy.victim();
    ASSERT_NE(victim, kNoHandle);
    policy.erased(victim);
    ++evicted;
  }
  is_over.store(true, std::memory_order_release);
  reader.join();
  EXPECT_EQ(evicted, 19'000U);
}

TEST(S3Fifo, KeepsTwentySevenBytesAnEntryWhereTheNumberIsKnown) {
  CountingMemory memory;
  S3Fifo policy(&memory, 1'000'000, 1'000'000);
  for (Handle h = 0; h < 1'000'000; ++h) policy.reserve(h);
  EXPECT_LE(memory.bytes(), 31'000'000U);  // the records' last segment may be unused in part
  EXPECT_EQ(memory.bytes(), policy.bytes());
}

}  // namespace
}  // namespace lumen::cache::test
