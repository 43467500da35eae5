// The engine and a backend together, over all backends: batches, several in flight, failed and
// cancelled requests, a drain, and a model that goes. The model adds one to four columns.
#include <lumen/engine/engine.h>
#include <lumen/models/model_repository.h>

#include "conformance/backend_cases.h"
#include "support/pending_request.h"
#include "support/source_dir.h"
#include "support/submit_now.h"
#include "support/temp_repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

namespace lumen::engine {
namespace {

constexpr uint32_t kWorkers = 2;
constexpr float kFails = 666;

class BackendInEngineTest : public testing::TestWithParam<BackendCase> {
 protected:
  void SetUp() override {
    files.copy_model(test::source_path("tests/fixtures/backend/add_one/1"), "add_one");
    MadeBackend made = GetParam().make();
    control = made.control;
    Shape rows_of_four;
    ASSERT_TRUE(rows_of_four.append(Shape::kDynamic) && rows_of_four.append(4));
    if (control != nullptr) {
      control->inputs[0].shape = rows_of_four;
      control->outputs[0].shape = rows_of_four;
      control->value_that_fails = kFails;
      // While it is measured, a batch is cheap; it answers at once then.
      control->cost_ns = [](uint64_t) -> uint64_t { return 300'000; };
    }
    repository = std::move(
        models::ModelRepository::open(files.path(), std::move(made.backend), *counters).value());
    EngineOptions options;
    options.config = {
        .queue_type = models::QueueType::kBatched, .thread_count = kWorkers, .batch_size = 4};
    options.pin_threads.mode = PinThreads::Mode::kOff;
    engine = std::move(Engine::create(options, *repository).value());
    if (control != nullptr) {
      control->cost_ns = nullptr;
      (void)control->take_rows_run();
    }
    model = repository->find("add_one", "");
    ASSERT_EQ(model->state(), models::ModelState::kReady) << model->reason();
  }
  void TearDown() override {
    if (control != nullptr) control->release();
  }
  bool is_asynchronous() const { return control != nullptr && control->asynchronous; }
  void make_requests(int count) {
    for (int i = 0; i < count; ++i) {
      requests.push_back(std::make_unique<models::PendingRequest>(model));
      const auto value = static_cast<float>(i);
      requests.back()->add_input<float>(ElementType::kFp32, {1, 4}, {value, value, value, value});
    }
  }
  void submit_all() {
    for (const auto& pending : requests) {
      ASSERT_EQ(engine->submitter(0).submit(pending->request), SubmitOutcome::kAccepted);
    }
    engine->submitter(0).end_turn();
  }
  void expect_answered(size_t index) {
    requests[index]->wait();
    ASSERT_TRUE(requests[index]->request.status.ok()) << requests[index]->request.status.message();
    EXPECT_EQ(requests[index]->output<float>(0),
              std::vector<float>(4, static_cast<float>(index) + 1));
  }

  models::TempRepository files;
  std::shared_ptr<models::FakeControl> control;
  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<models::ModelRepository> repository;
  std::unique_ptr<Engine> engine;
  models::Model* model = nullptr;
  std::vector<std::unique_ptr<models::PendingRequest>> requests;
};

TEST_P(BackendInEngineTest, PacksRequestsAndHasFourCallsInFlightWhereItSaysSo) {
  make_requests(64);
  const uint64_t before = control == nullptr ? 0 : control->starts.load();
  if (is_asynchronous()) control->hold();
  submit_all();
  if (is_asynchronous()) {
    // Every worker has as many calls out as the device takes.
    for (uint64_t now = control->starts.load(); now < before + kWorkers * 4;) {
      control->starts.wait(now);
      now = control->starts.load();
    }
    control->release();
  }
  for (size_t i = 0; i < requests.size(); ++i) expect_answered(i);
  if (!is_asynchronous()) return;
  EXPECT_EQ(control->instances.load(), control->traits.shares_instances ? 1 : kWorkers);
  const std::vector<uint64_t> rows = control->take_rows_run();
  EXPECT_EQ(std::ranges::max(rows), control->traits.batches_in_flight ? 4u : 1u);
}

TEST_P(BackendInEngineTest, ARequestThatFailsFailsNoneThatWasPackedWithIt) {
  if (control == nullptr) return;  // OpenVINO's failures: openvino_failed_runs_test.cc
  make_requests(40);
  for (const size_t bad : {3u, 4u, 17u}) {
    std::fill_n(reinterpret_cast<float*>(requests[bad]->request.inputs[0].data), 4, kFails);
  }
  submit_all();
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i != 3 && i != 4 && i != 17) {
      expect_answered(i);
      continue;
    }
    requests[i]->wait();
    EXPECT_EQ(requests[i]->request.status.code(), Code::kInternal);
  }
}

TEST_P(BackendInEngineTest, ARequestThatIsCancelledBeforeItsRunIsAnsweredWithoutOne) {
  make_requests(40);
  for (size_t i = 0; i < requests.size(); i += 2) requests[i]->request.cancelled.set();
  submit_all();
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i % 2 == 1) {
      expect_answered(i);
    } else {
      requests[i]->wait();
      EXPECT_EQ(requests[i]->request.status.code(), Code::kCancelled);
    }
  }
}

TEST_P(BackendInEngineTest, ADrainWaitsForAllThatIsOut) {
  make_requests(64);
  submit_all();
  engine->drain();
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i]->times_completed(), 1u);
    expect_answered(i);
  }
}

TEST_P(BackendInEngineTest, AModelGoesWithItsInstancesAndComesAgain) {
  for (int round = 0; round < 3; ++round) {
    requests.clear();
    make_requests(24);
    submit_all();
    for (size_t i = 0; i < requests.size(); ++i) expect_answered(i);
    engine->remove_model(*model);
    if (control != nullptr) {
      EXPECT_EQ(control->live_instances.load(), 0u);
    }
    ASSERT_TRUE(engine->add_model(*model).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(All, BackendInEngineTest, testing::ValuesIn(all_backends()),
                         [](const testing::TestParamInfo<BackendCase>& one) {
                           return one.param.name;
                         });

}  // namespace
}  // namespace lumen::engine
