// The duties of every eviction policy, the library's and one that a user might write.
#include "policy_driver.h"

#include <lumen/cache/lfu.h>
#include <lumen/cache/lru.h>
#include <lumen/cache/s3_fifo.h>

#include <algorithm>
#include <random>
#include <set>

namespace lumen::cache::test {
namespace {

// All that a policy needs, as a user would write it: any entry may go.
class RandomVictim {
 public:
  static constexpr bool kKeepsRecords = true;
  static constexpr bool kConcurrentHits = false;

  RandomVictim(std::pmr::memory_resource* memory, uint64_t, size_t)
      : live_(memory), place_(memory) {}

  void reserve(Handle h) {
    if (live_.capacity() <= h) live_.reserve(2 * size_t{h} + 1);
    if (place_.size() <= h) place_.resize(h + 1, kNoHandle);
  }
  void inserted(Handle h, uint64_t hash, uint64_t) noexcept {
    place_[h] = static_cast<Handle>(live_.size());
    live_.push_back(h);
    random_ = random_ * 6364136223846793005 + hash;
  }
  void reweighed(Handle, uint64_t) noexcept {}
  void used(Handle) noexcept {}
  void erased(Handle h) noexcept {
    place_[live_.back()] = place_[h];
    live_[place_[h]] = live_.back();
    live_.pop_back();
  }
  Handle victim() noexcept {
    return live_.empty() ? kNoHandle : live_[(random_ >> 32) % live_.size()];
  }

 private:
  std::pmr::vector<Handle> live_;
  std::pmr::vector<Handle> place_;
  uint64_t random_ = 1;
};

static_assert(EvictionPolicy<RandomVictim>);
static_assert(EvictionPolicy<TtlOnly> && !KeepsRecords<TtlOnly>);
static_assert(S3Fifo::kConcurrentHits && !Lru::kConcurrentHits && !Lfu::kConcurrentHits);
struct NoPolicy {};
static_assert(!EvictionPolicy<NoPolicy>);

template <typename Policy>
class EvictionPolicies : public ::testing::Test {
 protected:
  CountingMemory memory_;
};
using Policies = ::testing::Types<Lru, S3Fifo, Lfu, RandomVictim>;
TYPED_TEST_SUITE(EvictionPolicies, Policies);

TYPED_TEST(EvictionPolicies, HaveNoVictimWhereThereIsNoEntry) {
  TypeParam policy(&this->memory_, 10, 10);
  EXPECT_EQ(policy.victim(), kNoHandle);
  policy.reserve(0);
  EXPECT_EQ(policy.victim(), kNoHandle);
}

TYPED_TEST(EvictionPolicies, GiveUpEveryEntryExactlyOnce) {
  PolicyDriver<TypeParam> cache(&this->memory_, 1000);
  for (uint64_t key = 0; key < 1000; ++key) {
    cache.insert(key);
    cache.use(key / 3);
  }
  std::vector<uint64_t> keys = cache.drain();
  std::sort(keys.begin(), keys.end());
  ASSERT_EQ(keys.size(), 1000U);
  for (uint64_t key = 0; key < 1000; ++key) EXPECT_EQ(keys[key], key);
}

TYPED_TEST(EvictionPolicies, HaveOneEntryWhereOneFits) {
  PolicyDriver<TypeParam> cache(&this->memory_, 1, 1);
  for (uint64_t key = 0; key < 50; ++key) {
    EXPECT_EQ(cache.insert(key).size(), key == 0 ? 0U : 1U);
    EXPECT_EQ(cache.live(), 1U);
  }
}

TYPED_TEST(EvictionPolicies, SurviveAnyOrderOfCalls) {
  for (const uint64_t seed : {1U, 2U, 3U}) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const uint64_t bound = 500 * seed;
    PolicyDriver<TypeParam> cache(&this->memory_, bound, seed == 2 ? 400 : 0);
    for (int step = 0; step < 30'000; ++step) {
      const uint64_t number = random();
      const size_t size = cache.entries().size();
      const Handle h = size == 0 ? kNoHandle : static_cast<Handle>((number >> 8) % size);
      const bool is_live = h != kNoHandle && cache.entries()[h].is_live;
      if (number % 8 < 3 || h == kNoHandle) {
        cache.insert(random(), (number >> 40) % 20);
      } else if (number % 8 < 6 && is_live) {
        cache.policy.used(h);
      } else if (number % 8 == 6 && is_live) {
        cache.reweigh(h, (number >> 40) % 700);
      } else if (number % 8 == 7 && is_live) {
        cache.erase(h);
      }
      ASSERT_LE(cache.weight(), bound);
    }
    const size_t live = cache.live();
    EXPECT_EQ(cache.drain().size(), live);
  }
}

TYPED_TEST(EvictionPolicies, IgnoreALateHitOfAnEntryThatIsGone) {
  PolicyDriver<TypeParam> cache(&this->memory_, 20);
  for (uint64_t key = 0; key < 20; ++key) cache.insert(key);
  cache.erase(7);
  for (int i = 0; i < 100; ++i) cache.policy.used(7);
  EXPECT_EQ(cache.drain().size(), 19U);
}

TYPED_TEST(EvictionPolicies, TakeMemoryInReserveOnlyAndGiveAllOfItBack) {
  {
    PolicyDriver<TypeParam> cache(&this->memory_, 5000);
    for (Handle h = 0; h < 5001; ++h) cache.policy.reserve(h);
    const size_t calls = this->memory_.calls();
    for (uint64_t key = 0; key < 20'000; ++key) {
      cache.insert(key);
      if (key % 2 == 0) cache.policy.used(static_cast<Handle>(key % 4000));
    }
    EXPECT_EQ(this->memory_.calls(), calls);
    EXPECT_GT(this->memory_.bytes(), 0U);
  }
  EXPECT_EQ(this->memory_.bytes(), 0U);
}

TYPED_TEST(EvictionPolicies, GoOnAfterAnAllocationThatFailed) {
  for (size_t nth = 1; nth < 12; ++nth) {
    SCOPED_TRACE(nth);
    PolicyDriver<TypeParam> cache(&this->memory_, 100'000);
    for (uint64_t key = 0; key < 300; ++key) cache.insert(key);
    this->memory_.fail_at(nth);
    uint64_t key = 300;
    try {
      while (key < 20'000) {
        cache.insert(key);
        ++key;
      }
      FAIL() << "nothing failed";
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(cache.live(), key);
    }
    this->memory_.fail_at(0);
    for (uint64_t later = key; later < key + 2000; ++later) cache.insert(later);
    EXPECT_EQ(cache.drain().size(), key + 2000);
  }
  EXPECT_EQ(this->memory_.bytes(), 0U);
}

}  // namespace
}  // namespace lumen::cache::test
