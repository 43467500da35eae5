// Runner: turned by hand, so that its work in one pass is the same every time.
// Threads: the test's and the fake device's. Memory: the heap. Errors: by gtest.
#include "engine/runner.h"

#include "support/fake_backend.h"
#include "support/pending_request.h"
#include "support/temp_repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
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

// The smallest size that holds the rows is the cheapest, by more than the noise of a measurement.
uint64_t slowly_rising(uint64_t rows) { return 200'000 + 30'000 * rows; }

// Counts rooms; a test may keep the device's thread inside.
class CountingListener final : public RoomListener {
 public:
  void on_room() noexcept override {
    rooms_.fetch_add(1);
    rooms_.notify_all();
    while (kept_.load()) std::this_thread::yield();
    left_.store(true);
  }
  void wait_for(uint32_t rooms) const {
    for (uint32_t seen = rooms_.load(); seen < rooms; seen = rooms_.load()) rooms_.wait(seen);
  }
  void keep() {
    left_.store(false);
    kept_.store(true);
  }
  void let_go() { kept_.store(false); }
  [[nodiscard]] bool has_left() const { return left_.load(); }

 private:
  std::atomic<uint32_t> rooms_{0};
  std::atomic<bool> kept_{false};
  std::atomic<bool> left_{false};
};

class RunnerTest : public testing::Test {
 protected:
  void start(const EngineConfig& config, const std::vector<std::string>& models = {"m"},
             size_t capacity = 64) {
    for (const std::string& model : models) files.add_model(model);
    repository = std::move(
        models::ModelRepository::open(files.path(), models::make_fake_backend(control), *counters)
            .value());
    runner = std::make_unique<Runner>(RunnerOptions{.index = 3,
                                                    .config = config,
                                                    .capacity = capacity,
                                                    .load = {},
                                                    .listener = &listener,
                                                    .counters = counters.get()});
    std::vector<models::Model*> served;
    for (const auto& model : repository->models()) served.push_back(model.get());
    SharedInstances shared;
    InstanceMemory memory;
    runner->expect_instances(served);
    for (size_t i = 0; i < served.size(); ++i) runner->make_instance(i, shared, memory, config);
    const Status status = runner->set_up(memory, Runner::OnFailure::kFail);
    ASSERT_TRUE(status.ok()) << status.message();
    control->cost_ns = nullptr;  // the plan is made
    (void)control->take_rows_run();
  }
  // A runner that packs up to 8 rows.
  void start_batched(uint32_t max_queue_delay_us = 0) {
    control->cost_ns = &slowly_rising;
    start({.queue_type = models::QueueType::kBatched,
           .batch_size = 8,
           .max_queue_delay_us = max_queue_delay_us});
  }
  models::PendingRequest& make(float value, const char* model = "m", int64_t rows = 1) {
    all.push_back(std::make_unique<models::PendingRequest>(repository->find(model, ""), 4096));
    all.back()->add_input(ElementType::kFp32, {rows, 4},
                          std::vector<float>(static_cast<size_t>(rows) * 4, value));
    return *all.back();
  }
  models::PendingRequest& add(float value, const char* model = "m", int64_t rows = 1) {
    models::PendingRequest& one = make(value, model, rows);
    runner->add(one.request);
    return one;
  }
  void expect_all_answered() const {
    for (const auto& one : all) {
      EXPECT_EQ(one->times_completed(), 1u);
      ASSERT_TRUE(one->request.status.ok()) << one->request.status.message();
      float sent = 0;
      std::memcpy(&sent, one->request.inputs[0].data, sizeof(sent));
      EXPECT_THAT(one->output<float>(0), Each(sent + 1));
    }
  }

  models::TempRepository files;
  std::shared_ptr<models::FakeControl> control = std::make_shared<models::FakeControl>();
  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<models::ModelRepository> repository;
  CountingListener listener;
  std::unique_ptr<Runner> runner;
  std::deque<std::unique_ptr<models::PendingRequest>> all;
};

TEST_F(RunnerTest, PacksWaitingRequestsIntoOneCallAndGivesEachItsOwn) {
  start_batched();
  for (int i = 0; i < 5; ++i) add(static_cast<float>(i));
  EXPECT_EQ(runner->run(), 5u);
  EXPECT_THAT(control->take_rows_run(), ElementsAre(8)) << "five rows, padded to a measured size";
  expect_all_answered();
  EXPECT_EQ(runner->run(), 0u);
  EXPECT_TRUE(runner->is_done());
  for (const auto& one : all) EXPECT_EQ(one->request.worker, 3u);
}

TEST_F(RunnerTest, CountsOneExecutionForABatchAndARowForEach) {
  start_batched();
  for (int i = 0; i < 4; ++i) add(static_cast<float>(i));
  (void)runner->run();
  const telemetry::ModelCounters m = repository->find("m", "")->counters();
  EXPECT_EQ(m.total("inference"), 4u);
  EXPECT_EQ(m.total("execution"), 1u);
  EXPECT_GT(counters->total("request_arena_bytes"), 0u) << "the batch's own memory";
}

TEST_F(RunnerTest, TakesTheOldestFirstAndNotMoreRowsThanABatchHas) {
  start_batched();
  add(1, "m", 3);
  add(2, "m", 4);
  add(3, "m", 2);  // would be the ninth row
  (void)runner->run();
  EXPECT_THAT(control->take_rows_run(), ElementsAre(8, 2));
  expect_all_answered();
}

TEST_F(RunnerTest, RunsARequestWithMoreRowsThanABatchByItself) {
  start_batched();
  add(1, "m", 20);
  add(2);
  (void)runner->run();
  EXPECT_THAT(control->take_rows_run(), ElementsAre(20, 1));
  expect_all_answered();
}

TEST_F(RunnerTest, DoesNotPutRequestsOfTwoModelsIntoOneCall) {
  control->cost_ns = &slowly_rising;
  start({.queue_type = models::QueueType::kBatched, .batch_size = 8}, {"m", "n"});
  for (int i = 0; i < 6; ++i) add(static_cast<float>(i), i % 2 == 0 ? "m" : "n");
  (void)runner->run();
  EXPECT_THAT(control->take_rows_run(), ElementsAre(4, 4)) << "three each, padded";
  expect_all_answered();
}

TEST_F(RunnerTest, OneBadRequestDoesNotFailItsNeighbours) {
  control->value_that_fails = -7;
  start_batched();
  add(1);
  models::PendingRequest& bad = add(-7);
  add(3);
  EXPECT_EQ(runner->run(), 3u);
  EXPECT_THAT(control->take_rows_run(), ElementsAre(4, 1, 1, 1)) << "together, then one by one";
  EXPECT_EQ(bad.request.status.code(), Code::kInternal);
  for (const auto& one : all) EXPECT_EQ(one->times_completed(), 1u);
  EXPECT_THAT(all[0]->output<float>(0), Each(2));
  EXPECT_THAT(all[2]->output<float>(0), Each(4));
  // And the batch is usable again.
  add(5);
  add(6);
  EXPECT_EQ(runner->run(), 2u);
  EXPECT_THAT(all[4]->output<float>(0), Each(7));
}

// Was: a device's thread can't start the model again, and failed all that were in the batch.
TEST_F(RunnerTest, OneBadRequestDoesNotFailItsNeighboursOnAnAsynchronousDevice) {
  control->asynchronous = true;
  control->value_that_fails = -7;
  start_batched();
  add(1);
  models::PendingRequest& bad = add(-7);
  EXPECT_EQ(runner->run(), 2u);
  listener.wait_for(1);
  EXPECT_FALSE(runner->is_done()) << "the two have had no answer";
  EXPECT_TRUE(runner->has_news());
  EXPECT_TRUE(all[0]->times_completed() == 0 && bad.times_completed() == 0);
  add(3);
  for (uint32_t completions = 2; completions <= 4; ++completions) {
    control->hold();
    EXPECT_EQ(runner->run(), 1u) << "each alone, since the device takes one at a time";
    control->release();
    listener.wait_for(completions);
  }
  EXPECT_TRUE(runner->is_done());
  EXPECT_FALSE(runner->has_news());
  EXPECT_THAT(control->take_rows_run(), ElementsAre(2, 1, 1, 1));
  for (const auto& one : all) EXPECT_EQ(one->times_completed(), 1u);
  EXPECT_EQ(bad.request.status.code(), Code::kInternal);
  EXPECT_THAT(all[0]->output<float>(0), Each(2));
  EXPECT_THAT(all[2]->output<float>(0), Each(4));
}

TEST_F(RunnerTest, HoldsABatchUntilItsDelayEnds) {
  start_batched(10'000'000);
  models::PendingRequest& first = add(1);
  first.request.times.parsed_ns = now_ns();
  EXPECT_EQ(runner->run(), 0u);
  EXPECT_TRUE(runner->has_waiting());
  EXPECT_EQ(runner->next_ns(), first.request.times.parsed_ns + 10'000'000'000u);
  EXPECT_FALSE(runner->is_done());
  add(2);
  EXPECT_EQ(runner->run(), 0u);
  EXPECT_THAT(control->take_rows_run(), IsEmpty());
  // As if the delay had passed.
  first.request.times.parsed_ns -= 10'000'000'000u;
  EXPECT_EQ(runner->run(), 2u);
  EXPECT_THAT(control->take_rows_run(), ElementsAre(2));
  expect_all_answered();
  EXPECT_EQ(runner->next_ns(), UINT64_MAX);
}

TEST_F(RunnerTest, DoesNotHoldABatchThatIsFull) {
  start_batched(10'000'000);
  for (int i = 0; i < 7; ++i) add(static_cast<float>(i));
  EXPECT_EQ(runner->run(), 0u);
  add(7);
  add(8);
  EXPECT_EQ(runner->run(), 8u);
  EXPECT_THAT(control->take_rows_run(), ElementsAre(8));
  EXPECT_TRUE(runner->has_waiting()) << "the ninth begins the next batch";
  all.back()->request.times.parsed_ns = 1;
  EXPECT_EQ(runner->run(), 1u);
  expect_all_answered();
}

TEST_F(RunnerTest, AHeldRequestThatExpiresIsAnsweredAndDoesNotRun) {
  start_batched(10'000'000);
  models::PendingRequest& late = add(1);
  late.request.deadline_ns = now_ns() + 1'000'000'000u;
  EXPECT_EQ(runner->run(), 0u);
  EXPECT_EQ(runner->next_ns(), late.request.deadline_ns);
  late.request.deadline_ns = now_ns() - 1;
  EXPECT_EQ(runner->run(), 1u);
  EXPECT_EQ(late.request.status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.request.status.message()), HasSubstr("'m'"));
  EXPECT_THAT(control->take_rows_run(), IsEmpty());
}

TEST_F(RunnerTest, LeavesAnExpiredRequestOutOfABatch) {
  start_batched();
  add(1);
  models::PendingRequest& late = add(2);
  late.request.deadline_ns = now_ns() - 1;
  add(3);
  EXPECT_EQ(runner->run(), 3u);
  EXPECT_THAT(control->take_rows_run(), ElementsAre(2));
  EXPECT_EQ(late.request.status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(all[0]->output<float>(0), Each(2));
  EXPECT_THAT(all[2]->output<float>(0), Each(4));
}

TEST_F(RunnerTest, NeverPacksAModelWhoseRowsDependOnEachOther) {
  control->models_that_sum_rows = {"m"};
  start_batched();
  for (int i = 0; i < 4; ++i) add(static_cast<float>(i));
  EXPECT_EQ(runner->run(), 4u);
  EXPECT_THAT(control->take_rows_run(), ElementsAre(1, 1, 1, 1));
  expect_all_answered();
}

// Was: with two batches at the device at once both lay in the slot's one Batch.
TEST_F(RunnerTest, TwoBatchesInFlightDoNotShareOneBatch) {
  control->asynchronous = true;
  start_batched();
  control->hold();
  for (int i = 0; i < 8; ++i) add(static_cast<float>(i));
  EXPECT_EQ(runner->run(), 8u);
  control->wait_until_held(1);
  for (int i = 8; i < 16; ++i) add(static_cast<float>(i));
  EXPECT_EQ(runner->run(), 0u) << "no room before the first is back";
  control->release();
  listener.wait_for(1);
  EXPECT_TRUE(runner->has_news());
  EXPECT_EQ(runner->run(), 8u);
  listener.wait_for(2);
  EXPECT_TRUE(runner->is_done());
  EXPECT_THAT(control->take_rows_run(), ElementsAre(8, 8));
  expect_all_answered();
}

TEST_F(RunnerTest, ADeviceThatTakesSeveralAtOnceGetsSingleRequests) {
  control->asynchronous = true;
  control->max_in_flight = 4;
  start_batched();
  control->hold();
  for (int i = 0; i < 6; ++i) add(static_cast<float>(i));
  EXPECT_EQ(runner->run(), 4u);
  EXPECT_EQ(runner->run(), 0u);
  control->release();
  listener.wait_for(4);
  EXPECT_EQ(runner->run(), 2u);
  listener.wait_for(6);
  EXPECT_TRUE(runner->is_done());
  EXPECT_THAT(control->take_rows_run(), ElementsAre(1, 1, 1, 1, 1, 1));
  expect_all_answered();
}

// Was: is_done() said no while a device's thread was inside the completion. That thread had woken
// already, so a worker that slept on this answer was not woken again.
TEST_F(RunnerTest, ALookWhileACompletionIsInsideWaitsForItToLeave) {
  control->asynchronous = true;
  start({});
  for (int round = 0; round < 20; ++round) {
    listener.keep();
    add(1);
    EXPECT_EQ(runner->run(), 1u);
    listener.wait_for(static_cast<uint32_t>(round) + 1);
    std::atomic<bool> looking{false};
    std::thread opener([&] {
      while (!looking.load()) std::this_thread::yield();
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
      listener.let_go();
    });
    looking.store(true);
    const bool is_done = runner->is_done();
    const bool has_left = listener.has_left();
    opener.join();
    ASSERT_TRUE(is_done) << "round " << round;
    ASSERT_TRUE(has_left) << "round " << round;
  }
  expect_all_answered();
}

TEST_F(RunnerTest, WantsOthersOnlyUntilTheLargestCallThatItsPlanPacksIsFull) {
  start_batched();
  for (int i = 0; i < 7; ++i) {
    models::PendingRequest& one = make(static_cast<float>(i));
    EXPECT_TRUE(runner->add(one.request)) << i;
  }
  EXPECT_FALSE(runner->add(make(7).request));
  EXPECT_EQ(runner->run(), 8u);
  EXPECT_THAT(control->take_rows_run(), ElementsAre(8));
  EXPECT_FALSE(runner->add(make(8, "m", 8).request)) << "as many rows as a call has";
  EXPECT_EQ(runner->run(), 1u);
  expect_all_answered();
}

TEST_F(RunnerTest, WantsNoOthersAfterTheFirstThatCanNotJoin) {
  control->cost_ns = &slowly_rising;
  control->models_that_sum_rows = {"alone"};
  start({.queue_type = models::QueueType::kBatched, .batch_size = 8}, {"alone", "m", "n"});
  EXPECT_FALSE(runner->add(make(1, "alone").request)) << "its plan never packs";
  EXPECT_TRUE(runner->add(make(2, "m").request));
  EXPECT_FALSE(runner->add(make(3, "n").request)) << "another model";
  EXPECT_EQ(runner->run(), 3u);
  for (const auto& one : all) EXPECT_EQ(one->times_completed(), 1u);
}

TEST_F(RunnerTest, HasSpaceForAsManyAsItWasMadeFor) {
  control->asynchronous = true;
  start({}, {"m"}, 2);
  control->hold();
  EXPECT_TRUE(runner->has_space());
  add(1);
  EXPECT_EQ(runner->run(), 1u);
  add(2);
  add(3);
  EXPECT_FALSE(runner->has_space());
  EXPECT_EQ(runner->run(), 0u) << "the instance takes one at a time";
  control->release();
  for (uint32_t room = 1; room <= 3; ++room) {
    listener.wait_for(room);
    (void)runner->run();
    EXPECT_TRUE(runner->has_space());
  }
  EXPECT_TRUE(runner->is_done());
  expect_all_answered();
}

}  // namespace
}  // namespace lumen::engine
