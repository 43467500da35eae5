// The memory that makings of instances are found to take: the splitting with made-up readings, then
// the engine's figures over a backend whose instances take a known amount.
// Threads: the test's and the engine's. Memory: the heap, and some MiB of the fake backend. Errors:
// by gtest.
#include "engine/instance_memory.h"

#include <lumen/base/process_memory.h>
#include <lumen/memory/mapping.h>

#include "unit/engine/scheduler_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

namespace lumen::engine {
namespace {

using Making = InstanceMemory::Making;

class InstanceMemoryTest : public testing::Test {
 protected:
  uint64_t reading = 1'000'000;
  InstanceMemory memory{[this] { return reading; }};
};

TEST_F(InstanceMemoryTest, AMakingAloneGetsAllThatTheProcessHasGrownMeanwhile) {
  Making one(memory);
  reading += 700;
  EXPECT_EQ(one.end(), 700u);
}

TEST_F(InstanceMemoryTest, GrowthBeforeAndBetweenMakingsIsNobodys) {
  reading += 500;
  Making first(memory);
  reading += 10;
  EXPECT_EQ(first.end(), 10u);
  reading += 900;
  Making second(memory);
  reading += 20;
  EXPECT_EQ(second.end(), 20u);
}

TEST_F(InstanceMemoryTest, EachIntervalIsSplitAmongThoseThatWereUnderWayInIt) {
  Making a(memory);
  reading += 100;  // a's alone
  Making b(memory);
  reading += 60;  // both
  EXPECT_EQ(a.end(), 130u);
  reading += 7;  // b's alone
  EXPECT_EQ(b.end(), 37u);
}

TEST_F(InstanceMemoryTest, MakingsThatBeginAndEndTogetherGetEqualParts) {
  Making a(memory);
  Making b(memory);
  Making c(memory);
  reading += 300;
  EXPECT_EQ(a.end(), 100u);
  EXPECT_EQ(b.end(), 100u);
  EXPECT_EQ(c.end(), 100u);
}

TEST_F(InstanceMemoryTest, ModelsOfDifferentSizesGetPartsByTheirSizes) {
  Making small(memory, 100);
  Making large(memory, 300);
  reading += 4000;
  EXPECT_EQ(small.end(), 1000u);
  EXPECT_EQ(large.end(), 3000u);
  Making empty(memory, 0);
  Making of_a_gigabyte(memory, uint64_t{1} << 30);
  reading += 1001;
  EXPECT_EQ(empty.end() + of_a_gigabyte.end(), 1001u);
}

TEST_F(InstanceMemoryTest, TheRestOfADivisionIsNotLost) {
  for (const uint64_t growth : {1u, 2u, 3u, 4u, 5u, 1000u}) {
    Making a(memory);
    Making b(memory);
    Making c(memory);
    reading += growth;
    EXPECT_EQ(a.end() + b.end() + c.end(), growth);
  }
}

TEST_F(InstanceMemoryTest, MemoryGivenBackWithinAMakingDoesNotCount) {
  Making a(memory);
  reading += 1000;
  Making b(memory);
  reading -= 400;  // 200 of each
  EXPECT_EQ(a.end(), 800u);
  reading += 500;
  EXPECT_EQ(b.end(), 300u);
}

TEST_F(InstanceMemoryTest, AMakingNeverTakesLessThanNothing) {
  Making one(memory);
  reading -= 500'000;
  EXPECT_EQ(one.end(), 0u);
  reading = 0;  // it can't be read any more
  Making other(memory);
  EXPECT_EQ(other.end(), 0u);
}

TEST_F(InstanceMemoryTest, TheEndOfAMakingCountsOnce) {
  Making one(memory);
  reading += 5;
  EXPECT_EQ(one.end(), 5u);
  reading += 100;
  EXPECT_EQ(one.end(), 5u);
}

TEST_F(InstanceMemoryTest, AMakingThatIsGivenUpEndsWithItsObject) {
  std::optional<Making> given_up(std::in_place, memory);
  given_up.reset();
  Making other(memory);
  reading += 64;
  EXPECT_EQ(other.end(), 64u) << "nothing is split with the one that is gone";
}

TEST(AnonymousBytes, GrowsByTouchedPages) {
  constexpr size_t kBytes = size_t{32} << 20;
  const uint64_t before = anonymous_bytes();
  ASSERT_GT(before, 0u);
  Result<Mapping> mapped = Mapping::create(kBytes, {.prefault = true});
  ASSERT_TRUE(mapped.ok());
  // The largest error of the kernel's count.
  EXPECT_GE(anonymous_bytes() + kBytes / 8, before + kBytes);
}

// --- the engine's figures
// -------------------------------------------------------------------------------

constexpr uint64_t kMiB = uint64_t{1} << 20;

class EnginesInstances : public SchedulerTest {
 protected:
  // The figures of /metrics and the counters file.
  [[nodiscard]] uint64_t counted(const models::Model& one) const {
    return one.counters().total("instances");
  }
  [[nodiscard]] uint64_t counted_bytes(const models::Model& one) const {
    return one.counters().total("instance_bytes");
  }
  // With so much for the allocator, the kernel's batches and other tests' threads.
  static void expect_about(uint64_t bytes, uint64_t wanted) {
    EXPECT_GE(bytes, wanted - wanted / 8);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // whose shadows are memory too
    EXPECT_LE(bytes, wanted + wanted / 4);
#endif
  }
};

TEST_F(EnginesInstances, AreCountedWithTheMemoryOfOne) {
  control->instance_bytes = 16 * kMiB;
  start({.queue_type = models::QueueType::kMpmc, .thread_count = 2});
  const Engine::Instances found = engine->instances_of(*model);
  EXPECT_EQ(found.count, 2u);
  EXPECT_EQ(found.workers, 2u);
  EXPECT_EQ(found.io_threads, 0u);
  expect_about(found.bytes, 16 * kMiB);
  EXPECT_EQ(counted(*model), 2u);
  EXPECT_EQ(counted_bytes(*model), found.bytes);
}

TEST_F(EnginesInstances, MemoryOfTheFirstRunCountsForThoseThatHaveNotRunToo) {
  control->instance_bytes = 8 * kMiB;
  control->first_run_bytes = 16 * kMiB;
  start(
      {.queue_type = models::QueueType::kMpmc, .thread_count = 2, .latency_budget_us = 1'000'000});
  expect_about(engine->instances_of(*model).bytes, 24 * kMiB);
  // Its time is known by now, so none of the new ones runs while the change is made.
  ASSERT_TRUE(
      engine->reconfigure({.queue_type = models::QueueType::kMpmc, .thread_count = 3}).ok());
  expect_about(engine->instances_of(*model).bytes, 24 * kMiB);
}

TEST_F(EnginesInstances, AreOfTheThreadsThatRunTheModel) {
  known_row_ns = 1'000;
  start({.queue_type = models::QueueType::kAuto, .thread_count = 2}, 3);
  const Engine::Instances light = engine->instances_of(*model);
  EXPECT_EQ(light.workers, 2u);
  EXPECT_EQ(light.express_workers, 1u);
  EXPECT_EQ(light.io_threads, 3u);
  EXPECT_EQ(light.count, 6u);
  ASSERT_TRUE(engine->reconfigure({.queue_type = models::QueueType::kInline}).ok());
  const Engine::Instances inline_only = engine->instances_of(*model);
  EXPECT_EQ(inline_only.workers, 0u);
  EXPECT_EQ(inline_only.io_threads, 3u);
}

TEST_F(EnginesInstances, OneThatABackendSharesIsOne) {
  control->traits.shares_instances = true;
  start({.queue_type = models::QueueType::kMpmc, .thread_count = 3});
  EXPECT_EQ(engine->instances_of(*model).count, 1u);
  EXPECT_EQ(engine->instances_of(*model).workers, 3u);
  EXPECT_EQ(counted(*model), 1u);
}

TEST_F(EnginesInstances, AfterAChangeThoseOfTheCurrentConfigurationCount) {
  control->instance_bytes = 4 * kMiB;
  start({.queue_type = models::QueueType::kMpmc, .thread_count = 4});
  EXPECT_EQ(counted(*model), 4u);
  for (const uint32_t workers : {1u, 3u, 2u}) {
    ASSERT_TRUE(
        engine->reconfigure({.queue_type = models::QueueType::kMpmc, .thread_count = workers})
            .ok());
    EXPECT_EQ(counted(*model), workers);
    EXPECT_EQ(control->live_instances.load(), workers);
    expect_about(counted_bytes(*model), 4 * kMiB);
  }
  control->most_instances.store(control->instances.load());
  EXPECT_FALSE(
      engine->reconfigure({.queue_type = models::QueueType::kMpmc, .thread_count = 4}).ok());
  EXPECT_EQ(counted(*model), 2u) << "a change that failed has changed nothing";
  engine->drain();
  EXPECT_EQ(counted(*model), 0u);
  EXPECT_EQ(counted_bytes(*model), 0u);
}

TEST_F(EnginesInstances, OfAModelThatComesAndGoesAreCountedWhileItIsThere) {
  start({.queue_type = models::QueueType::kMpmc, .thread_count = 2});
  files.add_model("late");
  auto late = repository->load("late", "", {});
  ASSERT_TRUE(late.ok()) << late.status().message();
  EXPECT_EQ(counted(**late), 0u);
  ASSERT_TRUE(engine->add_model(**late).ok());
  EXPECT_EQ(counted(**late), 2u);
  ASSERT_TRUE(
      engine->reconfigure({.queue_type = models::QueueType::kMpmc, .thread_count = 3}).ok());
  EXPECT_EQ(counted(**late), 3u);
  engine->remove_model(**late);
  EXPECT_EQ(counted(**late), 0u);
  EXPECT_EQ(engine->instances_of(**late).count, 0u);
  EXPECT_EQ(counted(*model), 3u);
}

TEST_F(EnginesInstances, AreAsManyAsAModelsConfigAllows) {
  files.add_model("m");
  files.write("m/config.json", R"({"instances": 2})");
  start({.queue_type = models::QueueType::kMpmc, .thread_count = 4});
  EXPECT_EQ(counted(*model), 2u);
}

}  // namespace
}  // namespace lumen::engine
