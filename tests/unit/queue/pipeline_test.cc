// ThreadPipeline: order, exactly once, batch limits, back-pressure, waiting classes, draining.
#include <lumen/queue/thread_pipeline.h>

#include <lumen/base/clock.h>

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lumen {
namespace {

// A handler that writes down its items.
struct Note {
  std::vector<int>* seen;
  void operator()(int& item) const noexcept {
    seen->push_back(item);
    item += 100;
  }
};
struct NoteBatches {
  std::vector<std::vector<int>>* batches;
  void operator()(std::span<int> items) const noexcept {
    batches->emplace_back(items.begin(), items.end());
  }
};
struct Nothing {
  void operator()(int&) const noexcept {}
};

template <typename Producer>
bool push(Producer& producer, int value) {
  return producer.try_push(std::move(value));
}

TEST(Pipeline, AStageGetsAnItemOnlyAfterTheStageBefore) {
  std::vector<int> first;
  std::vector<int> second;
  Pipeline<int, Producers::kOne, Stage<Note, 1, 1>, Stage<Note, 1, 1>> pipeline(
      {.capacity = 4}, {{&first}}, {{&second}});
  auto producer = pipeline.producer();
  auto stage_0 = pipeline.runner<0>();
  auto stage_1 = pipeline.runner<1>();
  EXPECT_EQ(stage_0.poll(), 0u);
  ASSERT_TRUE(push(producer, 1) && push(producer, 2));
  EXPECT_EQ(stage_1.poll(), 0u) << "stage 0 has not had it";
  EXPECT_EQ(stage_0.poll(), 1u);
  EXPECT_EQ(stage_1.poll(), 1u);
  EXPECT_EQ(stage_1.poll(), 0u);
  EXPECT_EQ(stage_0.poll(), 1u);
  EXPECT_EQ(stage_1.poll(), 1u);
  EXPECT_EQ(first, (std::vector<int>{1, 2}));
  EXPECT_EQ(second, (std::vector<int>{101, 102})) << "in place, as stage 0 left them";
}

TEST(Pipeline, IsFullUntilTheLastStageIsDone) {
  Pipeline<int, Producers::kOne, Stage<Nothing>, Stage<Nothing, 1, 1>> pipeline({.capacity = 2}, {},
                                                                                {});
  auto producer = pipeline.producer();
  auto stage_0 = pipeline.runner<0>();
  auto stage_1 = pipeline.runner<1>();
  ASSERT_TRUE(push(producer, 1) && push(producer, 2));
  EXPECT_FALSE(push(producer, 3));
  EXPECT_EQ(stage_0.poll(), 2u);
  EXPECT_FALSE(push(producer, 3)) << "only the last stage gives slots back";
  EXPECT_EQ(stage_1.poll(), 1u);
  EXPECT_TRUE(push(producer, 3));
  EXPECT_FALSE(push(producer, 4));
}

TEST(Pipeline, ABatchIsAtMostItsLimitAndASpanEndsWithTheRing) {
  std::vector<std::vector<int>> batches;
  Pipeline<int, Producers::kOne, Stage<NoteBatches, 1, 3>> pipeline({.capacity = 4}, {{&batches}});
  auto producer = pipeline.producer();
  auto stage = pipeline.runner<0>();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(push(producer, i));
  EXPECT_EQ(stage.poll(), 3u);
  for (int i = 4; i < 6; ++i) ASSERT_TRUE(push(producer, i));
  while (stage.poll() != 0) continue;
  EXPECT_EQ(batches, (std::vector<std::vector<int>>{{0, 1, 2}, {3}, {4, 5}}));
}

TEST(Pipeline, PushNPublishesAsManyAsFit) {
  std::vector<int> seen;
  Pipeline<int, Producers::kMany, Stage<Note>> pipeline({.capacity = 4}, {{&seen}});
  auto producer = pipeline.producer();
  std::vector<int> items{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(producer.try_push_n(items), 4u);
  auto stage = pipeline.runner<0>();
  EXPECT_EQ(stage.poll(), 4u);
  EXPECT_EQ(producer.try_push_n(std::span(items).subspan(4)), 2u);
  EXPECT_EQ(stage.poll(), 2u);
  EXPECT_EQ(seen, items);
}

// Two runners of one stage, driven by hand: one holds its item while the other goes on.
struct Held {
  Pipeline<int, Producers::kMany, Stage<Held, 2, 1>, Stage<Note>>** pipeline;
  void operator()(int& item) const noexcept {
    if (item == 0) {  // inside the handler of item 0, the other thread of the stage goes on
      auto other = (*pipeline)->template runner<0>();
      ASSERT_EQ(other.poll(), 1u);
      auto after = (*pipeline)->template runner<1>();
      ASSERT_EQ(after.poll(), 0u) << "item 1 is done, but item 0 is held";
      auto producer = (*pipeline)->producer();
      ASSERT_TRUE(producer.try_push(2));
      ASSERT_FALSE(producer.try_push(3)) << "full until the held item goes on";
    }
  }
};

TEST(Pipeline, AThreadHeldInAHandlerHoldsItsItemAndNotItsStage) {
  using Kind = Pipeline<int, Producers::kMany, Stage<Held, 2, 1>, Stage<Note>>;
  std::vector<int> seen;
  Kind* self = nullptr;
  Kind pipeline({.capacity = 4}, {{&self}}, {{&seen}});
  self = &pipeline;
  auto producer = pipeline.producer();
  ASSERT_TRUE(push(producer, 0) && push(producer, 1) && push(producer, 9));
  auto stage_0 = pipeline.runner<0>();
  EXPECT_EQ(stage_0.poll(), 1u);
  while (stage_0.poll() != 0) continue;
  auto stage_1 = pipeline.runner<1>();
  while (stage_1.poll() != 0) continue;
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 9, 2})) << "order is kept all the same";
}

TEST(Pipeline, DestroysItemsThatNeverPassed) {
  struct Ignore {
    void operator()(std::shared_ptr<int>&) const noexcept {}
  };
  auto item = std::make_shared<int>(1);
  {
    Pipeline<std::shared_ptr<int>, Producers::kOne, Stage<Ignore, 1, 1>, Stage<Ignore, 1, 1>>
        pipeline({.capacity = 4}, {}, {});
    auto producer = pipeline.producer();
    auto stage_0 = pipeline.runner<0>();
    auto stage_1 = pipeline.runner<1>();
    for (int i = 0; i < 7; ++i) {
      ASSERT_TRUE(producer.try_push(std::shared_ptr<int>(item)));
      if (i < 4) {
        stage_0.poll();
        stage_1.poll();
        EXPECT_EQ(item.use_count(), 1) << "the last stage's slot is empty";
      }
    }
    EXPECT_EQ(item.use_count(), 4);
  }
  EXPECT_EQ(item.use_count(), 1);
}

TEST(Pipeline, AClosedOneRefusesAndFinishesStageByStage) {
  Pipeline<int, Producers::kOne, Stage<Nothing>, Stage<Nothing>> pipeline({.capacity = 4}, {}, {});
  auto producer = pipeline.producer();
  auto stage_0 = pipeline.runner<0>();
  auto stage_1 = pipeline.runner<1>();
  ASSERT_TRUE(push(producer, 1));
  pipeline.close();
  EXPECT_FALSE(push(producer, 2));
  EXPECT_EQ(producer.push(2), QueueOutcome::kClosed);
  EXPECT_FALSE(stage_0.finished());
  stage_0.poll();
  EXPECT_TRUE(stage_0.finished());
  EXPECT_FALSE(stage_1.finished());
  stage_1.poll();
  EXPECT_TRUE(stage_1.finished());
}

TEST(PipelineDeathTest, ASecondSingleProducerIsOurOwnBug) {
  Pipeline<int, Producers::kOne, Stage<Nothing>> pipeline({.capacity = 4}, {});
  auto producer = pipeline.producer();
  EXPECT_DEATH(static_cast<void>(pipeline.producer()), "producer_taken_");
}

TEST(ThreadPipeline, DrainsAllThatWasAccepted) {
  struct Count {
    std::atomic<int>* count;
    void operator()(int& item) const noexcept {
      count->fetch_add(item, std::memory_order_relaxed);  // relaxed: joined before it is read
    }
  };
  std::atomic<int> counts[3] = {};
  constexpr int kItems = 10'000;
  {
    ThreadPipeline<int, Producers::kOne, Stage<Count>, Stage<Count, 3, 4>, Stage<Count, 1, 1>>
        pipeline({.capacity = 64}, {{&counts[0]}}, {{&counts[1]}}, {{&counts[2]}});
    auto producer = pipeline.producer();
    for (int i = 0; i < kItems; ++i) ASSERT_EQ(producer.push(1), QueueOutcome::kOk);
    pipeline.drain();
    for (const auto& count : counts) EXPECT_EQ(count.load(), kItems);
    EXPECT_EQ(producer.push(1), QueueOutcome::kClosed);
  }
}

TEST(ThreadPipeline, PushTimesOutWhenTheLastStageIsHeld) {
  struct Gate {
    std::atomic<bool>* open;
    void operator()(int&) const noexcept {
      while (!open->load()) std::this_thread::yield();
    }
  };
  std::atomic<bool> open{false};
  ThreadPipeline<int, Producers::kOne, Stage<Gate, 1, 1>> pipeline({.capacity = 2}, {{&open}});
  auto producer = pipeline.producer();
  ASSERT_EQ(producer.push(1), QueueOutcome::kOk);
  ASSERT_EQ(producer.push(2), QueueOutcome::kOk);
  const uint64_t deadline_ns = now_ns() + 2'000'000;
  EXPECT_EQ(producer.push(3, deadline_ns), QueueOutcome::kTimedOut);
  EXPECT_GE(now_ns(), deadline_ns);
  open.store(true);
  EXPECT_EQ(producer.push(3), QueueOutcome::kOk);
}

// A predecessor that takes longer than any spin: the stage after it parks, and is woken for each.
TEST(ThreadPipeline, AStageBehindASlowOneParksAndIsWoken) {
  struct Slow {
    Pipeline<int, Producers::kOne, Stage<Slow, 1, 1>, Stage<Nothing>>** core;
    void operator()(int&) const noexcept {
      while (!(*core)->was_lagging(1)) std::this_thread::yield();
    }
  };
  using Kind = ThreadPipeline<int, Producers::kOne, Stage<Slow, 1, 1>, Stage<Nothing>>;
  Kind::Core* core = nullptr;
  Kind pipeline({.capacity = 8, .max_spin_ns = 20'000}, {{&core}}, {});
  core = &pipeline.core();
  auto producer = pipeline.producer();
  for (int i = 0; i < 20; ++i) ASSERT_EQ(producer.push(int{i}), QueueOutcome::kOk);
  pipeline.drain();
  SUCCEED() << "a lost wake-up would hang here";
}

TEST(ThreadPipeline, IdleItUsesNoProcessor) {
  ThreadPipeline<int, Producers::kOne, Stage<Nothing>, Stage<Nothing, 2>> pipeline({.capacity = 8},
                                                                                   {}, {});
  auto producer = pipeline.producer();
  ASSERT_EQ(producer.push(1), QueueOutcome::kOk);
  while (!pipeline.core().was_idle()) std::this_thread::yield();
  Doorbell nobody;
  // Settle for 50 ms, then measure 300 ms.
  EXPECT_FALSE(nobody.wait(nobody.prepare(), now_ns() + 50'000'000));
  timespec before{};
  timespec after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  EXPECT_FALSE(nobody.wait(nobody.prepare(), now_ns() + 300'000'000));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const int64_t used_ns =
      (after.tv_sec - before.tv_sec) * 1'000'000'000 + after.tv_nsec - before.tv_nsec;
  EXPECT_LT(used_ns, 2'000'000);
}

TEST(ThreadPipeline, WakingAtEveryStageDeliversTheSame) {
  struct Sum {
    std::atomic<int>* sum;
    void operator()(int& item) const noexcept { sum->fetch_add(item); }
  };
  std::atomic<int> sum{0};
  PipelineOptions options{.capacity = 8, .wake = PipelineWake::kEveryStage, .max_spin_ns = 0};
  ThreadPipeline<int, Producers::kMany, Stage<Nothing>, Stage<Sum>> pipeline(options, {}, {{&sum}});
  auto producer = pipeline.producer();
  for (int i = 1; i <= 1000; ++i) ASSERT_EQ(producer.push(int{i}), QueueOutcome::kOk);
  pipeline.drain();
  EXPECT_EQ(sum.load(), 500'500);
}

}  // namespace
}  // namespace lumen
