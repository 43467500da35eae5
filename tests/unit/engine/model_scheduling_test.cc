// The part of a model's config.json about how and where its requests run, seen through the engine.
// Threads: the test's and the engine's. Memory: the heap. Errors: by gtest.
#include "unit/engine/scheduler_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace lumen::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// No row is cheaper for others beside it.
uint64_t two_milliseconds(uint64_t rows) { return rows * 2'000'000; }
uint64_t a_microsecond(uint64_t) { return 1'000; }

class ModelScheduling : public SchedulerTest {
 protected:
  // Of the model "m", which start() adds.
  void configure(const std::string& json) {
    files.add_model("m");
    files.write("m/config.json", json);
  }
  // The workers that have run 20 requests.
  std::set<uint32_t> workers_of(models::Model& one) {
    std::vector<std::unique_ptr<models::PendingRequest>> mine;
    for (int i = 0; i < 20; ++i) {
      mine.push_back(std::make_unique<models::PendingRequest>(&one, 4096));
      mine.back()->add_input<float>(ElementType::kFp32, {1, 4}, {1, 1, 1, 1});
      EXPECT_EQ(submit_now(*engine, mine.back()->request), SubmitOutcome::kAccepted);
    }
    std::set<uint32_t> workers;
    for (const auto& request : mine) {
      while (request->times_completed() == 0) (void)engine->submitter(0).end_turn();
      workers.insert(request->request.worker);
    }
    return workers;
  }
};

TEST_F(ModelScheduling, AModelRunsOnTheWorkersThatItsConfigNames) {
  configure(R"({"workers": [2]})");
  files.add_model("other");
  control->cost_ns = &two_milliseconds;
  for (const models::QueueType type :
       {models::QueueType::kAuto, models::QueueType::kMpmc, models::QueueType::kBatched}) {
    const EngineConfig config{.queue_type = type, .thread_count = 4};
    if (engine == nullptr) {
      start(config);
      EXPECT_EQ(control->instances.load(), 5u) << "four of the other model";
    } else {
      ASSERT_TRUE(engine->reconfigure(config).ok());
    }
    EXPECT_THAT(workers_of(*model), ElementsAre(2)) << name_of(type);
    EXPECT_GT(workers_of(*repository->find("other", "")).size(), 1u) << name_of(type);
  }
}

TEST_F(ModelScheduling, InstancesAreSoManyWorkers) {
  configure(R"({"instances": 2})");
  control->cost_ns = &two_milliseconds;
  start({.queue_type = models::QueueType::kAuto, .thread_count = 4});
  EXPECT_EQ(control->instances.load(), 2u);
  EXPECT_LE(workers_of(*model).size(), 2u);
  ASSERT_TRUE(
      engine->reconfigure({.queue_type = models::QueueType::kAuto, .thread_count = 1}).ok());
  EXPECT_THAT(workers_of(*model), ElementsAre(0)) << "fewer workers than instances: all of them";
}

// It would have an instance there too.
TEST_F(ModelScheduling, AModelThatIsGivenToWorkersNeverRunsOnAnIoThread) {
  configure(R"({"instances": 1})");
  control->cost_ns = &a_microsecond;
  start({.queue_type = models::QueueType::kAuto, .thread_count = 2});
  EXPECT_EQ(control->instances.load(), 1u);
  ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  all[0]->wait();
  EXPECT_NE(all[0]->request.queue_type, models::QueueType::kInline);
  EXPECT_THAT(engine->usual_lane_of(*model).why, HasSubstr("its config.json"));
}

TEST_F(ModelScheduling, AWorkerThatThereIsNotMakesTheModelUnavailableAndSaysSo) {
  configure(R"({"workers": [0, 7]})");
  files.add_model("other");
  start({.queue_type = models::QueueType::kAuto, .thread_count = 2});
  EXPECT_EQ(model->state(), models::ModelState::kUnavailable);
  EXPECT_THAT(model->reason(), HasSubstr("gives it to worker 7, and the engine has 2, from 0 on"));
  EXPECT_EQ(repository->find("other", "")->state(), models::ModelState::kReady);
}

TEST_F(ModelScheduling, AChangeToFewerWorkersThanAModelNamesIsRefusedAndTheModelGoesOn) {
  configure(R"({"workers": [1]})");
  control->cost_ns = &two_milliseconds;
  start({.queue_type = models::QueueType::kAuto, .thread_count = 2});
  const Status status =
      engine->reconfigure({.queue_type = models::QueueType::kAuto, .thread_count = 1});
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker 1, and the engine has 1"));
  EXPECT_THAT(workers_of(*model), ElementsAre(1));
}

TEST_F(ModelScheduling, ATypeOfItsOwnCountsBesideAuto) {
  configure(R"({"queue_type": "mpmc"})");
  control->cost_ns = &a_microsecond;
  start({.queue_type = models::QueueType::kAuto});
  ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  all[0]->wait();
  EXPECT_EQ(all[0]->request.queue_type, models::QueueType::kMpmc) << "though it is light";
  EXPECT_THAT(engine->usual_lane_of(*model).why, HasSubstr("the queue_type of its config.json"));
}

TEST_F(ModelScheduling, AnInlineModelHasNoInstanceOnTheWorkers) {
  configure(R"({"queue_type": "inline"})");
  control->cost_ns = &two_milliseconds;
  start({.queue_type = models::QueueType::kAuto, .thread_count = 3});
  EXPECT_EQ(control->instances.load(), 1u);
  ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
  turn_until_complete();
  EXPECT_EQ(all[0]->request.queue_type, models::QueueType::kInline) << "though it is heavy";
}

TEST_F(ModelScheduling, ABatchedModelIsPackedBesideAuto) {
  configure(R"({"queue_type": "batched"})");
  control->cost_ns = &slowly_rising;
  start({.queue_type = models::QueueType::kAuto, .batch_size = 4});
  control->hold();
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(submit(), SubmitOutcome::kAccepted);
    if (i == 0) control->wait_until_held(1);
  }
  control->release();
  for (const auto& one : all) one->wait();
  EXPECT_THAT(control->take_rows_run(), ElementsAre(1, 4));
}

// If a model runs on the I/O threads, an urgent request passes those that wait there too.
TEST_F(ModelScheduling, AnUrgentRequestPassesThoseThatWait) {
  for (const models::QueueType type :
       {models::QueueType::kInline, models::QueueType::kMpmc, models::QueueType::kAuto}) {
    control->cost_ns = &two_milliseconds;
    const EngineConfig config{.queue_type = type, .batch_size = 1};
    if (engine == nullptr) {
      start(config);
    } else {
      ASSERT_TRUE(engine->reconfigure(config).ok());
    }
    all.clear();
    control->hold();
    const bool has_workers = type != models::QueueType::kInline;
    for (uint32_t priority : {2u, 3u, 0u, 1u}) {
      models::PendingRequest& one = make();
      one.request.priority = priority;
      ASSERT_EQ(engine->submitter(0).submit(one.request), SubmitOutcome::kAccepted);
      if (has_workers) (void)engine->submitter(0).end_turn();
      if (has_workers && all.size() == 1) control->wait_until_held(1);
    }
    control->release();
    for (const auto& one : all) {
      while (one->times_completed() == 0) (void)engine->submitter(0).end_turn();
    }
    const auto ran_before = [this](size_t one, size_t other) {
      return all[one]->request.times.dequeued_ns < all[other]->request.times.dequeued_ns;
    };
    EXPECT_TRUE(ran_before(3, 2)) << name_of(type);
    EXPECT_TRUE(ran_before(2, 1)) << name_of(type);
    EXPECT_TRUE(ran_before(3, 0) == !has_workers) << name_of(type);
  }
}

}  // namespace
}  // namespace lumen::engine
