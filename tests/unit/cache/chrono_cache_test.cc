// ChronoCache as its users see it, over its flavours.
#include <lumen/cache/chrono_cache.h>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <memory_resource>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen {
namespace {

using cache::Concurrent;
using cache::FakeClock;
using cache::OneThread;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(ChronoCache, CompilesAsItsIssueWritesIt) {
  lumen::ChronoCache<int, int> c;
  c.put(42, 99, std::chrono::seconds(1));
  std::optional<int> v = std::as_const(c).get(42);
  std::size_t n = c.size();
  EXPECT_EQ(v, 99);
  EXPECT_EQ(n, 1u);
  static_assert(noexcept(std::as_const(c).size()));
}

template <typename T>
class ChronoCacheFlavour : public testing::Test {
 protected:
  void SetUp() override { FakeClock::set_ns(FakeClock::kStartNs); }
};
using Flavours = testing::Types<OneThread, Concurrent>;
TYPED_TEST_SUITE(ChronoCacheFlavour, Flavours);

TYPED_TEST(ChronoCacheFlavour, KeepsItsEntriesThroughGrowthAndSplits) {
  ChronoCache<int, int, TypeParam, FakeClock> cache;
  constexpr int kEntries = 200'000;
  for (int i = 0; i < kEntries; ++i) ASSERT_TRUE(cache.put(i, 2 * i, seconds(60)));
  EXPECT_EQ(cache.size(), static_cast<size_t>(kEntries));
  for (int i = 0; i < kEntries; ++i) ASSERT_EQ(cache.get(i), 2 * i) << i;
  for (int i = kEntries; i < 2 * kEntries; ++i) ASSERT_EQ(cache.get(i), std::nullopt) << i;
  for (int i = 0; i < kEntries; i += 2) ASSERT_TRUE(cache.erase(i));
  EXPECT_EQ(cache.size(), static_cast<size_t>(kEntries / 2));
  for (int i = 0; i < kEntries; ++i) ASSERT_EQ(cache.contains(i), i % 2 == 1) << i;
  cache.clear();
  EXPECT_EQ(cache.size(), 0u);
  for (int i = 0; i < kEntries; ++i) ASSERT_FALSE(cache.contains(i)) << i;
}

TYPED_TEST(ChronoCacheFlavour, EndsAnEntryWithinATickBeforeItsDeadline) {
  ChronoCache<int, int, TypeParam, FakeClock> cache;
  cache.put(1, 1, milliseconds(100));
  FakeClock::advance_ns(99'000'000 - static_cast<uint64_t>(cache.resolution().count()));
  EXPECT_TRUE(cache.contains(1));
  FakeClock::set_ns(FakeClock::kStartNs + 100'000'000);
  EXPECT_FALSE(cache.contains(1));
  EXPECT_EQ(cache.size(), 0u);
}

TYPED_TEST(ChronoCacheFlavour, ErasesAnEntryThatIsPutWithNoTimeToLive) {
  ChronoCache<int, int, TypeParam, FakeClock> cache;
  EXPECT_FALSE(cache.put(1, 1, seconds(0)));
  EXPECT_FALSE(cache.contains(1));
  EXPECT_TRUE(cache.put(1, 1, seconds(1)));
  EXPECT_FALSE(cache.put(1, 2, seconds(-1)));
  EXPECT_FALSE(cache.contains(1));
}

TYPED_TEST(ChronoCacheFlavour, KeepsAnEntryWithTheLongestTimeToLive) {
  ChronoCache<int, int, TypeParam, FakeClock> cache;
  EXPECT_TRUE(cache.put(1, 1, nanoseconds::max()));
  FakeClock::advance_ns(static_cast<uint64_t>(nanoseconds(hours(24 * 365 * 100)).count()));
  EXPECT_TRUE(cache.contains(1));
  EXPECT_EQ(cache.size(), 1u);
}

TYPED_TEST(ChronoCacheFlavour, TakesStringViewsForStrings) {
  ChronoCache<std::string, std::string, TypeParam, FakeClock> cache;
  cache.put("a key that is longer than the small string", "value", seconds(1));
  EXPECT_EQ(cache.get(std::string_view("a key that is longer than the small string")), "value");
  EXPECT_EQ(cache.get("another"), std::nullopt);
}

TYPED_TEST(ChronoCacheFlavour, HoldsValuesThatCanOnlyBeMoved) {
  ChronoCache<int, std::unique_ptr<int>, TypeParam, FakeClock> cache;
  for (int i = 0; i < 5'000; ++i) cache.put(i, std::make_unique<int>(i), seconds(1));
  int seen = -1;
  EXPECT_TRUE(cache.visit(7, [&](const std::unique_ptr<int>& value) { seen = *value; }));
  EXPECT_EQ(seen, 7);
}

struct WeighsLength {
  size_t operator()(int, const std::string& value) const noexcept { return value.size(); }
};
struct TellsLength {
  static inline size_t told = 0;
  void operator()(int, const std::string& value, cache::Removal) const noexcept {
    told += value.size();
  }
};
// Was: the value was moved out first, so that nothing was counted as gone and the listener saw no
// value.
TYPED_TEST(ChronoCacheFlavour, TakesAValueWithItsWeightAndTellsTheListener) {
  cache::Options options;
  options.shards = 1;
  options.max_weight = 1'000;
  ChronoCache<int, std::string, TypeParam, FakeClock, cache::Lru, cache::WeighWith<WeighsLength>,
              cache::OnRemoval<TellsLength>>
      cache(options);
  TellsLength::told = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(cache.put(i, std::string(100, 'v'), seconds(1)));
    ASSERT_EQ(cache.take(i), std::string(100, 'v'));
  }
  EXPECT_EQ(TellsLength::told, 10'000u);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(cache.put(i, std::string(100, 'v'), seconds(1)));
  EXPECT_EQ(cache.size(), 10u) << "there is room for all ten again";
}

// Was: Lru evicted every other entry of the shard for it, and then the value itself.
template <typename Threads, typename Policy>
void put_above_the_bound() {
  cache::Options options;
  options.shards = 1;
  options.max_weight = 1'000;
  ChronoCache<int, std::string, Threads, FakeClock, Policy, cache::WeighWith<WeighsLength>> cache(
      options);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(cache.put(i, std::string(100, 'v'), seconds(1)));
  EXPECT_FALSE(cache.put(10, std::string(1'001, 'v'), seconds(1)));
  EXPECT_EQ(cache.size(), 10u) << "nothing was evicted for it";
  EXPECT_FALSE(cache.put(3, std::string(1'001, 'v'), seconds(1)));
  EXPECT_EQ(cache.get(3), std::nullopt) << "the value before is not the latest";
  EXPECT_EQ(cache.size(), 9u);
  EXPECT_EQ(cache.stats().evicted, 0u);
}
TYPED_TEST(ChronoCacheFlavour, AValueAboveTheBoundIsRefusedBeforeAnythingIsEvicted) {
  put_above_the_bound<TypeParam, cache::Lru>();
  put_above_the_bound<TypeParam, cache::Lfu>();
  put_above_the_bound<TypeParam, cache::S3Fifo>();
}
TYPED_TEST(ChronoCacheFlavour, AValueOfTheWholeBoundEnters) {
  cache::Options options;
  options.shards = 1;
  options.max_weight = 1'000;
  ChronoCache<int, std::string, TypeParam, FakeClock, cache::Lru, cache::WeighWith<WeighsLength>>
      cache(options);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(cache.put(i, std::string(100, 'v'), seconds(1)));
  EXPECT_TRUE(cache.put(10, std::string(1'000, 'v'), seconds(1)));
  EXPECT_EQ(cache.size(), 1u);
}

// Was: the conversion to nanoseconds overflowed, which is undefined; nothing was stored and the
// value before was erased.
TYPED_TEST(ChronoCacheFlavour, ATtlBeyondNanosecondsNeverEnds) {
  using std::chrono::years;
  ChronoCache<int, int, TypeParam, FakeClock> cache;
  const auto is_kept = [&](auto ttl) {
    FakeClock::set_ns(FakeClock::kStartNs);
    cache.put(1, 1, hours(1));
    const bool is_stored = cache.put(1, 2, ttl);
    FakeClock::advance_ns(uint64_t{100} * 365 * 24 * 3600 * 1'000'000'000);  // a hundred years
    return is_stored && cache.get(1) == 2;
  };
  EXPECT_TRUE(is_kept(seconds::max()));
  EXPECT_TRUE(is_kept(milliseconds::max()));
  EXPECT_TRUE(is_kept(hours::max()));
  EXPECT_TRUE(is_kept(years(1'000)));
  EXPECT_TRUE(is_kept(std::chrono::duration<double>(1e300)));
  EXPECT_TRUE(is_kept(std::chrono::duration<uint64_t>(UINT64_MAX)));
  const std::vector<int> keys = {4};
  EXPECT_EQ(cache.put_many(keys, keys, hours::max()), 1u);
  EXPECT_EQ(cache.get_or_compute(5, hours::max(), [] { return 5; }), 5);
  EXPECT_EQ(cache.get(5), 5);
}

TYPED_TEST(ChronoCacheFlavour, ATtlThatIsNotAboveZeroErasesByEachKindOfPut) {
  ChronoCache<int, int, TypeParam, FakeClock> cache;
  const auto erases = [&](auto ttl) {
    cache.put(1, 1, hours(1));
    cache.put(2, 2, hours(1));
    return !cache.put(1, 3, ttl) && !cache.try_put(2, 3, ttl) && cache.size() == 0;
  };
  EXPECT_TRUE(erases(seconds(0)));
  EXPECT_TRUE(erases(seconds(-1)));
  EXPECT_TRUE(erases(seconds::min()));
  EXPECT_TRUE(erases(std::chrono::duration<double>(-1e300)));
}

TYPED_TEST(ChronoCacheFlavour, DoesManyInOneCall) {
  ChronoCache<int, int, TypeParam, FakeClock> cache;
  const std::vector<int> keys = {1, 2, 3};
  const std::vector<int> values = {10, 20, 30};
  EXPECT_EQ(cache.put_many(keys, values, seconds(1)), 3u);
  const std::vector<int> asked = {3, 4, 1};
  std::vector<std::optional<int>> found(3);
  EXPECT_EQ(cache.get_many(asked, found), 2u);
  EXPECT_EQ(found, (std::vector<std::optional<int>>{30, std::nullopt, 10}));
  EXPECT_EQ(cache.erase_many(asked), 2u);
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_THROW(cache.put_many(keys, std::span(values).first(2), seconds(1)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(cache.get_many(keys, std::span(found).first(2))),
               std::invalid_argument);
  EXPECT_EQ(cache.put_many({}, {}, seconds(1)), 0u);
}

TYPED_TEST(ChronoCacheFlavour, ReadsEightVisitsDeep) {
  ChronoCache<int, std::string, TypeParam, FakeClock> cache;
  for (int i = 0; i < 9; ++i) cache.put(i, "value " + std::to_string(i), seconds(1));
  const std::function<int(int)> read = [&](int depth) {
    int seen = 0;
    cache.visit(depth, [&](const std::string& value) {
      seen = 1 + (depth + 1 < 8 ? read(depth + 1) : 0);
      EXPECT_EQ(value, "value " + std::to_string(depth));
    });
    return seen;
  };
  EXPECT_EQ(read(0), 8);
}

TEST(ConcurrentChronoCache, RefusesTheNinthVisitInsideOfOthersAndGoesOn) {
  ChronoCache<int, std::string, FakeClock> cache;
  cache.put(1, "value", seconds(1'000'000));
  int depth = 0;
  const std::function<void()> deeper = [&] {
    cache.visit(1, [&](const std::string&) {
      ++depth;
      deeper();
    });
  };
  EXPECT_THROW(deeper(), std::bad_alloc);
  EXPECT_EQ(depth, 8);
  EXPECT_EQ(cache.get(1), "value");
}

TYPED_TEST(ChronoCacheFlavour, ShowsEachLiveEntryOnce) {
  ChronoCache<int, int, TypeParam, FakeClock> cache;
  for (int i = 0; i < 20'000; ++i) cache.put(i, i, seconds(i % 4 == 0 ? 1 : 9));
  FakeClock::advance_ns(2'000'000'000);
  std::vector<int> seen(20'000, 0);
  cache.for_each([&](int key, int value) {
    EXPECT_EQ(key, value);
    ++seen[static_cast<size_t>(key)];
  });
  for (size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], i % 4 == 0 ? 0 : 1) << i;
}

std::string said(const cache::Options& options) {
  try {
    const ChronoCache<int, int, FakeClock> cache(options);
  } catch (const std::invalid_argument& wrong) {
    return wrong.what();
  }
  return "nothing";
}
TEST(ChronoCacheOptions, AreRefusedWithTheReason) {
  cache::Options options;
  options.tick = nanoseconds(0);
  EXPECT_NE(said(options).find("Options::tick is not above 0"), std::string::npos);
  options = {};
  options.max_entries = 1;
  EXPECT_NE(said(options).find("TtlOnly evicts nothing"), std::string::npos);
  options = {};
  options.shards = 3;
  EXPECT_NE(said(options).find("not a power of two"), std::string::npos);
}

TEST(ChronoCacheOptions, AllowAnyPowerOfTwoOfShards) {
  FakeClock::set_ns(FakeClock::kStartNs);
  for (uint32_t shards = 1; shards <= 512; shards *= 2) {
    cache::Options options;
    options.shards = shards;
    options.huge_pages = shards % 4 == 0;
    ChronoCache<int, int, FakeClock> cache(options);
    for (int i = 0; i < 5'000; ++i) ASSERT_TRUE(cache.put(i, i, seconds(1)));
    for (int i = 0; i < 5'000; ++i) ASSERT_EQ(cache.get(i), i);
    EXPECT_EQ(cache.size(), 5'000u);
  }
}

class Counting final : public std::pmr::memory_resource {
 public:
  std::atomic<size_t> calls{0};
  std::atomic<size_t> out{0};

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    ++calls;
    out += bytes;
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* memory, size_t bytes, size_t alignment) override {
    out -= bytes;
    std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }
};
TYPED_TEST(ChronoCacheFlavour, TakesNoMemoryForReservedEntries) {
  Counting memory;
  cache::Options options;
  options.memory = &memory;
  options.reserve_entries = 50'000;
  {
    ChronoCache<uint64_t, int, TypeParam, FakeClock> cache(options);
    // Far apart: 1,024 neighbours are in one segment, so few blocks of them fill segments unevenly.
    const auto key = [](uint64_t i) { return i * cache::kHashFactor; };
    const size_t calls = memory.calls;
    EXPECT_GT(calls, 0u);
    for (uint64_t i = 0; i < 50'000; ++i) ASSERT_TRUE(cache.put(key(i), 1, seconds(60)));
    EXPECT_EQ(memory.calls, calls);
    for (uint64_t i = 50'000; i < 300'000; ++i) {
      ASSERT_TRUE(cache.erase(key(i - 50'000)));
      ASSERT_TRUE(cache.put(key(i), 1, seconds(60 + i % 100)));
    }
    EXPECT_EQ(memory.calls, calls) << "while entries came and went";
    EXPECT_EQ(cache.size(), 50'000u);
  }
  EXPECT_EQ(memory.out, 0u);
}

TYPED_TEST(ChronoCacheFlavour, LivesInAMonotonicResource) {
  std::pmr::monotonic_buffer_resource memory;
  cache::Options options;
  options.memory = &memory;
  options.shards = 2;
  ChronoCache<std::string, std::string, TypeParam, FakeClock> cache(options);
  for (int i = 0; i < 5'000; ++i) cache.put(std::to_string(i), "value", seconds(1));
  EXPECT_EQ(cache.get("4999"), "value");
}

TEST(ChronoCacheClocks, BackgroundTickEndsWithItsCache) {
  for (int i = 0; i < 50; ++i) {
    ChronoCache<int, int, cache::BackgroundTick> cache;
    cache.put(1, 1, hours(1));
    EXPECT_TRUE(cache.contains(1));
  }
}

TEST(ChronoCacheClocks, CachedTickStandsStillUntilItIsTold) {
  ChronoCache<int, int, OneThread, cache::CachedTick> cache;
  cache.put(1, 1, nanoseconds(1));
  const uint64_t start = now_ns();
  while (now_ns() < start + 3'000'000) {
  }
  EXPECT_TRUE(cache.contains(1));
  cache.tick();
  EXPECT_FALSE(cache.contains(1));
}

}  // namespace
}  // namespace lumen
