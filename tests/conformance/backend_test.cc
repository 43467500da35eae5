// The duties of every backend, run over all of them. The model adds one.
#include <lumen/models/backend.h>
#include <lumen/models/model_repository.h>

#include "conformance/backend_cases.h"
#include "support/pending_request.h"
#include "support/source_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace lumen::engine {
namespace {

class BackendTest : public testing::TestWithParam<BackendCase> {
 protected:
  void load(const std::string& model) {
    const std::filesystem::path directory = test::source_path("tests/fixtures/backend");
    auto opened = models::ModelRepository::open(directory, GetParam().make().backend, *counters);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    repository = std::move(*opened);
    loaded = repository->find(model, "");
    ASSERT_NE(loaded, nullptr);
    ASSERT_EQ(loaded->state(), models::ModelState::kReady) << loaded->reason();
    instance = make_instance();
  }
  std::unique_ptr<models::Instance> make_instance() {
    auto made = loaded->loaded()->create_instance({});
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(*made) : nullptr;
  }
  static void run(models::Instance& on, models::PendingRequest& pending) {
    const auto done = [](models::InferRequest& request) noexcept { request.complete(request); };
    if (on.start(pending.request, done) == models::StartOutcome::kDone) done(pending.request);
    pending.wait();
  }
  // Runs `rows` x `columns` numbers counting up from `first` and expects each plus one.
  void expect_adds_one(models::Instance& on, int64_t rows, int64_t columns, float first) {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    std::iota(values.begin(), values.end(), first);
    models::PendingRequest pending(loaded);
    pending.add_input(ElementType::kFp32, {rows, columns}, values);
    run(on, pending);
    ASSERT_TRUE(pending.request.status.ok()) << pending.request.status.message();
    ASSERT_EQ(pending.request.outputs.size(), 1u);
    EXPECT_EQ(pending.request.outputs[0].shape, pending.request.inputs[0].shape);
    EXPECT_TRUE(pending.arena().owns(pending.request.outputs[0].data));
    for (float& value : values) value += 1;
    EXPECT_EQ(pending.output<float>(0), values);
  }

  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<models::ModelRepository> repository;
  models::Model* loaded = nullptr;
  std::unique_ptr<models::Instance> instance;
};

TEST_P(BackendTest, RunsAnyNumberOfRowsInAnyOrder) {
  load("add_one");
  for (const int64_t rows : {1, 3, 1, 1, 7, 3, 2000, 1}) {
    expect_adds_one(*instance, rows, 4, static_cast<float>(rows));
  }
}

TEST_P(BackendTest, RunsLargeTensorsThatLieElsewhereEachTime) {
  load("add_one_large");
  for (int i = 0; i < 6; ++i) expect_adds_one(*instance, 1 + i % 3, 16384, static_cast<float>(i));
}

TEST_P(BackendTest, RunsAModelWithNoFreeAxis) {
  load("add_one_fixed");
  for (int i = 0; i < 3; ++i) expect_adds_one(*instance, 2, 16384, static_cast<float>(i));
}

TEST_P(BackendTest, RunsAModelWhoseAxesAreAllFree) {
  load("add_one_free");
  for (const int64_t columns : {1, 5, 5, 8000, 3}) expect_adds_one(*instance, 2, columns, 0.5f);
}

TEST_P(BackendTest, ReadsLargeInputThatIsNotAligned) {
  load("add_one_large");
  models::PendingRequest pending(loaded);
  std::vector<std::byte> bytes(1 + 16384 * sizeof(float));
  const float value = 41;
  for (size_t i = 0; i < 16384; ++i) std::memcpy(&bytes[1 + i * 4], &value, sizeof(value));
  pending.add_input(ElementType::kUint8, {1, 16384}, bytes);
  pending.request.inputs[0].type = ElementType::kFp32;
  pending.request.inputs[0].data += 1;
  pending.request.inputs[0].byte_size -= 1;
  run(*instance, pending);
  ASSERT_TRUE(pending.request.status.ok()) << pending.request.status.message();
  EXPECT_EQ(pending.output<float>(0), std::vector<float>(16384, 42.0f));
}

TEST_P(BackendTest, RefusesARequestWithoutRoomForItsOutputAndRunsTheNext) {
  for (const char* model : {"add_one_large", "add_one_free"}) {
    SCOPED_TRACE(model);
    load(model);
    models::PendingRequest cramped(loaded,
                                   64 * 1024 + 4096);  // the input fits, the output does not
    cramped.add_input(ElementType::kFp32, {1, 16384}, std::vector<float>(16384, 1.0f));
    run(*instance, cramped);
    EXPECT_EQ(cramped.request.status.code(), Code::kTooLarge);
    expect_adds_one(*instance, 1, 16384, 3);
  }
}

TEST_P(BackendTest, LeavesTheInputAsItWas) {
  load("add_one_large");
  models::PendingRequest pending(loaded);
  const std::vector<float> values(16384, 5.0f);
  pending.add_input(ElementType::kFp32, {1, 16384}, values);
  run(*instance, pending);
  std::vector<float> after(values.size());
  std::memcpy(after.data(), pending.request.inputs[0].data, after.size() * sizeof(float));
  EXPECT_EQ(after, values);
}

TEST_P(BackendTest, KeepsTheAnswersOfRequestsBeforeAsTheyWere) {
  load("add_one_large");
  models::PendingRequest first(loaded);
  first.add_input(ElementType::kFp32, {1, 16384}, std::vector<float>(16384, 1.0f));
  run(*instance, first);
  expect_adds_one(*instance, 1, 16384, 100);
  EXPECT_EQ(first.output<float>(0), std::vector<float>(16384, 2.0f));
}

TEST_P(BackendTest, StampsTheStagesInOrder) {
  load("add_one");
  models::PendingRequest pending(loaded);
  const uint64_t before = now_ns();
  pending.add_input<float>(ElementType::kFp32, {1, 4}, {1, 2, 3, 4});
  run(*instance, pending);
  const models::StageTimes& times = pending.request.times;
  EXPECT_LE(before, times.preprocessed_ns);
  EXPECT_LE(times.preprocessed_ns, times.inferred_ns);
  EXPECT_LE(times.inferred_ns, times.postprocessed_ns);
}

TEST_P(BackendTest, RunsTwoInstancesOfAModelOnTwoThreadsAtOnce) {
  load("add_one");
  const std::unique_ptr<models::Instance> second = make_instance();
  std::thread other([&] {
    for (int i = 0; i < 200; ++i) expect_adds_one(*second, 1 + i % 2, 4, static_cast<float>(i));
  });
  for (int i = 0; i < 200; ++i) expect_adds_one(*instance, 1 + i % 2, 4, static_cast<float>(-i));
  other.join();
}

TEST_P(BackendTest, NamesItself) { EXPECT_FALSE(GetParam().make().backend->description().empty()); }

INSTANTIATE_TEST_SUITE_P(All, BackendTest, testing::ValuesIn(all_backends()),
                         [](const testing::TestParamInfo<BackendCase>& one) {
                           return one.param.name;
                         });

}  // namespace
}  // namespace lumen::engine
