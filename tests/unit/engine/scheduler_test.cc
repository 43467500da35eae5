// A configuration at work, seen through the engine: admission by a budget, batches that wait for
// more, changes that fail. Threads: the test's and the engine's. Memory: the heap. Errors: by
// gtest.
#include <lumen/base/clock.h>

#include "unit/engine/scheduler_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <thread>

namespace lumen::engine {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kMs = 1'000'000;

// --- admission -----------------------------------------------------------------------------------

TEST_F(SchedulerTest, RefusesAtTheDoorARequestThatCannotMeetTheBudget) {
  start({.latency_budget_us = 2500});
  model->service_time().restart(1 * kMs);
  control->hold();
  EXPECT_EQ(submit(), SubmitOutcome::kAccepted);
  EXPECT_EQ(submit(), SubmitOutcome::kAccepted) << "one before it, 2 ms in all";
  EXPECT_EQ(submit(), SubmitOutcome::kOverBudget) << "would be answered after 3 ms";
  EXPECT_EQ(submit(), SubmitOutcome::kOverBudget) << "who was refused is not ahead of others";
  control->release();
  all[0]->wait();
  all[1]->wait();
  EXPECT_EQ(all[2]->times_completed(), 0u);
}

TEST_F(SchedulerTest, AdmitsAgainOnceEarlierRequestsAreDone) {
  start({.latency_budget_us = 1500});
  for (int round = 0; round < 3; ++round) {
    model->service_time().restart(1 * kMs);
    control->hold();
    ASSERT_EQ(submit(), SubmitOutcome::kAccepted) << round;
    ASSERT_EQ(submit(), SubmitOutcome::kOverBudget) << round;
    control->release();
    all[all.size() - 2]->wait();
  }
}

TEST_F(SchedulerTest, SharesTheBudgetAmongWorkers) {
  start({.thread_count = 2, .latency_budget_us = 2900});
  model->service_time().restart(1 * kMs);
  control->hold();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(submit(), SubmitOutcome::kAccepted) << i;
  EXPECT_EQ(submit(), SubmitOutcome::kOverBudget);
  control->release();
  for (size_t i = 0; i < 4; ++i) all[i]->wait();
}

// A light model waits for the run that has begun, and not for all that waits of a heavy one.
TEST_F(SchedulerTest, TheBudgetOfAModelReckonsWithItsShareOfTheWorkers) {
  files.add_model("light");
  for (const Policy policy : {Policy::kFair, Policy::kFifo}) {
    const EngineConfig config{.policy = policy, .latency_budget_us = 5000};
    if (engine == nullptr) {
      start(config);
    } else {
      ASSERT_TRUE(engine->reconfigure(config).ok());
    }
    models::Model* const light = repository->find("light", "");
    model->service_time().restart(1 * kMs);
    light->service_time().restart(kMs / 4);
    control->hold();
    for (int i = 0; i < 4; ++i) ASSERT_EQ(submit(), SubmitOutcome::kAccepted) << i;
    ASSERT_EQ(submit(), SubmitOutcome::kOverBudget) << "a fifth of its own";
    models::PendingRequest one(light, 4096);
    one.add_input<float>(ElementType::kFp32, {1, 4}, {1, 1, 1, 1});
    one.request.times.received_ns = now_ns() - kMs / 2;
    const bool is_fair = policy == Policy::kFair;
    EXPECT_EQ(submit_now(*engine, one.request),
              is_fair ? SubmitOutcome::kAccepted : SubmitOutcome::kOverBudget);
    control->release();
    if (is_fair) one.wait();
    for (size_t i = 0; i < 4; ++i) all[i]->wait();
    all.clear();
  }
}

// Otherwise a model that was slow once would be refused for ever.
TEST_F(SchedulerTest, AdmitsOneRequestThatIsOverBudgetByItselfWhenNothingIsAhead) {
  start({.latency_budget_us = 100});
  model->service_time().restart(1 * kMs);
  control->hold();
  EXPECT_EQ(submit(), SubmitOutcome::kAccepted);
  EXPECT_EQ(submit(), SubmitOutcome::kOverBudget);
  control->release();
  all[0]->wait();
}

// Was: the model's time was 0 until its first run, and all of the first burst were let in.
TEST_F(SchedulerTest, KnowsTheTimeOfAModelBeforeItsFirstRequest) {
  control->cost_ns = &slowly_rising;  // 230 us for one row
  start({.latency_budget_us = 600});
  EXPECT_GE(model->service_time().mean_ns(), 230'000u);
  control->hold();
  EXPECT_EQ(submit(), SubmitOutcome::kAccepted);
  int accepted = 1;
  for (int i = 0; i < 10; ++i) accepted += submit() == SubmitOutcome::kAccepted ? 1 : 0;
  EXPECT_LE(accepted, 2);
  control->release();
  all[0]->wait();
}

TEST_F(SchedulerTest, WithoutABudgetNoModelIsRunBeforeItsFirstRequest) {
  start({});
  EXPECT_EQ(model->service_time().mean_ns(), 0u);
  EXPECT_EQ(control->starts.load(), 0u);
}

// Was: only runs that ended on the worker's own thread were measured.
TEST_F(SchedulerTest, LearnsFromCallsThatABackendsThreadCompletes) {
  control->asynchronous = true;
  control->cost_ns = &slowly_rising;
  start({.latency_budget_us = 1'000'000});
  model->service_time().restart(1);
  ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  all[0]->wait();
  EXPECT_GE(model->service_time().mean_ns(), 230'000u / 8);
}

TEST_F(SchedulerTest, SaysBeforeTheBodyWhetherARequestWouldFit) {
  start({.latency_budget_us = 2500});
  model->service_time().restart(1 * kMs);
  Submitter& io = engine->submitter(0);
  control->hold();
  models::PendingRequest& next = make();
  EXPECT_TRUE(io.fits_budget(next.request)) << "nothing is ahead";
  ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  EXPECT_TRUE(io.fits_budget(next.request)) << "2 ms";
  next.request.outside_ns = 1 * kMs;
  EXPECT_FALSE(io.fits_budget(next.request)) << "3 ms with its way in and back";
  next.request.outside_ns = 0;
  next.request.times.received_ns = now_ns() - 1 * kMs;
  EXPECT_FALSE(io.fits_budget(next.request)) << "1 ms of it is over";
  control->release();
  all[1]->wait();
}

TEST_F(SchedulerTest, ARequestThatFindsTheQueueFullIsNotReckonedWith) {
  start({.queue_capacity = 2, .latency_budget_us = 5500});
  model->service_time().restart(1 * kMs);
  control->hold();
  ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  control->wait_until_held(1);
  ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(submit(), SubmitOutcome::kFull) << "not kOverBudget";
  control->release();
  for (size_t i = 0; i < 3; ++i) all[i]->wait();
}

TEST_F(SchedulerTest, InlineKeepsTheBudgetToo) {
  start({.queue_type = models::QueueType::kInline, .latency_budget_us = 2500});
  model->service_time().restart(1 * kMs);
  Submitter& io = engine->submitter(0);
  EXPECT_EQ(io.submit(make().request), SubmitOutcome::kAccepted);
  EXPECT_EQ(io.submit(make().request), SubmitOutcome::kAccepted);
  EXPECT_EQ(io.submit(make().request), SubmitOutcome::kOverBudget);
  EXPECT_EQ(io.end_turn(), 2u);
}

TEST_F(SchedulerTest, TheDefaultTimeoutIsForRequestsWithoutTheirOwn) {
  start({.default_timeout_us = 1000});
  models::PendingRequest& own = make();
  own.request.deadline_ns = now_ns() + 60'000 * kMs;
  models::PendingRequest& none = make();
  none.request.times.parsed_ns = now_ns() - 2 * kMs;  // parsed so long ago
  ASSERT_EQ(submit_now(*engine, none.request), SubmitOutcome::kAccepted);
  ASSERT_EQ(submit_now(*engine, own.request), SubmitOutcome::kAccepted);
  own.wait();
  none.wait();
  EXPECT_TRUE(own.request.status.ok());
  EXPECT_EQ(none.request.status.code(), Code::kDeadlineExceeded);
}

// --- batches -------------------------------------------------------------------------------------

// Was: with a backend that completes later, a request that waits for room expired only when
// something else happened on the I/O thread.
// Was: "no timeout" was UINT64_MAX - 1, so that the default would not count. Sums with it
// overflowed: with `naive` it lay in the past, and a worker that kept the request back span.
TEST_F(SchedulerTest, ARequestThatMayWaitForEverGetsNoDefaultTimeoutAndNoDeadline) {
  control->hold();
  start({.queue_type = models::QueueType::kMpmc, .default_timeout_us = 1});
  models::PendingRequest& pending = make();
  pending.request.waits_for_ever = true;
  pending.request.times.received_ns = 1;  // its default deadline would have passed long ago
  ASSERT_EQ(submit_now(*engine, pending.request), SubmitOutcome::kAccepted);
  EXPECT_EQ(pending.request.deadline_ns, UINT64_MAX);
  control->release();
  pending.wait();
  EXPECT_TRUE(pending.request.status.ok());
}

TEST_F(SchedulerTest, WorkersAreWokenWithinATurnThatGoesOn) {
  cpu_count = 2;
  start({.thread_count = 1});
  while (counters->total("worker_parks") == 0) std::this_thread::yield();
  models::PendingRequest& pending = make();
  ASSERT_EQ(engine->submitter(0).submit(pending.request), SubmitOutcome::kAccepted);
  while (pending.times_completed() == 0) {  // no end_turn()
    engine->submitter(0).wake_if_late();
    std::this_thread::yield();
  }
  EXPECT_TRUE(pending.request.status.ok());
}

// Was: with one CPU for the I/O thread and the worker each early wake took it from the turn, so
// that a worker packed the requests of half a turn.
TEST_F(SchedulerTest, NoWorkerIsWokenWithinATurnWhereAllShareOneCpu) {
  cpu_count = 1;
  start({.thread_count = 1});
  while (counters->total("worker_parks") == 0) std::this_thread::yield();
  models::PendingRequest& pending = make();
  pending.request.times.parsed_ns = 1;  // late
  ASSERT_EQ(engine->submitter(0).submit(pending.request), SubmitOutcome::kAccepted);
  engine->submitter(0).wake_if_late();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_EQ(pending.times_completed(), 0u);
  turn_until_complete();
}

TEST_F(SchedulerTest, WithinATurnInlineRunsNothing) {
  start({.queue_type = models::QueueType::kInline});
  models::PendingRequest& pending = make();
  pending.request.times.parsed_ns = 1;  // late
  ASSERT_EQ(engine->submitter(0).submit(pending.request), SubmitOutcome::kAccepted);
  engine->submitter(0).wake_if_late();
  EXPECT_EQ(pending.times_completed(), 0u);
  turn_until_complete();
}

// Was: a worker of `batched` took all that was there, up to 16, even of a model that never packs:
// 16 requests of 20 ms took 8 workers 321 ms.
TEST_F(SchedulerTest, BatchedTakesOneRequestAWorkerOfAModelThatNeverPacks) {
  control->models_that_sum_rows = {"m"};
  start({.queue_type = models::QueueType::kBatched, .thread_count = 8, .batch_size = 16});
  control->hold();
  for (int i = 0; i < 16; ++i) {
    ASSERT_EQ(engine->submitter(0).submit(make().request), SubmitOutcome::kAccepted);
  }
  engine->submitter(0).end_turn();
  EXPECT_TRUE(control->wait_until_held(8, 10'000 * kMs)) << "each of the eight has one";
  control->release();
  for (const auto& one : all) one->wait();
}

// Was, of all types: a worker that was woken with a request took a second one before it ran the
// first.
TEST_F(SchedulerTest, AWokenWorkerTakesNoMoreThanItRuns) {
  start({.thread_count = 2, .queue_capacity = 2});
  while (counters->total("worker_parks") < 2) std::this_thread::yield();
  control->hold();
  ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  control->wait_until_held(1);
  ASSERT_EQ(engine->submitter(0).submit(make().request), SubmitOutcome::kAccepted);
  ASSERT_EQ(engine->submitter(0).submit(make().request), SubmitOutcome::kAccepted);
  engine->submitter(0).end_turn();
  control->wait_until_held(2);
  EXPECT_EQ(submit(), SubmitOutcome::kAccepted) << "one place is free";
  EXPECT_EQ(submit(), SubmitOutcome::kFull) << "the other request is still in the queue";
  control->release();
  engine->drain();
  for (size_t i = 0; i + 1 < all.size(); ++i) EXPECT_EQ(all[i]->times_completed(), 1u);
}

TEST_F(SchedulerTest, InlineTellsWhenARequestThatWaitsForRoomWillExpire) {
  control->asynchronous = true;
  start({.queue_type = models::QueueType::kInline});
  Submitter& io = engine->submitter(0);
  EXPECT_EQ(io.next_ns(), UINT64_MAX);
  control->hold();
  ASSERT_EQ(io.submit(make().request), SubmitOutcome::kAccepted);
  (void)io.end_turn();
  EXPECT_EQ(io.next_ns(), UINT64_MAX) << "it is with the device";
  models::PendingRequest& late = make();
  late.request.deadline_ns = now_ns() + 1 * kMs;
  ASSERT_EQ(io.submit(late.request), SubmitOutcome::kAccepted);
  (void)io.end_turn();
  ASSERT_EQ(io.next_ns(), late.request.deadline_ns);
  while (now_ns() <= late.request.deadline_ns) std::this_thread::yield();
  EXPECT_EQ(io.end_turn(), 1u);
  EXPECT_EQ(late.request.status.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(io.next_ns(), UINT64_MAX);
  control->release();
  all[0]->wait();
}

TEST_F(SchedulerTest, ABatchThatIsHeldRunsWhenItsDelayEnds) {
  control->cost_ns = &slowly_rising;
  start({.queue_type = models::QueueType::kBatched, .batch_size = 8, .max_queue_delay_us = 3000});
  for (int i = 0; i < 3; ++i) ASSERT_EQ(submit(static_cast<float>(i)), SubmitOutcome::kAccepted);
  for (const auto& one : all) one->wait();
  const uint64_t began = all[0]->request.times.parsed_ns;
  EXPECT_GE(all[0]->request.times.dequeued_ns, began + 3 * kMs);
  EXPECT_THAT(control->take_rows_run(), ElementsAre(4)) << "three rows, padded, in one call";
}

TEST_F(SchedulerTest, ABatchThatIsHeldRunsWhenItFills) {
  control->cost_ns = &slowly_rising;
  // A delay that the test would not survive.
  start({.queue_type = models::QueueType::kBatched,
         .batch_size = 4,
         .max_queue_delay_us = 10'000'000});
  const uint64_t began = now_ns();
  for (int i = 0; i < 8; ++i) ASSERT_EQ(submit(static_cast<float>(i)), SubmitOutcome::kAccepted);
  for (const auto& one : all) one->wait();
  EXPECT_LT(now_ns() - began, 10'000 * kMs);
  EXPECT_THAT(control->take_rows_run(), ElementsAre(4, 4));
  for (int i = 0; i < 8; ++i) {
    EXPECT_THAT(all[static_cast<size_t>(i)]->output<float>(0), Each(static_cast<float>(i + 1)));
  }
}

TEST_F(SchedulerTest, ABatchThatIsHeldIsCompletedByAChangeOfConfigurationAndByDrain) {
  control->cost_ns = &slowly_rising;
  start(
      {.queue_type = models::QueueType::kBatched, .batch_size = 8, .max_queue_delay_us = 300'000});
  EngineConfig next = engine->config();
  next.batch_size = 4;
  ASSERT_EQ(submit(1), SubmitOutcome::kAccepted);
  ASSERT_TRUE(engine->reconfigure(next).ok());
  EXPECT_EQ(all[0]->times_completed(), 1u) << "reconfigure() returns when it is";
  ASSERT_EQ(submit(2), SubmitOutcome::kAccepted);
  engine->drain();
  EXPECT_EQ(all[1]->times_completed(), 1u);
  for (const auto& one : all) EXPECT_TRUE(one->request.status.ok());
}

TEST_F(SchedulerTest, InlinePacksTheRequestsOfOneTurn) {
  control->cost_ns = &slowly_rising;
  start({.queue_type = models::QueueType::kInline, .batch_size = 8});
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(engine->submitter(0).submit(make(static_cast<float>(i)).request),
              SubmitOutcome::kAccepted);
  }
  EXPECT_THAT(control->take_rows_run(), IsEmpty()) << "nothing runs before the turn ends";
  EXPECT_EQ(engine->submitter(0).end_turn(), 5u);
  EXPECT_THAT(control->take_rows_run(), ElementsAre(8));
  for (const auto& one : all) EXPECT_EQ(one->times_completed(), 1u);
}

TEST_F(SchedulerTest, EveryQueueTypeSaysFullAtItsCapacity) {
  for (size_t i = 0; i < models::kQueueTypeNames.size(); ++i) {
    const auto type = static_cast<models::QueueType>(i);
    const EngineConfig config{.queue_type = type, .batch_size = 1, .queue_capacity = 4};
    if (engine == nullptr) {
      start(config);
    } else {
      ASSERT_TRUE(engine->reconfigure(config).ok());
    }
    control->hold();
    size_t accepted = 0;
    // A worker may have taken some out of the queue: one it runs and a few it keeps for other
    // models.
    while (engine->submitter(0).submit(make().request) == SubmitOutcome::kAccepted) {
      ASSERT_LT(++accepted, 32u) << name_of(type);
    }
    EXPECT_GE(accepted, 4u) << name_of(type);
    all.pop_back();
    control->release();
    turn_until_complete();
    for (const auto& one : all) {
      one->wait();
      EXPECT_TRUE(one->request.status.ok());
    }
    all.clear();
  }
}

// --- changes -------------------------------------------------------------------------------------

TEST_F(SchedulerTest, AChangeThatCannotBeMadeLeavesTheConfigurationBefore) {
  start({.thread_count = 2});
  const EngineConfig before = engine->config();
  control->most_instances.store(control->instances.load() + 1);  // the second new one fails
  for (const models::QueueType type :
       {models::QueueType::kSpsc, models::QueueType::kNaive, models::QueueType::kBatched}) {
    const Status status = engine->reconfigure({.queue_type = type, .thread_count = 3});
    EXPECT_EQ(status.code(), Code::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr("no more instances of 'm'"));
    EXPECT_EQ(engine->config(), before);
    EXPECT_EQ(model->state(), models::ModelState::kReady) << "the one before serves it still";
    ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
    all.back()->wait();
    EXPECT_EQ(all.back()->request.queue_type, models::QueueType::kMpmc);
    EXPECT_TRUE(all.back()->request.status.ok());
    control->most_instances.store(control->instances.load() + 1);
  }
  EXPECT_EQ(counters->total("engine_swaps"), 0u);
  control->most_instances.store(UINT32_MAX);
  EXPECT_TRUE(
      engine->reconfigure({.queue_type = models::QueueType::kSpsc, .thread_count = 3}).ok());
  EXPECT_EQ(counters->total("engine_swaps"), 1u);
}

TEST_F(SchedulerTest, AChangeToInlineThatCannotBeMadeLeavesTheConfigurationBefore) {
  start({}, 2);
  control->most_instances.store(control->instances.load() + 1);
  EXPECT_FALSE(engine->reconfigure({.queue_type = models::QueueType::kInline}).ok());
  ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  all.back()->wait();
  EXPECT_EQ(all.back()->request.queue_type, models::QueueType::kMpmc);
}

TEST_F(SchedulerTest, AnImpossibleConfigurationIsRefusedBeforeAnythingIsMade) {
  start({});
  const uint32_t instances = control->instances.load();
  const Status status = engine->reconfigure({.queue_capacity = 3});
  EXPECT_THAT(std::string(status.message()), HasSubstr("power of two"));
  EXPECT_EQ(control->instances.load(), instances);
}

TEST_F(SchedulerTest, AChangeToTheSameConfigurationMakesNothingAnew) {
  start({.thread_count = 2});
  const uint32_t instances = control->instances.load();
  EXPECT_TRUE(engine->reconfigure(engine->config()).ok());
  EXPECT_EQ(control->instances.load(), instances);
  EXPECT_EQ(counters->total("engine_swaps"), 0u);
}

TEST_F(SchedulerTest, RefusesAChangeAfterDrain) {
  start({});
  engine->drain();
  EXPECT_EQ(engine->reconfigure({.queue_type = models::QueueType::kSpsc}).code(),
            Code::kUnavailable);
}

// Requests that the configuration before had accepted with `inline` only its own I/O thread can
// run.
TEST_F(SchedulerTest, AChangeAwayFromInlineWaitsForTheTurnOfItsIoThread) {
  start({.queue_type = models::QueueType::kInline});
  ASSERT_EQ(engine->submitter(0).submit(make(1).request), SubmitOutcome::kAccepted);
  std::thread change(
      [this] { EXPECT_TRUE(engine->reconfigure({.queue_type = models::QueueType::kMpmc}).ok()); });
  turn_until_complete();
  change.join();
  EXPECT_THAT(all[0]->output<float>(0), Each(2));
  EXPECT_EQ(all[0]->request.queue_type, models::QueueType::kInline);
}

}  // namespace
}  // namespace lumen::engine
