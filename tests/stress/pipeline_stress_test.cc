// Many items through pipelines of several shapes: each exactly once through each stage, order kept.
// Scaled by LUMEN_STRESS_SCALE. The handlers do pseudo-random work, seeded by the item itself.
#include <lumen/queue/thread_pipeline.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace lumen {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kItems = 20'000;
#else
constexpr uint64_t kItems = 200'000;
#endif
uint64_t item_count() {
  const char* text = std::getenv("LUMEN_STRESS_SCALE");
  return kItems * (text == nullptr ? 1 : std::strtoull(text, nullptr, 10));
}

// Plain fields, so that TSan sees whether one stage's writes are ordered before the next one's
// reads.
struct Item {
  uint64_t producer = 0;
  uint64_t number = 0;
  uint32_t stages_passed = 0;
};
using ItemPtr = std::unique_ptr<Item>;

void a_little_work(uint64_t number) {
  const uint64_t pauses = (number * 0x9E3779B97F4A7C15u) >> 60;
  for (uint64_t i = 0; i < pauses; ++i) cpu_pause();
}

template <uint32_t kStage>
struct Pass {
  std::atomic<uint64_t>* count;
  std::atomic<uint64_t>* errors;
  void operator()(ItemPtr& item) const noexcept {
    // relaxed: counters that are read after the threads have been joined
    if (item == nullptr || item->stages_passed != kStage) {
      errors->fetch_add(1, std::memory_order_relaxed);  // relaxed: as above
      return;
    }
    a_little_work(item->number + kStage);
    item->stages_passed = kStage + 1;
    count->fetch_add(1, std::memory_order_relaxed);  // relaxed: as above
  }
};

// The last stage of one thread: sees each producer's items in their order.
template <uint32_t kStage>
struct InOrder {
  std::vector<uint64_t>* next;
  std::atomic<uint64_t>* errors;
  void operator()(std::span<ItemPtr> items) const noexcept {
    for (const ItemPtr& item : items) {
      const bool good = item != nullptr && item->stages_passed == kStage &&
                        item->number == (*next)[item->producer];
      if (good) ++(*next)[item->producer];
      // relaxed: read after the threads have been joined
      if (!good) errors->fetch_add(1, std::memory_order_relaxed);
    }
  }
};

template <typename Pipe>
void push_all(Pipe& pipeline, size_t producers, uint64_t each) {
  std::vector<std::thread> threads;
  threads.reserve(producers);
  for (size_t p = 0; p < producers; ++p) {
    threads.emplace_back([&, p] {
      auto producer = pipeline.producer();
      for (uint64_t i = 0; i < each; ++i) {
        ASSERT_EQ(producer.push(std::make_unique<Item>(Item{p, i, 0})), QueueOutcome::kOk);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  pipeline.drain();
}

template <Producers kProducers, size_t kThreads0, size_t kThreads1, size_t kBatch>
void stress(size_t producers, PipelineOptions options, uint64_t share = 1) {
  std::atomic<uint64_t> counts[2] = {};
  std::atomic<uint64_t> errors{0};
  std::vector<uint64_t> next(producers);
  const uint64_t each = item_count() / share / producers;
  {
    ThreadPipeline<ItemPtr, kProducers, Stage<Pass<0>, kThreads0, kBatch>,
                   Stage<Pass<1>, kThreads1, kBatch>, Stage<InOrder<2>>>
        pipeline(options, {{&counts[0], &errors}}, {{&counts[1], &errors}}, {{&next, &errors}});
    push_all(pipeline, producers, each);
  }
  EXPECT_EQ(errors.load(), 0u);
  EXPECT_EQ(counts[0].load(), each * producers);
  EXPECT_EQ(counts[1].load(), each * producers);
  for (const uint64_t seen : next) EXPECT_EQ(seen, each);
}

TEST(PipelineStress, OneThreadAStage) { stress<Producers::kOne, 1, 1, 64>(1, {.capacity = 256}); }
TEST(PipelineStress, ATinyRingThatMakesEveryoneSleep) {
  stress<Producers::kOne, 1, 1, 1>(1, {.capacity = 2, .max_spin_ns = 0}, 8);
}
TEST(PipelineStress, SeveralThreadsAStageAndManyProducers) {
  stress<Producers::kMany, 2, 3, 4>(3, {.capacity = 64, .max_spin_ns = 2'000});
}
TEST(PipelineStress, SeveralThreadsWithoutSpin) {
  stress<Producers::kMany, 3, 2, 1>(2, {.capacity = 8, .max_spin_ns = 0});
}
TEST(PipelineStress, AWideStageAfterANarrowOne) {
  stress<Producers::kOne, 1, 3, 8>(1, {.capacity = 16, .max_spin_ns = 0});
}
TEST(PipelineStress, WakingAtEveryStage) {
  stress<Producers::kMany, 2, 1, 4>(
      2, {.capacity = 16, .wake = PipelineWake::kEveryStage, .max_spin_ns = 1'000});
}
TEST(PipelineStress, FixedSpins) {
  stress<Producers::kOne, 1, 2, 4>(1, {.capacity = 16, .fixed_spins = 100});
}

TEST(PipelineStress, CloseUnderLoadLosesNothing) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<uint64_t> counts[2] = {};
    std::atomic<uint64_t> errors{0};
    std::atomic<uint64_t> accepted{0};
    ThreadPipeline<ItemPtr, Producers::kMany, Stage<Pass<0>, 2, 2>, Stage<Pass<1>, 2, 2>> pipeline(
        {.capacity = 8, .max_spin_ns = 1'000}, {{&counts[0], &errors}}, {{&counts[1], &errors}});
    std::vector<std::thread> threads;
    threads.reserve(3);
    for (int p = 0; p < 3; ++p) {
      threads.emplace_back([&] {
        auto producer = pipeline.producer();
        for (uint64_t i = 0;; ++i) {
          if (producer.push(std::make_unique<Item>(Item{0, i, 0})) != QueueOutcome::kOk) return;
          accepted.fetch_add(1);
        }
      });
    }
    while (counts[1].load() < 100) std::this_thread::yield();
    pipeline.drain();
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(errors.load(), 0u);
    ASSERT_EQ(counts[0].load(), accepted.load());
    ASSERT_EQ(counts[1].load(), accepted.load());
  }
}

}  // namespace
}  // namespace lumen
