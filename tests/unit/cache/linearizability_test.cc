// Concurrent caches are linearizable, key by key: their answers to threads could have come from a
// map that does their calls one after the other. And the checker refuses answers that could not.
#include "support/cache_history.h"
#include "support/stress.h"

#include <lumen/cache/chrono_cache.h>

#include <gtest/gtest.h>

#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lumen {
namespace {

using cache::FakeClock;
using test::Call;
using test::HistoryPlan;
using test::Operation;
using test::Wide;

// ---- the checker, on histories made by hand

Operation of(Call call, uint32_t thread, uint64_t value, uint64_t began, uint64_t returned) {
  Operation one;
  one.call = call;
  one.thread = thread;
  one.value = value;
  one.answer = value != 0;
  one.began = began;
  one.returned = returned;
  return one;
}
bool explained(const std::vector<Operation>& history, bool evicts = false) {
  return !test::find_contradiction(history, evicts);
}

TEST(LinearizabilityChecker, TakesCallsThatOverlapInEitherOrder) {
  const Operation put = of(Call::kPut, 0, 7, 1, 6);
  EXPECT_TRUE(explained({put, of(Call::kGet, 1, 0, 2, 3), of(Call::kGet, 1, 7, 4, 5)}));
  EXPECT_TRUE(explained({put, of(Call::kGet, 1, 7, 2, 3), of(Call::kGet, 1, 7, 4, 5)}));
  EXPECT_TRUE(explained({put, of(Call::kErase, 1, 1, 2, 5), of(Call::kGet, 2, 7, 3, 4)}));
}

TEST(LinearizabilityChecker, RefusesAValueThatIsThereAndThenNot) {
  const Operation put = of(Call::kPut, 0, 7, 1, 6);
  const std::vector<Operation> history{put, of(Call::kGet, 1, 7, 2, 3), of(Call::kGet, 1, 0, 4, 5)};
  EXPECT_FALSE(explained(history));
  EXPECT_TRUE(explained(history, true)) << "it may have been evicted";
}

TEST(LinearizabilityChecker, RefusesAnOldValueAfterANewOne) {
  const std::vector<Operation> history{of(Call::kPut, 0, 7, 1, 2), of(Call::kPut, 0, 8, 3, 8),
                                       of(Call::kGet, 1, 8, 4, 5), of(Call::kGet, 1, 7, 6, 7)};
  EXPECT_FALSE(explained(history));
  EXPECT_FALSE(explained(history, true)) << "an eviction brings no value back";
}

TEST(LinearizabilityChecker, RefusesTwoThreadsThatSeeTwoPutsInDifferentOrder) {
  EXPECT_FALSE(explained({of(Call::kPut, 0, 7, 1, 14), of(Call::kPut, 1, 8, 2, 15),
                          of(Call::kGet, 2, 7, 3, 4), of(Call::kGet, 2, 8, 5, 6),
                          of(Call::kGet, 3, 8, 7, 8), of(Call::kGet, 3, 7, 9, 10)}));
}

TEST(LinearizabilityChecker, RefusesAnAnswerThatNobodyPut) {
  EXPECT_FALSE(explained({of(Call::kGet, 0, 7, 1, 2), of(Call::kPut, 0, 7, 3, 4)}));
  EXPECT_FALSE(explained({of(Call::kContains, 0, 1, 1, 2)}));
  EXPECT_FALSE(explained({of(Call::kErase, 0, 1, 1, 2)}));
  EXPECT_FALSE(explained(
      {of(Call::kPut, 0, 7, 1, 2), of(Call::kDrop, 0, 0, 3, 4), of(Call::kTake, 0, 7, 5, 6)}));
}

TEST(LinearizabilityChecker, RefusesAnEraseThatTwoThreadsWon) {
  EXPECT_FALSE(explained(
      {of(Call::kPut, 0, 7, 1, 2), of(Call::kErase, 1, 1, 3, 5), of(Call::kErase, 2, 1, 4, 6)}));
}

TEST(LinearizabilityChecker, RefusesAValueThatOutlivesTheRefusalOfItsPut) {
  Operation put = of(Call::kPut, 0, 7, 1, 6);
  put.answer = false;
  const Operation during = of(Call::kGet, 1, 7, 2, 3);
  EXPECT_TRUE(explained({put, during}, true));
  EXPECT_FALSE(explained({put, during}, false)) << "only what evicts refuses";
  EXPECT_FALSE(explained({put, of(Call::kGet, 1, 7, 7, 8)}, true));
}

TEST(LinearizabilityChecker, RefusesAComputedValueThatIsStoredThoughItWasErasedMeanwhile) {
  Operation miss = of(Call::kGet, 0, 0, 1, 2);
  Operation fill = of(Call::kFill, 0, 7, 6, 7);
  fill.asked = 1;
  fill.computing = 2;
  const Operation after = of(Call::kGet, 0, 7, 11, 12);
  EXPECT_TRUE(explained({miss, fill, after}));
  EXPECT_FALSE(explained({miss, fill, of(Call::kGet, 0, 0, 11, 12)})) << "nobody erased it";
  const Operation erase = of(Call::kErase, 1, 0, 3, 4);
  EXPECT_FALSE(explained({miss, erase, fill, after}));
  Operation waited = of(Call::kGet, 1, 7, 5, 10);
  EXPECT_FALSE(explained({miss, erase, fill, waited}));
  waited.may_wait = true;
  EXPECT_TRUE(explained({miss, erase, fill, waited}));
}

TEST(LinearizabilityChecker, TellsTheCallsAroundARefusedOne) {
  const auto told =
      test::find_contradiction({of(Call::kPut, 0, 7, 1, 2), of(Call::kGet, 1, 8, 3, 4)}, false);
  ASSERT_TRUE(told);
  EXPECT_NE(told->find("3 to 4 thread 1: get 0 -> 8"), std::string::npos) << *told;
  EXPECT_NE(told->find("may have been 7"), std::string::npos) << *told;
  EXPECT_NE(told->find("put 0 = 7"), std::string::npos) << *told;
}

// ---- caches

template <typename K, typename V, typename... Policies>
struct Case {
  using Key = K;
  using Value = V;
  using Cache = ChronoCache<K, V, FakeClock, Policies...>;
};

// All keys that are looked for fit each other's tag, and comparing one with another now and then
// takes as long as a writer needs to move them all: readers that are between two looks at the
// version then.
struct OneHashForTheKeys {
  uint64_t operator()(uint64_t key, uint64_t) const noexcept {
    return key % test::kKeysApart == 0 ? 0 : key;
  }
};
struct SlowToDiffer {
  bool operator()(uint64_t a, uint64_t b) const noexcept {
    thread_local uint32_t compared = 0;
    if (a != b && ++compared % 64 == 0) std::this_thread::yield();
    return a == b;
  }
};
using SlowKeys =
    Case<uint64_t, uint64_t, cache::HashWith<OneHashForTheKeys>, cache::EqualWith<SlowToDiffer>>;

template <typename T>
class CacheHistories : public testing::Test {};
using Cases =
    testing::Types<Case<uint64_t, uint64_t>, Case<uint64_t, Wide>, Case<uint64_t, std::string>,
                   Case<std::string, uint64_t>, Case<std::string, Wide>,
                   Case<std::string, std::string, cache::Lru>, Case<uint64_t, Wide, cache::S3Fifo>,
                   Case<uint64_t, uint64_t, cache::Lfu>, SlowKeys>;
TYPED_TEST_SUITE(CacheHistories, Cases);

cache::Options options_for_histories(uint64_t seed) {
  cache::Options options;
  options.shards = 1;  // so that all calls meet
  options.seed = seed;
  return options;
}

TYPED_TEST(CacheHistories, OfFewKeysHaveAnOrder) {
  using Cache = typename TypeParam::Cache;
  const uint64_t seed = test::stress_seed();
  const uint64_t histories = test::stress_count(200);
  size_t together = 0;
  for (uint64_t i = 0; i < histories; ++i) {
    cache::Options options = options_for_histories(seed + i);
    if (i % 2 == 1) options.reserve_entries = 100;  // cleared in place, not begun anew
    HistoryPlan plan;
    plan.keys = 1 + i % 3;
    const bool evicts = Cache::kBounded && i % 4 < 2;
    if (evicts) options.max_entries = 1;
    Cache cache(options);
    const auto history = test::run_history<typename TypeParam::Key, typename TypeParam::Value>(
        cache, plan, seed + i);
    together += test::overlaps(history);
    const auto wrong = test::find_contradiction(history, evicts);
    ASSERT_FALSE(wrong) << *wrong << "history " << i;
  }
  EXPECT_GT(together, 0u) << "no two calls were under way at once";
}

// How many fillers a cache has when it takes more slots, and when it first splits a segment.
struct Growth {
  std::vector<uint64_t> steps;
  uint64_t split;
};
template <typename Case>
Growth growth_of(const cache::Options& options) {
  typename Case::Cache cache(options);
  Growth growth{};
  size_t slots = cache.stats().slots;
  for (uint64_t i = 0;; ++i) {
    cache.put(test::filler_key<typename Case::Key>(i),
              test::Numbered<typename Case::Value>::make(1), test::kHistoryTtl);
    const cache::Stats stats = cache.stats();
    if (stats.segments > 1) {
      growth.split = i;
      return growth;
    }
    if (stats.slots != slots) growth.steps.push_back(i);
    slots = stats.slots;
  }
}

TYPED_TEST(CacheHistories, WhileASegmentGrowsAndSplitsHaveAnOrder) {
  using K = typename TypeParam::Key;
  using V = typename TypeParam::Value;
  const uint64_t seed = test::stress_seed();
  const uint64_t histories = test::stress_count(100);
  const cache::Options options = options_for_histories(seed);
  const Growth growth = growth_of<TypeParam>(options);
  std::mt19937_64 random(seed);
  size_t splits = 0;
  size_t grown = 0;
  for (uint64_t i = 0; i < histories; ++i) {
    typename TypeParam::Cache cache(options);
    HistoryPlan plan;
    plan.clears = i % 8 == 0;
    plan.keys = 3;
    plan.calls = 400;
    plan.fillers_in_16 = 2;
    // It comes when a part of these have been put; the keys themselves count too.
    const uint64_t fillers = plan.threads * plan.calls * plan.fillers_in_16 / 16;
    // Growth is the same at any size, and quicker come by at a small one.
    const uint64_t at =
        i % 4 == 0 ? growth.split : growth.steps[random() % (growth.steps.size() / 2)];
    // Within the first half of them: threads put more or fewer than the expected number, and ten
    // histories under a sanitizer must not depend on the luck of their seed.
    plan.filler_at = at - std::min(at, random() % (fillers / 2));
    for (uint64_t key = 0; key < plan.filler_at; ++key) {
      cache.put(test::filler_key<K>(key), test::Numbered<V>::make(1), test::kHistoryTtl);
    }
    const cache::Stats before = cache.stats();
    const auto wrong =
        test::find_contradiction(test::run_history<K, V>(cache, plan, seed + i), false);
    ASSERT_FALSE(wrong) << *wrong << "history " << i;
    const cache::Stats after = cache.stats();
    splits += after.segments > before.segments ? 1 : 0;
    grown += after.segments == before.segments && after.slots > before.slots ? 1 : 0;
  }
  EXPECT_GT(splits, 0u);
  EXPECT_GT(grown, 0u);
}

// ---- caches that are broken: the same histories show it

// Every `kEvery`th call.
class NowAndThen {
 public:
  bool operator()() noexcept {
    return calls_.fetch_add(1, std::memory_order_relaxed) % kEvery ==
           kEvery - 1;  // relaxed: a number
  }

 private:
  static constexpr uint64_t kEvery = 50;
  std::atomic<uint64_t> calls_{0};
};

template <typename Case>
class LosesPuts : public Case::Cache {
 public:
  using Case::Cache::Cache;
  template <typename... T>
  bool put(const typename Case::Key& key, T&&... rest) {
    return now_() || Case::Cache::put(key, std::forward<T>(rest)...);
  }

 private:
  NowAndThen now_;
};

template <typename Case>
class KeepsWhatIsErased : public Case::Cache {
 public:
  using Case::Cache::Cache;
  bool erase(const typename Case::Key& key) {
    return now_() ? Case::Cache::contains(key) : Case::Cache::erase(key);
  }

 private:
  NowAndThen now_;
};

// Answers with the key's value before its latest put.
template <typename Case>
class GetsOldValues : public Case::Cache {
 public:
  using Base = typename Case::Cache;
  using Value = typename Case::Value;
  using Base::Base;
  bool put(const typename Case::Key& key, Value value, std::chrono::nanoseconds ttl) {
    auto before = Base::get(key);
    const bool stored = Base::put(key, std::move(value), ttl);
    const std::lock_guard guard(mutex_);
    before_.insert_or_assign(key, std::move(before));
    return stored;
  }
  std::optional<Value> get(const typename Case::Key& key) {
    if (now_()) {
      const std::lock_guard guard(mutex_);
      if (const auto found = before_.find(key); found != before_.end()) return found->second;
    }
    return Base::get(key);
  }

 private:
  NowAndThen now_;
  std::mutex mutex_;
  std::map<typename Case::Key, std::optional<Value>> before_;
};

class GetsTornValues : public Case<uint64_t, Wide>::Cache {
 public:
  using Case<uint64_t, Wide>::Cache::Cache;
  std::optional<Wide> get(uint64_t key) {
    auto value = Case<uint64_t, Wide>::Cache::get(key);
    if (value && now_()) value->words.back() ^= 1;
    return value;
  }

 private:
  NowAndThen now_;
};

// Stores the computed value though the key was erased meanwhile.
template <typename Case>
class StoresInSpiteOfAnErase : public Case::Cache {
 public:
  using Base = typename Case::Cache;
  using Base::Base;
  template <typename F>
  typename Case::Value get_or_compute(const typename Case::Key& key, std::chrono::nanoseconds ttl,
                                      F&& compute) {
    if (auto found = Base::get(key)) return *std::move(found);
    auto value = compute();
    Base::put(key, value, ttl);
    return value;
  }
};

template <typename K, typename V, typename Broken>
bool is_found(bool evicts) {
  const uint64_t seed = test::stress_seed();
  for (uint64_t i = 0; i < 50; ++i) {
    cache::Options options = options_for_histories(seed + i);
    HistoryPlan plan;
    if (evicts) options.max_entries = 1;
    Broken cache(options);
    if (test::find_contradiction(test::run_history<K, V>(cache, plan, seed + i), evicts))
      return true;
  }
  return false;
}

TEST(BrokenCacheHistories, AreRefused) {
  using InPlace = Case<uint64_t, uint64_t>;
  using Strings = Case<uint64_t, std::string>;
  using Evicts = Case<uint64_t, uint64_t, cache::Lru>;
  EXPECT_TRUE((is_found<uint64_t, uint64_t, LosesPuts<InPlace>>(false)));
  EXPECT_TRUE((is_found<uint64_t, uint64_t, KeepsWhatIsErased<InPlace>>(false)));
  EXPECT_TRUE((is_found<uint64_t, uint64_t, KeepsWhatIsErased<Evicts>>(true)));
  EXPECT_TRUE((is_found<uint64_t, uint64_t, GetsOldValues<InPlace>>(false)));
  EXPECT_TRUE((is_found<uint64_t, std::string, GetsOldValues<Strings>>(false)));
  EXPECT_TRUE((is_found<uint64_t, uint64_t, GetsOldValues<Evicts>>(true)));
  EXPECT_TRUE((is_found<uint64_t, Wide, GetsTornValues>(false)));
  EXPECT_TRUE((is_found<uint64_t, uint64_t, StoresInSpiteOfAnErase<InPlace>>(false)));
}

}  // namespace
}  // namespace lumen
