// Queues of models and the queue type `auto`, seen through the engine: which way a request goes,
// and which runs it waits for. Threads: the test's and the engine's. Memory: the heap. Errors: by
// gtest.
#include "engine/express_lane.h"

#include "unit/engine/scheduler_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace lumen::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// --- auto: a lane for each request ---------------------------------------------------------------

// A row is light, a thousand are not.
uint64_t a_microsecond_a_row(uint64_t rows) { return rows * 1'000; }

TEST_F(SchedulerTest, AutoRunsALightModelOnItsSubmittersThread) {
  known_row_ns = 1'000;
  start({.queue_type = models::QueueType::kAuto});
  ASSERT_EQ(engine->submitter(0).submit(make(1).request), SubmitOutcome::kAccepted);
  EXPECT_EQ(all[0]->times_completed(), 0u) << "not before the turn's end";
  EXPECT_GT(engine->submitter(0).end_turn(), 0u);
  EXPECT_EQ(all[0]->times_completed(), 1u);
  EXPECT_EQ(all[0]->request.queue_type, models::QueueType::kInline);
  EXPECT_THAT(engine->usual_lane_of(*model).why, HasSubstr("a run takes "));
  EXPECT_EQ(engine->usual_lane_of(*model).queue_type, models::QueueType::kInline);
}

// No row is cheaper for others beside it.
uint64_t two_milliseconds_a_row(uint64_t rows) { return rows * 2'000'000; }

TEST_F(SchedulerTest, AutoGivesAHeavyModelToAWorkerAndMakesNoOtherInstanceOfIt) {
  control->cost_ns = &two_milliseconds_a_row;
  start({.queue_type = models::QueueType::kAuto, .thread_count = 2});
  EXPECT_EQ(control->instances.load(), 2u) << "of the workers";
  ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  all[0]->wait();
  EXPECT_EQ(all[0]->request.queue_type, models::QueueType::kMpmc);
  EXPECT_EQ(engine->usual_lane_of(*model).queue_type, models::QueueType::kMpmc);
  EXPECT_THAT(engine->usual_lane_of(*model).why, HasSubstr("no instance"));
}

TEST_F(SchedulerTest, AutoPacksAHeavyModelWhereATrialHasShownThatThisPays) {
  control->cost_ns = &slowly_rising;  // 230 us for one row, 320 for four
  start({.queue_type = models::QueueType::kAuto, .batch_size = 4});
  control->hold();
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
    if (i == 0) control->wait_until_held(1);
  }
  control->release();
  for (const auto& one : all) one->wait();
  EXPECT_THAT(control->take_rows_run(), ElementsAre(1, 4));
  EXPECT_EQ(all.back()->request.queue_type, models::QueueType::kBatched);
}

TEST_F(SchedulerTest, AutoGivesALargeRequestOfALightModelToAWorker) {
  control->cost_ns = &a_microsecond_a_row;
  known_row_ns = 1'000;
  start({.queue_type = models::QueueType::kAuto});
  all.push_back(std::make_unique<models::PendingRequest>(model, size_t{1} << 20));
  all.back()->add_input(ElementType::kFp32, {4000, 4}, std::vector<float>(16'000, 1));
  ASSERT_EQ(submit_now(*engine, all.back()->request), SubmitOutcome::kAccepted);
  all.back()->wait();
  EXPECT_EQ(all.back()->request.queue_type, models::QueueType::kMpmc);
  ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  turn_until_complete();
  EXPECT_EQ(all.back()->request.queue_type, models::QueueType::kInline) << "its small ones stay";
}

// Was: a change of the engine waited for the I/O thread's turn, and a request that this thread had
// given to a worker without telling it waited as long.
TEST_F(SchedulerTest, AChangeTellsWorkersOfRequestsBeforeItWaitsForAnIoThread) {
  control->cost_ns = &a_microsecond_a_row;
  known_row_ns = 1'000;
  cpu_count = 1;  // no worker is told within a turn
  start({.queue_type = models::QueueType::kAuto, .thread_count = 1});
  models::PendingRequest large(model, size_t{1} << 20);
  large.add_input(ElementType::kFp32, {4000, 4}, std::vector<float>(16'000, 1));
  ASSERT_EQ(engine->submitter(0).submit(large.request), SubmitOutcome::kAccepted);
  ASSERT_EQ(large.request.queue_type, models::QueueType::kMpmc);
  ASSERT_EQ(engine->submitter(0).submit(make().request), SubmitOutcome::kAccepted);
  ASSERT_EQ(all.back()->request.queue_type, models::QueueType::kInline);
  std::thread change(
      [this] { EXPECT_TRUE(engine->reconfigure({.queue_type = models::QueueType::kMpmc}).ok()); });
  large.wait();
  EXPECT_EQ(all.back()->times_completed(), 0u) << "its turn has not come";
  turn_until_complete();
  change.join();
}

// Was, with one queue for all: a flood for one model was a 429 for everybody.
TEST_F(SchedulerTest, AFullQueueOfOneModelRefusesNoOther) {
  files.add_model("other");
  for (const models::QueueType type :
       {models::QueueType::kMpmc, models::QueueType::kBatched, models::QueueType::kAuto}) {
    control->cost_ns = &slowly_rising;
    const EngineConfig config{.queue_type = type, .batch_size = 1, .queue_capacity = 4};
    if (engine == nullptr) {
      start(config);
    } else {
      ASSERT_TRUE(engine->reconfigure(config).ok());
    }
    models::Model* const other = repository->find("other", "");
    control->hold();
    // A worker may still take its first ones when the queue has refused one.
    do {
      while (submit() == SubmitOutcome::kAccepted) ASSERT_LT(all.size(), 40u);
      all.pop_back();
    } while (engine->submitter(0).types(*model).has_room);
    EXPECT_TRUE(engine->submitter(0).types(*other).has_room);
    models::PendingRequest one(other, 4096);
    one.add_input<float>(ElementType::kFp32, {1, 4}, {1, 1, 1, 1});
    EXPECT_EQ(submit_now(*engine, one.request), SubmitOutcome::kAccepted) << name_of(type);
    control->release();
    one.wait();
    for (const auto& each : all) each->wait();
    all.clear();
  }
}

TEST_F(SchedulerTest, ALightRequestWaitsForOneRunOfAHeavyModelAtMost) {
  files.add_model("light");
  control->cost_ns = &slowly_rising;
  start({.queue_type = models::QueueType::kMpmc, .batch_size = 1});
  models::Model* const light = repository->find("light", "");
  light->run_costs().add(16, 1'000);
  control->hold();
  for (int i = 0; i < 6; ++i) ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  control->wait_until_held(1);
  models::PendingRequest one(light, 4096);
  one.add_input<float>(ElementType::kFp32, {1, 4}, {1, 1, 1, 1});
  ASSERT_EQ(submit_now(*engine, one.request), SubmitOutcome::kAccepted);
  control->release();
  one.wait();
  for (const auto& each : all) each->wait();
  int before = 0;
  for (const auto& each : all) {
    before += each->request.times.dequeued_ns < one.request.times.dequeued_ns ? 1 : 0;
  }
  EXPECT_EQ(before, 1) << "the one that ran when it came";
}

// Too long for an I/O thread, and short beside the runs that it would wait for.
uint64_t a_hundred_microseconds_a_row(uint64_t rows) { return rows * 100'000; }

TEST_F(SchedulerTest, AutoLetsAMiddlingRequestPassAHeavyRunOnTheOnlyWorker) {
  control->cost_ns = &a_hundred_microseconds_a_row;
  start({.queue_type = models::QueueType::kAuto, .batch_size = 1});
  all.push_back(std::make_unique<models::PendingRequest>(model, size_t{1} << 20));
  all.back()->add_input(ElementType::kFp32, {5000, 4}, std::vector<float>(20'000, 1));
  const uint64_t starts = control->starts.load();
  ASSERT_EQ(submit_now(*engine, all.back()->request), SubmitOutcome::kAccepted);
  while (control->starts.load() == starts) std::this_thread::yield();
  ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  all.back()->wait();
  EXPECT_EQ(all.front()->times_completed(), 0u) << "half a second";
  EXPECT_EQ(all.back()->request.queue_type, models::QueueType::kMpmc);
  EXPECT_NE(all.back()->request.worker, 0u);
  all.front()->wait();
  EXPECT_EQ(all.front()->request.worker, 0u);
  // Nothing heavy any more: the worker itself is as quick.
  ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  all.back()->wait();
  EXPECT_EQ(all.back()->request.worker, 0u);
}

// Was: all of them went to the express worker, which has half of one CPU by the kernel's shares,
// for any number of workers, models and weights.
TEST_F(SchedulerTest, AutoLetsOnlyAFewAtOncePassTheHeavyRuns) {
  control->cost_ns = &a_hundred_microseconds_a_row;
  start({.queue_type = models::QueueType::kAuto, .batch_size = 1});
  all.push_back(std::make_unique<models::PendingRequest>(model, size_t{1} << 20));
  all.back()->add_input(ElementType::kFp32, {200, 4}, std::vector<float>(800, 1));
  control->hold();
  ASSERT_EQ(submit_now(*engine, all.back()->request), SubmitOutcome::kAccepted);
  for (uint32_t i = 0; i < ExpressLane::kMostOutstanding + 12; ++i) {
    ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  }
  control->release();
  uint32_t passed = 0;
  for (const auto& each : all) {
    each->wait();
    passed += each->request.is_express ? 1 : 0;
  }
  EXPECT_EQ(passed, ExpressLane::kMostOutstanding);
}

// Was, while this was made: the counts on the way in and those on the way out could differ.
TEST_F(SchedulerTest, AutoReckonsABudgetForEachLaneByItself) {
  control->cost_ns = &a_hundred_microseconds_a_row;
  start({.queue_type = models::QueueType::kAuto, .batch_size = 1, .latency_budget_us = 100'000});
  for (int round = 0; round < 3; ++round) {
    all.push_back(std::make_unique<models::PendingRequest>(model, size_t{1} << 20));
    all.back()->add_input(ElementType::kFp32, {200, 4}, std::vector<float>(800, 1));
    models::PendingRequest& heavy = *all.back();
    ASSERT_EQ(submit_now(*engine, heavy.request), SubmitOutcome::kAccepted) << round;
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(submit(), SubmitOutcome::kAccepted) << round;
      all.back()->wait();
    }
    heavy.wait();
  }
}

}  // namespace
}  // namespace lumen::engine
