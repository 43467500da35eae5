// The engine over the fake backend: accepted requests complete exactly once, in any case.
#include <lumen/engine/engine.h>

#include "support/fake_backend.h"
#include "support/pending_request.h"
#include "support/submit_now.h"
#include "support/temp_repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <random>
#include <thread>

namespace lumen::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

EngineOptions with(const EngineConfig& config) {
  EngineOptions options;
  options.config = config;
  return options;
}

class EngineTest : public testing::Test {
 protected:
  void start(EngineOptions options, const std::vector<std::string>& models = {"m"}) {
    options.pin_threads.mode = PinThreads::Mode::kOff;  // tests share the machine with others
    for (const std::string& model : models) files.add_model(model);
    auto opened =
        models::ModelRepository::open(files.path(), models::make_fake_backend(control), *counters);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    repository = std::move(*opened);
    auto created = Engine::create(options, *repository);
    ASSERT_TRUE(created.ok()) << created.status().message();
    engine = std::move(*created);
  }
  std::unique_ptr<models::PendingRequest> make_request(const std::vector<float>& row = {1, 2, 3, 4},
                                                       const char* model = "m") {
    auto pending = std::make_unique<models::PendingRequest>(repository->find(model, ""));
    pending->add_input(ElementType::kFp32, {static_cast<int64_t>(row.size() / 4), 4}, row);
    return pending;
  }

  models::TempRepository files;
  std::shared_ptr<models::FakeControl> control = std::make_shared<models::FakeControl>();
  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<models::ModelRepository> repository;
  std::unique_ptr<Engine> engine;
};

TEST_F(EngineTest, RunsARequestAndCompletesIt) {
  start(EngineOptions());
  auto pending = make_request();
  ASSERT_EQ(submit_now(*engine, pending->request), SubmitOutcome::kAccepted);
  pending->wait();
  ASSERT_TRUE(pending->request.status.ok()) << pending->request.status.message();
  EXPECT_THAT(pending->output<float>(0), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(pending->request.outputs[0].shape, pending->request.inputs[0].shape);
}

TEST_F(EngineTest, StampsTheStagesInOrder) {
  start(EngineOptions());
  auto pending = make_request();
  ASSERT_EQ(submit_now(*engine, pending->request), SubmitOutcome::kAccepted);
  pending->wait();
  const models::StageTimes& times = pending->request.times;
  EXPECT_LE(times.parsed_ns, times.dequeued_ns);
  EXPECT_LE(times.dequeued_ns, times.preprocessed_ns);
  EXPECT_LE(times.preprocessed_ns, times.inferred_ns);
  EXPECT_LE(times.inferred_ns, times.postprocessed_ns);
}

TEST_F(EngineTest, CountsRowsAndCallsAndTimeOfEachModel) {
  start(EngineOptions(), {"m", "n"});
  for (int i = 0; i < 3; ++i) {
    auto pending = make_request({1, 2, 3, 4, 5, 6, 7, 8});
    ASSERT_EQ(submit_now(*engine, pending->request), SubmitOutcome::kAccepted);
    pending->wait();
  }
  const telemetry::ModelCounters m = repository->find("m", "")->counters();
  EXPECT_EQ(m.total("inference"), 6u);
  EXPECT_EQ(m.total("execution"), 3u);
  EXPECT_EQ(m.total("queue"), 3u);
  EXPECT_EQ(m.total("run"), 3u);
  EXPECT_GT(m.total("last_inference"), 1'700'000'000'000u);
  EXPECT_EQ(repository->find("n", "")->counters().total("execution"), 0u);
}

TEST_F(EngineTest, SaysFullWhenTheQueueIsFullAndStillAnswersAcceptedRequests) {
  control->hold();
  start(with({.queue_capacity = 4}));
  std::deque<std::unique_ptr<models::PendingRequest>> accepted;
  accepted.push_back(make_request());
  ASSERT_EQ(submit_now(*engine, accepted.back()->request), SubmitOutcome::kAccepted);
  control->wait_until_held(1);  // the worker holds one, so that the queue is empty
  for (int i = 0; i < 4; ++i) {
    accepted.push_back(make_request());
    ASSERT_EQ(submit_now(*engine, accepted.back()->request), SubmitOutcome::kAccepted);
  }
  auto refused = make_request();
  EXPECT_EQ(submit_now(*engine, refused->request), SubmitOutcome::kFull);
  control->release();
  for (auto& pending : accepted) pending->wait();
  engine->drain();
  for (auto& pending : accepted) EXPECT_EQ(pending->times_completed(), 1u);
  EXPECT_EQ(refused->times_completed(), 0u);
}

TEST_F(EngineTest, DrainCompletesAllThatWasAccepted) {
  control->hold();
  start(with({.thread_count = 2}));
  std::deque<std::unique_ptr<models::PendingRequest>> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back(make_request());
    ASSERT_EQ(submit_now(*engine, all.back()->request), SubmitOutcome::kAccepted);
  }
  control->wait_until_held(2);
  std::thread drainer([this] { engine->drain(); });
  control->release();
  drainer.join();
  for (auto& pending : all) {
    EXPECT_EQ(pending->times_completed(), 1u);
    EXPECT_TRUE(pending->request.status.ok());
  }
}

TEST_F(EngineTest, RefusesAfterDrainAndDrainsTwice) {
  start(EngineOptions());
  engine->drain();
  engine->drain();
  auto pending = make_request();
  EXPECT_EQ(submit_now(*engine, pending->request), SubmitOutcome::kClosed);
  EXPECT_EQ(pending->times_completed(), 0u);
}

TEST_F(EngineTest, AnswersAnExpiredRequestWithoutRunningTheModel) {
  control->hold();
  start(EngineOptions());
  auto first = make_request();
  ASSERT_EQ(submit_now(*engine, first->request), SubmitOutcome::kAccepted);
  control->wait_until_held(1);
  auto late = make_request();
  late->request.deadline_ns = now_ns();
  ASSERT_EQ(submit_now(*engine, late->request), SubmitOutcome::kAccepted);
  control->release();
  late->wait();
  EXPECT_EQ(late->request.status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(late->request.status.message(), HasSubstr("'m'"));
  EXPECT_EQ(control->starts.load(), 1u);
}

TEST_F(EngineTest, PassesOnTheBackendsReason) {
  control->model_that_fails = "bad";
  start(EngineOptions(), {"bad", "good"});
  auto failing = make_request({1, 2, 3, 4}, "bad");
  auto working = make_request({1, 2, 3, 4}, "good");
  ASSERT_EQ(submit_now(*engine, failing->request), SubmitOutcome::kAccepted);
  ASSERT_EQ(submit_now(*engine, working->request), SubmitOutcome::kAccepted);
  failing->wait();
  working->wait();
  EXPECT_EQ(failing->request.status.code(), Code::kInternal);
  EXPECT_TRUE(working->request.status.ok());
  EXPECT_EQ(repository->find("bad", "")->counters().total("execution"), 0u);
}

TEST_F(EngineTest, MarksAModelWithoutInstanceUnavailableAndServesTheRest) {
  control->models_without_instance = {"bad"};
  start(EngineOptions(), {"bad", "good"});
  EXPECT_EQ(repository->find("bad", "")->state(), models::ModelState::kUnavailable);
  EXPECT_THAT(repository->find("bad", "")->reason(), HasSubstr("no instance of 'bad'"));
  auto refused = make_request({1, 2, 3, 4}, "bad");
  auto working = make_request({1, 2, 3, 4}, "good");
  ASSERT_EQ(submit_now(*engine, refused->request), SubmitOutcome::kAccepted);
  ASSERT_EQ(submit_now(*engine, working->request), SubmitOutcome::kAccepted);
  refused->wait();
  working->wait();
  EXPECT_EQ(refused->request.status.code(), Code::kUnavailable);
  EXPECT_TRUE(working->request.status.ok());
}

TEST_F(EngineTest, MakesOneInstanceOfEachModelForEachWorker) {
  start(with({.thread_count = 3}), {"m", "n"});
  EXPECT_EQ(control->instances.load(), 6u);
}

TEST_F(EngineTest, ReturnsOnlyTheOutputsThatAreWanted) {
  control->inputs = {{"a", ElementType::kFp32, models::FakeControl::row_of_four()},
                     {"b", ElementType::kFp32, models::FakeControl::row_of_four()}};
  control->outputs = control->inputs;
  start(EngineOptions());
  auto pending = make_request({1, 1, 1, 1});
  pending->add_input<float>(ElementType::kFp32, {1, 4}, {5, 5, 5, 5});
  pending->want_outputs({1});
  ASSERT_EQ(submit_now(*engine, pending->request), SubmitOutcome::kAccepted);
  pending->wait();
  ASSERT_EQ(pending->request.outputs.size(), 1u);
  EXPECT_THAT(pending->output<float>(0), ElementsAre(6, 6, 6, 6));
}

TEST_F(EngineTest, KeepsSeveralPendingAtAnAsynchronousBackend) {
  control->asynchronous = true;
  control->max_in_flight = 4;
  control->hold();
  start(EngineOptions());
  std::deque<std::unique_ptr<models::PendingRequest>> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(make_request({static_cast<float>(i), 0, 0, 0}));
    ASSERT_EQ(submit_now(*engine, all.back()->request), SubmitOutcome::kAccepted);
  }
  control->wait_until_held(1);
  control->release();
  for (int i = 0; i < 20; ++i) {
    all[static_cast<size_t>(i)]->wait();
    EXPECT_EQ(all[static_cast<size_t>(i)]->output<float>(0)[0], static_cast<float>(i + 1));
  }
  engine->drain();
  for (auto& pending : all) EXPECT_EQ(pending->times_completed(), 1u);
}

TEST_F(EngineTest, LetsOtherModelsPassARequestThatMustWaitForRoom) {
  control->asynchronous = true;
  start(EngineOptions(), {"m", "n"});
  control->hold();
  auto first = make_request();
  auto second = make_request();
  auto other = make_request({1, 2, 3, 4}, "n");
  ASSERT_EQ(submit_now(*engine, first->request), SubmitOutcome::kAccepted);
  ASSERT_EQ(submit_now(*engine, second->request), SubmitOutcome::kAccepted);
  ASSERT_EQ(submit_now(*engine, other->request), SubmitOutcome::kAccepted);
  control->wait_until_held(2);  // the devices of both models: `second` did not block `other`
  control->release();
  for (models::PendingRequest* pending : {first.get(), second.get(), other.get()}) {
    pending->wait();
    EXPECT_TRUE(pending->request.status.ok());
  }
}

TEST_F(EngineTest, ExpiresARequestThatWaitsForRoomWhileNothingElseHappens) {
  control->asynchronous = true;
  control->hold();
  start(EngineOptions());
  auto first = make_request();
  auto late = make_request();
  late->request.deadline_ns = now_ns() + 2'000'000;
  ASSERT_EQ(submit_now(*engine, first->request), SubmitOutcome::kAccepted);
  control->wait_until_held(1);
  ASSERT_EQ(submit_now(*engine, late->request), SubmitOutcome::kAccepted);
  late->wait();  // while the device is still held
  EXPECT_EQ(late->request.status.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(first->times_completed(), 0u);
  control->release();
  first->wait();
}

TEST_F(EngineTest, DrainWaitsForRequestsThatAreStillAtTheDevice) {
  control->asynchronous = true;
  control->max_in_flight = 8;
  control->hold();
  start(EngineOptions());
  std::deque<std::unique_ptr<models::PendingRequest>> all;
  for (int i = 0; i < 30; ++i) {
    all.push_back(make_request());
    ASSERT_EQ(submit_now(*engine, all.back()->request), SubmitOutcome::kAccepted);
  }
  control->wait_until_held(1);
  std::thread drainer([this] { engine->drain(); });
  control->release();
  drainer.join();
  for (auto& pending : all) EXPECT_EQ(pending->times_completed(), 1u);
}

// Counts how often it was woken, and notes whether a completion came after the last wake.
class CountingSink final : public models::CompletionSink {
 public:
  void wake() noexcept override {
    wakes_.fetch_add(1, std::memory_order_seq_cst);
    wakes_.notify_all();
  }
  void wait_for_wake() const { wakes_.wait(0); }
  [[nodiscard]] int wakes() const { return wakes_.load(); }

 private:
  std::atomic<int> wakes_{0};
};

// Completions that follow within 20 us share a wake-up. On a slow machine most of them lie further
// apart, so there are many; a sink that is woken for each completion fails.
TEST_F(EngineTest, FlushesTheSinkOnceForCompletionsThatFollowClosely) {
  constexpr int kRounds = 50;
  constexpr int kRequests = 100;  // of a round
  start(EngineOptions());
  CountingSink sink;
  for (int round = 0; round < kRounds; ++round) {
    std::deque<std::unique_ptr<models::PendingRequest>> all;
    for (int i = 0; i < kRequests; ++i) {
      all.push_back(make_request());
      all.back()->request.sink = &sink;
      ASSERT_EQ(submit_now(*engine, all.back()->request), SubmitOutcome::kAccepted);
    }
    for (const auto& pending : all) pending->wait();
  }
  engine->drain();
  EXPECT_GE(sink.wakes(), 1);
  EXPECT_LT(sink.wakes(), kRounds * kRequests);
}

TEST_F(EngineTest, FlushesTheSinkOfEveryKindOfCompletion) {
  control->model_that_fails = "bad";
  start(EngineOptions(), {"bad", "good"});
  for (const char* model : {"bad", "good"}) {
    CountingSink sink;
    auto pending = make_request({1, 2, 3, 4}, model);
    pending->request.sink = &sink;
    ASSERT_EQ(submit_now(*engine, pending->request), SubmitOutcome::kAccepted);
    sink.wait_for_wake();
    EXPECT_EQ(pending->times_completed(), 1u);
  }
  CountingSink sink;
  auto late = make_request({1, 2, 3, 4}, "good");
  late->request.deadline_ns = 1;
  late->request.sink = &sink;
  ASSERT_EQ(submit_now(*engine, late->request), SubmitOutcome::kAccepted);
  sink.wait_for_wake();
}

TEST_F(EngineTest, WakesWorkersForRequestsSubmittedWithoutAWakeUp) {
  start(with({.thread_count = 2}));
  while (counters->total("worker_parks") < 2) std::this_thread::yield();
  std::deque<std::unique_ptr<models::PendingRequest>> all;
  for (int i = 0; i < 10; ++i) {
    all.push_back(make_request());
    ASSERT_EQ(engine->submitter(0).submit(all.back()->request), SubmitOutcome::kAccepted);
  }
  engine->submitter(0).end_turn();
  for (auto& pending : all) pending->wait();
}

TEST_F(EngineTest, ParksWhenThereIsNothingToDo) {
  start(EngineOptions());
  auto pending = make_request();
  ASSERT_EQ(submit_now(*engine, pending->request), SubmitOutcome::kAccepted);
  pending->wait();
  // Bounded by the test's own time limit: a worker that never parks never gets there.
  while (counters->total("worker_parks") == 0) std::this_thread::yield();
  SUCCEED();
}

TEST(EngineOptionsTest, AreRefusedWithTheWantedValues) {
  models::TempRepository files;
  files.add_model("m");
  const auto counters = std::make_unique<telemetry::Counters>();
  auto repository = models::ModelRepository::open(
      files.path(), models::make_fake_backend(std::make_shared<models::FakeControl>()), *counters);
  ASSERT_TRUE(repository.ok());
  EXPECT_THAT(Engine::create(with({.thread_count = 1000}), **repository).status().message(),
              HasSubstr("wanted 0 to 256"));
  EXPECT_THAT(Engine::create(with({.queue_capacity = 3}), **repository).status().message(),
              HasSubstr("power of two"));
}

}  // namespace
}  // namespace lumen::engine
