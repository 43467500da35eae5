// IdleStrategy: the spin bound as a function of gaps and wake cost; parking, deadlines, crowding.
#include <lumen/base/idle_strategy.h>

#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <optional>
#include <thread>
#include <vector>

namespace lumen {
namespace {

constexpr uint64_t kMaxNs = 500'000;

SpinBudget budget_after(uint64_t gap_ns, int times) {
  SpinBudget budget(kMaxNs);
  for (int i = 0; i < times; ++i) budget.arrived_after(gap_ns);
  return budget;
}

TEST(SpinBudget, SpinsAsLongAsAWakeUpCostsBeforeItKnowsAnything) {
  EXPECT_EQ(SpinBudget(kMaxNs).spin_ns(20'000), 20'000u);
  EXPECT_EQ(SpinBudget(kMaxNs).spin_ns(2'000), 2'000u);
}

TEST(SpinBudget, SpinsTwiceTheMeanGapWhileWorkKeepsArriving) {
  const SpinBudget budget = budget_after(100'000, 200);
  EXPECT_NEAR(static_cast<double>(budget.spin_ns(20'000)), 200'000, 200);
}

TEST(SpinBudget, NeverSpinsLongerThanItsBound) {
  EXPECT_EQ(budget_after(400'000, 200).spin_ns(20'000), kMaxNs);
}

TEST(SpinBudget, GivesUpSpinningWhenGapsAreLong) {
  EXPECT_EQ(budget_after(5'000'000, 200).spin_ns(20'000), SpinBudget::kShortSpinNs);
}

TEST(SpinBudget, ComesBackAfterALongPauseWithinAFewShortGaps) {
  SpinBudget budget = budget_after(50'000, 200);
  budget.arrived_after(3'600'000'000'000);
  int gaps = 0;
  for (; gaps < 100 && budget.mean_gap_ns() > kMaxNs; ++gaps) budget.arrived_after(50'000);
  EXPECT_LE(gaps, 8);
}

TEST(SpinBudget, ZeroMeansNeverSpin) { EXPECT_EQ(SpinBudget(0).spin_ns(20'000), 0u); }

TEST(IdleStrategy, ParksWithinItsBoundWhenNothingComes) {
  IdleStrategy idle(kMaxNs);
  int looks = 0;
  while (idle.idle() != IdleStrategy::Step::kPark) ++looks;
  EXPECT_LT(looks, 100'000);
  // More often than there are looks between two reads of the clock: it once said "spin" again there.
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(idle.idle(), IdleStrategy::Step::kPark) << "it has had its spin until work comes";
  }
}

TEST(IdleStrategy, AStrategyWithoutSpinParksAtOnce) {
  IdleStrategy idle(0);
  EXPECT_EQ(idle.idle(), IdleStrategy::Step::kPark);
}

TEST(IdleStrategy, DoesNotSpinWhereMoreThreadsAreAwakeThanThereAreCores) {
  const uint32_t others = spinning_cpus();
  std::atomic<uint32_t> awake{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < others; ++i) {
    threads.emplace_back([&] {
      IdleStrategy idle;
      static_cast<void>(idle.idle());
      awake.fetch_add(1);
      while (!stop.load()) std::this_thread::yield();
    });
  }
  while (awake.load() != others) std::this_thread::yield();
  IdleStrategy idle;
  IdleStrategy::Step step = idle.idle();
  for (; step != IdleStrategy::Step::kPark; step = idle.idle()) {
    EXPECT_EQ(step, IdleStrategy::Step::kYield) << "it gives the core away at each look";
  }
  EXPECT_TRUE(machine_is_crowded(now_ns()));
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
}

// How often it yields before it parks, after a time in which work came every 100 us or so; nothing where
// somebody else had this core meanwhile.
std::optional<int> yields_of_a_spin_alone() {
  constexpr uint64_t kNobodyRanNs = 1'500;
  IdleStrategy idle(kMaxNs);
  for (int i = 0; i < 20; ++i) {
    static_cast<void>(idle.idle());
    for (const uint64_t until_ns = now_ns() + 100'000; now_ns() < until_ns;) cpu_pause();
    idle.found();
  }
  if (idle.budget().spin_ns(wake_cost_ns()) < 100'000) return std::nullopt;
  int yields = 0;
  bool alone = true;
  for (uint64_t before = now_ns(); idle.idle() != IdleStrategy::Step::kPark; before = now_ns()) {
    ++yields;
    alone = alone && now_ns() - before < kNobodyRanNs;
  }
  return alone ? std::optional(yields) : std::nullopt;
}

// Was: it parked after 16 yields though nobody had wanted its core, and 6 % of a worker's requests waited
// for a wake-up. Here the threads that count as awake want none.
TEST(IdleStrategy, SpinsOnWhereAwakeThreadsLeaveItsCoreAlone) {
  std::atomic<uint32_t> awake{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  const uint32_t others = spinning_cpus();
  for (uint32_t i = 0; i < others; ++i) {
    threads.emplace_back([&] {
      IdleStrategy::enrol_this_thread();
      awake.fetch_add(1);
      stop.wait(false);
    });
  }
  while (awake.load() != others) std::this_thread::yield();
  EXPECT_TRUE(machine_is_crowded(now_ns()));
  // Other programs may want this core often.
  std::optional<int> yields;
  const uint64_t give_up_ns = now_ns() + 10'000'000'000;
  while (!yields && now_ns() < give_up_ns) yields = yields_of_a_spin_alone();
  stop.store(true);
  stop.notify_all();
  for (std::thread& thread : threads) thread.join();
  if (!yields) GTEST_SKIP() << "for 10 s other programs had this core at every turn";
  EXPECT_GT(*yields, 16);
}

TEST(Await, ReturnsTrueAtOnceWhenTheWorkIsThere) {
  Doorbell bell;
  IdleStrategy idle;
  EXPECT_TRUE(await(bell, idle, 0, [] { return true; }));
  EXPECT_EQ(idle.budget().mean_gap_ns(), 0u) << "a look that finds work costs no clock";
}

TEST(Await, TimesOutAtTheDeadlineNotBefore) {
  Doorbell bell;
  IdleStrategy idle;
  const uint64_t deadline_ns = now_ns() + 2'000'000;
  EXPECT_FALSE(await(bell, idle, deadline_ns, [] { return false; }));
  EXPECT_GE(now_ns(), deadline_ns);
  EXPECT_EQ(bell.waiters_were(), 0u);
}

TEST(Await, SleepsWithoutUsingTheProcessor) {
  Doorbell bell;
  IdleStrategy idle;
  timespec before{};
  timespec after{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  EXPECT_FALSE(await(bell, idle, now_ns() + 300'000'000, [] { return false; }));
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  const int64_t used_ns =
      (after.tv_sec - before.tv_sec) * 1'000'000'000 + after.tv_nsec - before.tv_nsec;
  EXPECT_LT(used_ns, 5'000'000) << "300 ms of waiting";
}

TEST(Await, HandsOverEachOfManyItems) {
  Doorbell bell;
  std::atomic<uint32_t> published{0};
  constexpr uint32_t kItems = 20'000;
  std::thread producer([&] {
    for (uint32_t i = 1; i <= kItems; ++i) {
      published.store(i, std::memory_order_seq_cst);
      bell.ring_published();
    }
  });
  IdleStrategy idle(1'000);
  uint32_t seen = 0;
  while (seen != kItems) {
    ASSERT_TRUE(await(bell, idle, UINT64_MAX,
                      [&] { return published.load(std::memory_order_seq_cst) != seen; }));
    seen = published.load(std::memory_order_seq_cst);
  }
  producer.join();
}

}  // namespace
}  // namespace lumen
