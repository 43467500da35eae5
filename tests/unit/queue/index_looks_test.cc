// When a side of a SpscQueue waits before it looks at the other side's index.
#include <lumen/queue/index_looks.h>

#include <lumen/base/clock.h>
#include <lumen/queue/spsc_queue.h>

#include <gtest/gtest.h>

#include <algorithm>

namespace lumen {
namespace {

constexpr size_t kSlots = 1024;

TEST(IndexLooks, WaitsAfterARunButNotAfterASingleItemNorAfterALongRun) {
  const CoreDistance distance(100);
  for (const size_t run : {0u, 1u, 2u, 7u})
    EXPECT_EQ(IndexLooks::wait_ns(distance, run, kSlots), 0u);
  for (const size_t run : {8u, 100u, 256u}) {
    EXPECT_EQ(IndexLooks::wait_ns(distance, run, kSlots), 8 * 100u) << run;
  }
  for (const size_t run : {257u, 1024u}) {
    EXPECT_EQ(IndexLooks::wait_ns(distance, run, kSlots), 0u) << run;
  }
  EXPECT_EQ(IndexLooks::wait_ns(distance, kLongestBurst + 1, 1u << 20), 0u);
}

TEST(IndexLooks, WaitsLongerWhereCoresAreFarAndNeverLongerThanTheBound) {
  const uint64_t near_ns = IndexLooks::wait_ns(CoreDistance(40), 64, kSlots);
  EXPECT_GE(IndexLooks::wait_ns(CoreDistance(300), 64, kSlots), 3 * near_ns);
  EXPECT_LE(IndexLooks::wait_ns(CoreDistance(1'000), 64, kSlots), kMostWaitNs);
  // A sample that the core took too early must not shorten the wait.
  EXPECT_EQ(IndexLooks::wait_ns(CoreDistance(8), 64, kSlots), near_ns);
}

TEST(IndexLooks, WaitsForAShorterTimeInASmallRingAndInTheSmallestNotAtAll) {
  const CoreDistance distance(100);
  EXPECT_EQ(IndexLooks::wait_ns(distance, 8, 512), 8 * 100u);
  EXPECT_EQ(IndexLooks::wait_ns(distance, 8, 256), 4 * 100u);
  for (const size_t slots : {1u, 2u, 8u, 128u}) {
    for (size_t run = 0; run <= slots; ++run) {
      EXPECT_EQ(IndexLooks::wait_ns(distance, run, slots), 0u) << run << " of " << slots;
    }
  }
}

// A look that finds something is the last. After a run, one that finds nothing is followed by
// another.
TEST(IndexLooks, LooksOnceMoreWhenARunEndsAndOnlyThen) {
  IndexLooks looks;
  int count = 0;
  const auto finds_nothing = [&] { return ++count, false; };
  EXPECT_TRUE(looks.look_again(100, kSlots, [&] { return ++count, true; }));
  EXPECT_EQ(count, 1);
  EXPECT_FALSE(looks.look_again(200, kSlots, finds_nothing));
  EXPECT_EQ(count, 3);
  EXPECT_FALSE(looks.look_again(200, kSlots, finds_nothing));
  EXPECT_EQ(count, 4);
}

// Was: only a look after a failed one was timed. A stream whose looks find something all the time
// would have kept the distance of its first minute after its cores had been moved apart.
TEST(IndexLooks, LearnTheDistanceFromLooksThatFindSomething) {
  IndexLooks looks;
  const uint64_t before_ns = looks.distance().transfer_ns();
  size_t position = 0;
  for (int i = 0; i < 4'000; ++i) {
    position += 64;
    EXPECT_TRUE(looks.look_again(position, kSlots, [] {
      for (const uint64_t start_ns = now_ns(); now_ns() - start_ns < 700;) continue;
      return true;
    }));
  }
  EXPECT_GE(looks.distance().transfer_ns(), std::max<uint64_t>(300, before_ns / 2));
}

// Its line may lie beyond the end of the ring, where it begins anew, or beyond the last item.
TEST(FetchAhead, ItemsOfEverySizeComeThroughRingsOfEverySize) {
  struct Large {
    uint64_t value = 0;
    char more[192] = {};
  };
  const auto run = [](auto item, size_t slots) {
    using Item = decltype(item);
    SpscQueue<Item> queue(slots);
    auto producer = queue.producer();
    auto consumer = queue.consumer();
    uint64_t in = 0, out = 0;
    for (size_t burst = 1; burst <= 2 * slots + 1; ++burst) {
      for (size_t i = 0; i < burst; ++i) {
        Item next{};
        next.value = in;
        if (producer.try_push(std::move(next))) ++in;
      }
      for (Item got{}; consumer.try_pop(got); ++out) ASSERT_EQ(got.value, out);
      ASSERT_EQ(in, out);
    }
  };
  struct Three {
    uint64_t value = 0;
    uint64_t more[2] = {};
  };
  for (const size_t slots : {1u, 2u, 16u, 64u, 256u}) {
    run(Three{}, slots);
    run(Large{}, slots);
  }
}

}  // namespace
}  // namespace lumen
