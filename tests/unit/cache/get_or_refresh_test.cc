// get_or_refresh(): a value that is due is computed anew by one caller, and given to the others
// meanwhile.
#include <lumen/cache/chrono_cache.h>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lumen {
namespace {

using cache::Concurrent;
using cache::FakeClock;
using cache::OneThread;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

template <typename T>
class GetOrRefresh : public testing::Test {
 protected:
  void SetUp() override { FakeClock::set_ns(FakeClock::kStartNs); }
  static void pass(std::chrono::nanoseconds time) {
    FakeClock::advance_ns(static_cast<uint64_t>(time.count()));
  }
  // Its answer for key 1, to be computed as `value` if it is.
  std::string ask(const std::string& value) {
    return cache_.get_or_refresh(1, seconds(10), seconds(4), [&] { return value; });
  }
  ChronoCache<int, std::string, T, FakeClock> cache_;
};
using Flavours = testing::Types<OneThread, Concurrent>;
TYPED_TEST_SUITE(GetOrRefresh, Flavours);

TYPED_TEST(GetOrRefresh, ComputesAgainWhereTheValueIsAsOldAsItMayBe) {
  EXPECT_EQ(this->ask("a"), "a");
  this->pass(milliseconds(3'900));
  EXPECT_EQ(this->ask("b"), "a");
  this->pass(milliseconds(100));
  EXPECT_EQ(this->ask("c"), "c");
  // It lives for the whole time to live from there.
  this->pass(milliseconds(9'900));
  EXPECT_EQ(this->cache_.get(1), "c");
  this->pass(milliseconds(100));
  EXPECT_FALSE(this->cache_.contains(1));
  EXPECT_EQ(this->ask("d"), "d");
}

TYPED_TEST(GetOrRefresh, KeepsTheValueWhereComputeThrows) {
  EXPECT_EQ(this->ask("a"), "a");
  this->pass(seconds(5));
  const auto fail = []() -> std::string { throw std::runtime_error("no"); };
  EXPECT_THROW(static_cast<void>(this->cache_.get_or_refresh(1, seconds(10), seconds(4), fail)),
               std::runtime_error);
  EXPECT_EQ(this->cache_.get(1), "a");
  EXPECT_EQ(this->ask("b"), "b");
}

TYPED_TEST(GetOrRefresh, ComputesEachTimeWhereNothingStaysFresh) {
  const auto ask = [&](const char* value) {
    return this->cache_.get_or_refresh(1, seconds(10), seconds(0), [&] { return value; });
  };
  EXPECT_EQ(ask("a"), "a");
  EXPECT_EQ(ask("b"), "b");
}

TYPED_TEST(GetOrRefresh, IsGetOrComputeWhereAValueStaysFreshForItsLife) {
  for (const auto fresh : {hours(1), hours::max()}) {
    this->cache_.clear();
    const auto ask = [&](const char* value) {
      return this->cache_.get_or_refresh(1, seconds(10), fresh, [&] { return value; });
    };
    EXPECT_EQ(ask("a"), "a");
    this->pass(milliseconds(9'900));
    EXPECT_EQ(ask("b"), "a");
    this->pass(milliseconds(100));
    EXPECT_EQ(ask("c"), "c");
  }
}

TYPED_TEST(GetOrRefresh, NeverRefreshesAValueThatNeverEnds) {
  this->cache_.put(1, "for ever", hours::max());
  this->pass(hours(24 * 365));
  EXPECT_EQ(this->ask("b"), "for ever");
}

TYPED_TEST(GetOrRefresh, LeavesAValueThatWasPutMeanwhile) {
  for (const bool was_there : {false, true}) {
    this->cache_.clear();
    if (was_there) {
      EXPECT_EQ(this->ask("a"), "a");
      this->pass(seconds(5));
    }
    // The same deadline as the value before had: it does not tell them apart.
    const auto value = this->cache_.get_or_refresh(1, seconds(10), seconds(4), [&] {
      EXPECT_TRUE(this->cache_.put(1, "put", seconds(5)));
      return "computed";
    });
    EXPECT_EQ(value, "computed");
    EXPECT_EQ(this->cache_.get(1), "put");
  }
}

TYPED_TEST(GetOrRefresh, StoresNothingWhereTheKeyIsErasedMeanwhile) {
  for (const bool clears : {false, true}) {
    EXPECT_EQ(this->ask("a"), "a");
    this->pass(seconds(5));
    const auto value = this->cache_.get_or_refresh(1, seconds(10), seconds(4), [&] {
      clears ? this->cache_.clear() : static_cast<void>(this->cache_.erase(1));
      return "computed";
    });
    EXPECT_EQ(value, "computed");
    EXPECT_FALSE(this->cache_.contains(1));
  }
}

// Was: a OneThread cache stored it.
TYPED_TEST(GetOrRefresh, GetOrComputeStoresNothingEitherWhereComputeErasesItsKey) {
  const auto value = this->cache_.get_or_compute(1, seconds(10), [&] {
    this->cache_.erase(1);
    return "computed";
  });
  EXPECT_EQ(value, "computed");
  EXPECT_FALSE(this->cache_.contains(1));
}

// Asks try_put() for another key while a computed value is stored: under the locks of the flights
// and of its shard. Was: it waited for the flights.
struct TriesToPut {
  void operator()(int, const int&, cache::Removal) const noexcept {
    if (on_removal != nullptr) on_removal();
  }
  static inline void (*on_removal)() = nullptr;
};
TEST(ConcurrentGetOrRefresh, LetsTryPutGoOnWhileAComputedValueIsStored) {
  FakeClock::set_ns(FakeClock::kStartNs);
  static ChronoCache<int, int, FakeClock, cache::OnRemoval<TriesToPut>> cache;
  static std::atomic<int> stored;
  stored.store(-1);
  cache.put(1, 1, seconds(10));
  FakeClock::advance_ns(5'000'000'000);
  TriesToPut::on_removal = [] {
    std::thread other([] { stored.store(cache.try_put(1, 3, seconds(10)) ? 1 : 0); });
    other.join();
  };
  EXPECT_EQ(cache.get_or_refresh(1, seconds(10), seconds(4), [] { return 2; }), 2);
  TriesToPut::on_removal = nullptr;
  EXPECT_EQ(stored.load(), 0);
  EXPECT_EQ(cache.get(1), 2);
}

TEST(ConcurrentGetOrRefresh, GivesTheValueBeforeToTheOthersWhileOneComputes) {
  FakeClock::set_ns(FakeClock::kStartNs);
  ChronoCache<int, int, FakeClock> cache;
  constexpr int kOthers = 4;
  std::atomic<int> computed{0};
  std::atomic<int> answered{0};
  const auto first = [&] { return 1; };
  EXPECT_EQ(cache.get_or_refresh(1, seconds(10), seconds(4), first), 1);
  FakeClock::advance_ns(5'000'000'000);
  // It ends only when all others have their answers.
  const auto slow = [&] {
    computed.fetch_add(1);
    computed.notify_all();
    for (int seen = answered.load(); seen < kOthers; seen = answered.load()) answered.wait(seen);
    return 2;
  };
  std::thread leader([&] { EXPECT_EQ(cache.get_or_refresh(1, seconds(10), seconds(4), slow), 2); });
  computed.wait(0);
  std::vector<std::thread> others;
  others.reserve(kOthers);
  for (int i = 0; i < kOthers; ++i) {
    others.emplace_back([&] {
      EXPECT_EQ(cache.get_or_refresh(1, seconds(10), seconds(4), slow), 1);
      answered.fetch_add(1);
      answered.notify_all();
    });
  }
  for (std::thread& other : others) other.join();
  leader.join();
  EXPECT_EQ(computed.load(), 1);
  EXPECT_EQ(cache.get(1), 2);
}

}  // namespace
}  // namespace lumen
