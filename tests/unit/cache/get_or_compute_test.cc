// get_or_compute(): one computation for a key, and its result when things go wrong.
#include <lumen/cache/chrono_cache.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lumen {
namespace {

using cache::Concurrent;
using cache::FakeClock;
using cache::OneThread;
using std::chrono::milliseconds;
using std::chrono::seconds;

template <typename T>
class GetOrCompute : public testing::Test {
 protected:
  void SetUp() override { FakeClock::set_ns(FakeClock::kStartNs); }
  ChronoCache<int, std::string, T, FakeClock> cache_;
};
using Flavours = testing::Types<OneThread, Concurrent>;
TYPED_TEST_SUITE(GetOrCompute, Flavours);

TYPED_TEST(GetOrCompute, ComputesOnceUntilTheValueEnds) {
  int computed = 0;
  const auto compute = [&] { return std::to_string(++computed); };
  EXPECT_EQ(this->cache_.get_or_compute(7, seconds(1), compute), "1");
  EXPECT_EQ(this->cache_.get_or_compute(7, seconds(1), compute), "1");
  FakeClock::advance_ns(1'000'000'000);
  EXPECT_EQ(this->cache_.get_or_compute(7, seconds(1), compute), "2");
}

TYPED_TEST(GetOrCompute, StoresNothingWhenComputeThrows) {
  EXPECT_THROW(static_cast<void>(this->cache_.get_or_compute(
                   7, seconds(1), []() -> std::string { throw std::runtime_error("no"); })),
               std::runtime_error);
  EXPECT_FALSE(this->cache_.contains(7));
  EXPECT_EQ(this->cache_.get_or_compute(7, seconds(1), [] { return "yes"; }), "yes");
}

struct WeighsLength {
  size_t operator()(int, const std::string& value) const noexcept { return value.size(); }
};
// The refused value is the latest, so the computed one, which is older, is not stored.
TEST(GetOrComputeOfABoundedCache, APutThatIsRefusedMeanwhileKeepsTheComputedValueOut) {
  cache::Options options;
  options.max_weight = 1'000;
  options.shards = 1;
  ChronoCache<int, std::string, FakeClock, cache::Lru, cache::WeighWith<WeighsLength>> cache(
      options);
  const std::string value = cache.get_or_compute(7, seconds(1), [&] {
    EXPECT_FALSE(cache.put(7, std::string(1'001, 'v'), seconds(1)));
    return std::string("older");
  });
  EXPECT_EQ(value, "older");
  EXPECT_FALSE(cache.contains(7));
}

TYPED_TEST(GetOrCompute, MayAskForAnotherKeyMeanwhile) {
  const std::string value = this->cache_.get_or_compute(1, seconds(1), [&] {
    return "1 of " + this->cache_.get_or_compute(2, seconds(1), [] { return "2"; });
  });
  EXPECT_EQ(value, "1 of 2");
  EXPECT_EQ(this->cache_.get(1), "1 of 2");
  EXPECT_EQ(this->cache_.get(2), "2");
}

TYPED_TEST(GetOrCompute, ReturnsAValueThatHasOutlivedItsTimeButDoesNotKeepIt) {
  const auto slow = [] {
    FakeClock::advance_ns(5'000'000'000);
    return "late";
  };
  // The time to live begins when the value is there.
  EXPECT_EQ(this->cache_.get_or_compute(1, seconds(1), slow), "late");
  EXPECT_TRUE(this->cache_.contains(1));
  FakeClock::advance_ns(1'000'000'000);
  EXPECT_FALSE(this->cache_.contains(1));
}

// Was: a Concurrent cache waited for itself, since put() without a time to live erases.
TYPED_TEST(GetOrCompute, ComputesWithoutStoringWhenThereIsNoTimeToLive) {
  EXPECT_EQ(this->cache_.get_or_compute(1, seconds(0), [] { return "a"; }), "a");
  EXPECT_EQ(this->cache_.get_or_compute(1, seconds(-1), [] { return "b"; }), "b");
  EXPECT_FALSE(this->cache_.contains(1));
  EXPECT_EQ(this->cache_.size(), 0u);
}

TYPED_TEST(GetOrCompute, LeavesAValueThatWasPutMeanwhile) {
  const std::string value = this->cache_.get_or_compute(1, seconds(1), [&] {
    this->cache_.put(1, "put", seconds(1));
    return "computed";
  });
  EXPECT_EQ(value, "computed");
  EXPECT_EQ(this->cache_.get(1), "put");
}

// Runs a function while it is copied: in the middle of the cache's own work.
struct TellsOfCopies {
  explicit TellsOfCopies(int its_number) : number(its_number) {}
  TellsOfCopies(const TellsOfCopies& other) : number(other.number) {
    if (on_copy != nullptr) std::exchange(on_copy, nullptr)();
  }
  TellsOfCopies(TellsOfCopies&& other) noexcept : number(other.number) {}
  TellsOfCopies& operator=(const TellsOfCopies&) = default;
  TellsOfCopies& operator=(TellsOfCopies&&) noexcept = default;
  int number;
  static inline void (*on_copy)() = nullptr;
};

// Was: a put() between the look whether there was one and the store was overwritten.
TEST(ConcurrentGetOrCompute, LeavesAValueThatWasPutAtTheLastMoment) {
  static ChronoCache<int, TellsOfCopies, FakeClock> cache;
  const TellsOfCopies value = cache.get_or_compute(1, seconds(1), [] {
    TellsOfCopies::on_copy = [] { cache.put(1, TellsOfCopies(5), seconds(1)); };
    return TellsOfCopies(9);
  });
  EXPECT_EQ(value.number, 9);
  EXPECT_EQ(cache.get(1)->number, 5);
}

using Shared = ChronoCache<int, int, FakeClock>;

TEST(ConcurrentGetOrCompute, RefusesToAskForTheKeyThatItComputes) {
  Shared cache;
  const auto compute = [&] { return cache.get_or_compute(1, seconds(1), [] { return 1; }); };
  EXPECT_THROW(static_cast<void>(cache.get_or_compute(1, seconds(1), compute)), std::logic_error);
  EXPECT_FALSE(cache.contains(1));
  EXPECT_EQ(cache.get_or_compute(1, seconds(1), [] { return 2; }), 2);
}

// The threads that take part are all inside their computations before any asks for the next key.
TEST(ConcurrentGetOrCompute, CrossedComputationsDoNotWaitForEachOtherForEver) {
  for (int round = 0; round < 100; ++round) {
    for (const int threads : {2, 3}) {
      Shared cache;
      std::latch all_compute(threads);
      std::vector<int> got(static_cast<size_t>(threads));
      std::vector<std::thread> circle;
      circle.reserve(static_cast<size_t>(threads));
      for (int i = 0; i < threads; ++i) {
        circle.emplace_back([&, i] {
          got[static_cast<size_t>(i)] = cache.get_or_compute(i, seconds(1), [&] {
            all_compute.arrive_and_wait();
            const int next = (i + 1) % threads;
            return cache.get_or_compute(next, seconds(1), [] { return 7; });
          });
        });
      }
      for (std::thread& thread : circle) thread.join();
      ASSERT_EQ(got, std::vector<int>(static_cast<size_t>(threads), 7));
      for (int i = 0; i < threads; ++i) ASSERT_EQ(cache.get(i), 7);
    }
  }
}

TEST(ConcurrentGetOrCompute, ComputationsCrossedBetweenTwoCachesDoNotWaitForEver) {
  Shared one;
  ChronoCache<std::string, int, FakeClock> other;
  std::latch both_compute(2);
  std::array<int, 2> got{};
  std::thread first([&] {
    got[0] = one.get_or_compute(1, seconds(1), [&] {
      both_compute.arrive_and_wait();
      return other.get_or_compute("a", seconds(1), [] { return 8; });
    });
  });
  std::thread second([&] {
    got[1] = other.get_or_compute("a", seconds(1), [&] {
      both_compute.arrive_and_wait();
      return one.get_or_compute(1, seconds(1), [] { return 8; });
    });
  });
  first.join();
  second.join();
  EXPECT_EQ(got, (std::array{8, 8}));
}

// No value exists: each of two keys is made of the other one. Both callers are told, and nothing is
// left behind.
TEST(ConcurrentGetOrCompute, KeysThatAreMadeOfEachOtherAreAnErrorInEveryThread) {
  for (int round = 0; round < 100; ++round) {
    Shared cache;
    std::latch both_ask(2);
    std::atomic<int> refused{0};
    std::function<int(int)> of = [&](int key) {
      return cache.get_or_compute(key, seconds(1), [&, key] { return of(1 - key); });
    };
    std::array<std::thread, 2> threads;
    for (int key = 0; key < 2; ++key) {
      threads[static_cast<size_t>(key)] = std::thread([&, key] {
        both_ask.arrive_and_wait();
        try {
          static_cast<void>(of(key));
        } catch (const std::logic_error&) {
          ++refused;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(refused.load(), 2);
    ASSERT_EQ(cache.get_or_compute(0, seconds(1), [] { return 3; }), 3);
  }
}

// The thread that closes the circle computes beside the flight of the other thread: one key has two
// flights.
TEST(ConcurrentGetOrCompute, EraseIsForAllFlightsOfAKeyThatACircleHasDoubled) {
  Shared cache;
  std::latch both_compute(2);
  std::latch computes_beside(1);
  std::latch erased(1);
  std::array<std::thread, 2> threads;
  for (int key = 0; key < 2; ++key) {
    threads[static_cast<size_t>(key)] = std::thread([&, key] {
      const auto inner = [&] {
        computes_beside.count_down();
        erased.wait();
        return 9;
      };
      EXPECT_EQ(cache.get_or_compute(key, seconds(1),
                                     [&] {
                                       both_compute.arrive_and_wait();
                                       return cache.get_or_compute(1 - key, seconds(1), inner);
                                     }),
                9);
    });
  }
  computes_beside.wait();
  for (int key = 0; key < 2; ++key) EXPECT_FALSE(cache.erase(key));
  erased.count_down();
  for (std::thread& thread : threads) thread.join();
  for (int key = 0; key < 2; ++key) EXPECT_FALSE(cache.contains(key)) << key;
}

TEST(OneThreadGetOrCompute, AsksForTheKeyThatItComputesAsOfAnyOther) {
  ChronoCache<int, int, OneThread, FakeClock> cache;
  const auto inner = [&] { return cache.get_or_compute(1, seconds(1), [] { return 1; }) + 1; };
  EXPECT_EQ(cache.get_or_compute(1, seconds(1), inner), 2);
  EXPECT_EQ(cache.get(1), 1) << "what was there first stays";
}

TEST(ConcurrentGetOrCompute, StoresNothingThatWasErasedMeanwhile) {
  Shared cache;
  EXPECT_EQ(cache.get_or_compute(1, seconds(1),
                                 [&] {
                                   EXPECT_FALSE(cache.erase(1));
                                   return 3;
                                 }),
            3);
  EXPECT_FALSE(cache.contains(1));
  EXPECT_EQ(cache.get_or_compute(1, seconds(1),
                                 [&] {
                                   cache.clear();
                                   return 4;
                                 }),
            4);
  EXPECT_FALSE(cache.contains(1));
  EXPECT_EQ(cache.get_or_compute(1, seconds(1),
                                 [&] {
                                   EXPECT_EQ(cache.take(1), std::nullopt);
                                   EXPECT_FALSE(cache.erase(2));  // another key
                                   return 5;
                                 }),
            5);
  EXPECT_FALSE(cache.contains(1));
}

// The leader computes until the others must be at it; nobody can tell that they wait already, so
// all that is asserted holds whether they do or come later.
TEST(ConcurrentGetOrCompute, ComputesOnceForAllThatAskAtOnce) {
  for (int round = 0; round < 200; ++round) {
    Shared cache;
    std::latch all_there(4);
    std::atomic<int> computed{0};
    std::array<int, 4> got{};
    std::vector<std::thread> threads;
    threads.reserve(got.size());
    for (size_t i = 0; i < got.size(); ++i) {
      threads.emplace_back([&, i] {
        all_there.arrive_and_wait();
        got[i] = cache.get_or_compute(1, seconds(1), [&] { return 10 + computed.fetch_add(1); });
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(computed.load(), 1);
    for (const int value : got) ASSERT_EQ(value, 10);
  }
}

// A value whose copy out of the cache would tell: a call that waits gets the leader's, though it
// was never stored.
TEST(ConcurrentGetOrCompute, LetsOneThatWaitsTakeOverFromALeaderThatFails) {
  for (int round = 0; round < 200; ++round) {
    Shared cache;
    std::latch leader_is_in(1);
    std::latch follower_asks(1);
    std::atomic<int> threw{0};
    std::thread leader([&] {
      try {
        static_cast<void>(cache.get_or_compute(1, seconds(1), [&]() -> int {
          leader_is_in.count_down();
          follower_asks.wait();
          throw std::runtime_error("failed");
        }));
      } catch (const std::runtime_error&) {
        ++threw;
      }
    });
    leader_is_in.wait();
    std::array<int, 2> got{};
    std::atomic<int> computed{0};
    std::array<std::thread, 2> followers;
    for (size_t i = 0; i < followers.size(); ++i) {
      followers[i] = std::thread([&, i] {
        if (i == 0) follower_asks.count_down();
        got[i] = cache.get_or_compute(1, seconds(1), [&] { return 20 + computed.fetch_add(1); });
      });
    }
    leader.join();
    for (std::thread& follower : followers) follower.join();
    ASSERT_EQ(threw.load(), 1) << "the exception belongs to who called compute()";
    ASSERT_EQ(computed.load(), 1);
    ASSERT_EQ(got, (std::array{20, 20}));
  }
}

TEST(ConcurrentGetOrCompute, DoesNotHoldUpOtherKeysNorPutsWhileItComputes) {
  Shared cache;
  std::latch in(1);
  std::latch go(1);
  std::thread leader([&] {
    EXPECT_EQ(cache.get_or_compute(1, seconds(1),
                                   [&] {
                                     in.count_down();
                                     go.wait();
                                     return 1;
                                   }),
              1);
  });
  in.wait();
  EXPECT_EQ(cache.get_or_compute(2, seconds(1), [] { return 2; }), 2);
  EXPECT_TRUE(cache.put(3, 3, seconds(1)));
  EXPECT_TRUE(cache.put(1, 7, seconds(1)));
  EXPECT_EQ(cache.get_or_compute(1, seconds(1), [] { return 8; }), 7) << "it is there: no wait";
  go.count_down();
  leader.join();
  EXPECT_EQ(cache.get(1), 7);
}

// The leader's result is given to those that wait, for any fate of it in the cache.
TEST(ConcurrentGetOrCompute, GivesWaitingCallsTheComputedValueThoughItWasErased) {
  Shared cache;
  std::latch in(1);
  std::latch go(1);
  std::atomic<int> computed{0};
  const auto compute = [&] {
    in.count_down();
    go.wait();
    return 30 + computed.fetch_add(1);
  };
  std::thread leader([&] { EXPECT_EQ(cache.get_or_compute(1, seconds(1), compute), 30); });
  in.wait();
  std::atomic<int> got{0};
  std::thread follower([&] {
    got = cache.get_or_compute(1, seconds(1), [&] { return 30 + computed.fetch_add(1); });
  });
  cache.erase(1);
  go.count_down();
  leader.join();
  follower.join();
  // It waited, or came when the leader was done and nothing was stored.
  EXPECT_TRUE(got == 30 || got == 31) << got;
  EXPECT_EQ(got == 31, cache.contains(1)) << "the leader's must not be stored";
}

}  // namespace
}  // namespace lumen
