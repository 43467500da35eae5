// FrequencySketch: it never counts too little, seldom too much, and it forgets.
#include "policy_driver.h"

#include <lumen/cache/detail/frequency_sketch.h>

#include <random>

namespace lumen::cache::test {
namespace {

uint32_t short_hash(uint64_t key) { return static_cast<uint32_t>(hash_of(key) >> 32); }

TEST(FrequencySketch, KnowsNothingBeforeItHasMemory) {
  CountingMemory memory;
  FrequencySketch sketch(&memory);
  sketch.increment(1);
  EXPECT_EQ(sketch.estimate(1), 0U);
  EXPECT_EQ(memory.calls(), 0U);
}

TEST(FrequencySketch, CountsAKeyUpToFifteen) {
  CountingMemory memory;
  FrequencySketch sketch(&memory);
  sketch.reserve(512);
  for (uint32_t times = 1; times <= 40; ++times) {
    sketch.increment(short_hash(7));
    EXPECT_EQ(sketch.estimate(short_hash(7)), std::min(times, FrequencySketch::kLargestCount));
  }
  EXPECT_EQ(sketch.estimate(short_hash(8)), 0U);
}

TEST(FrequencySketch, NeverCountsTooLittleWithinAPeriod) {
  CountingMemory memory;
  FrequencySketch sketch(&memory);
  constexpr size_t kKeys = 1000;
  sketch.reserve(kKeys);
  std::mt19937_64 random(3);
  std::vector<uint32_t> counts(kKeys);
  size_t too_large = 0;
  for (uint64_t i = 0; i + 1 < sketch.period() / 4; ++i) {
    const uint64_t key = random() % kKeys;
    sketch.increment(short_hash(key));
    ++counts[key];
  }
  for (uint64_t key = 0; key < kKeys; ++key) {
    const uint32_t estimate = sketch.estimate(short_hash(key));
    EXPECT_GE(estimate, std::min(counts[key], FrequencySketch::kLargestCount));
    too_large += estimate > counts[key] + 1 ? 1U : 0U;
  }
  EXPECT_LE(too_large, kKeys / 20);
}

TEST(FrequencySketch, HalvesAllCountsAfterAPeriod) {
  CountingMemory memory;
  FrequencySketch sketch(&memory);
  sketch.reserve(4096);
  for (int i = 0; i < 12; ++i) sketch.increment(short_hash(1));
  uint64_t other = 1000;
  // Until one period is over, and the halving, a block at each increment, after it.
  for (uint64_t i = 0; i < sketch.period() + 512; ++i) sketch.increment(short_hash(++other));
  const uint32_t estimate = sketch.estimate(short_hash(1));
  EXPECT_GE(estimate, 6U);
  EXPECT_LE(estimate, 9U) << "others' counts among its own";
}

TEST(FrequencySketch, KeepsEveryCountWhenItGrows) {
  CountingMemory memory;
  FrequencySketch sketch(&memory);
  sketch.reserve(100);
  for (uint64_t key = 0; key < 50; ++key) {
    for (uint64_t i = 0; i <= key % 10; ++i) sketch.increment(short_hash(key));
  }
  std::vector<uint32_t> before;
  before.reserve(50);
  for (uint64_t key = 0; key < 50; ++key) before.push_back(sketch.estimate(short_hash(key)));
  sketch.reserve(5000);
  for (uint64_t key = 0; key < 50; ++key) EXPECT_EQ(sketch.estimate(short_hash(key)), before[key]);
  EXPECT_EQ(memory.bytes(), 8192U * 8);
}

TEST(FrequencySketch, IsAsItWasAfterAnAllocationThatFailed) {
  CountingMemory memory;
  FrequencySketch sketch(&memory);
  sketch.reserve(100);
  sketch.increment(short_hash(5));
  const uint64_t period = sketch.period();
  memory.fail_at(1);
  EXPECT_THROW(sketch.reserve(10'000), std::bad_alloc);
  EXPECT_EQ(sketch.estimate(short_hash(5)), 1U);
  EXPECT_EQ(sketch.period(), period);
}

}  // namespace
}  // namespace lumen::cache::test
