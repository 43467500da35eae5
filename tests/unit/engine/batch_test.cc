// Batch: packed rows come out for each request as if it had run alone.
// Threads: the test's. Memory: the heap. Errors: by gtest.
#include "engine/batch.h"

#include "support/fake_backend.h"
#include "support/pending_request.h"
#include "support/temp_repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>

namespace lumen::engine {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

Shape shape(std::initializer_list<int64_t> dimensions) {
  Shape made;
  for (const int64_t d : dimensions) EXPECT_TRUE(made.append(d));
  return made;
}

class BatchTest : public testing::TestWithParam<RequestMemory::Kind> {
 protected:
  // A model of two inputs and two outputs, [-1, 4] FP32 and [-1, -1] FP32.
  void SetUp() override {
    control->inputs = {{"a", ElementType::kFp32, models::FakeControl::row_of_four()},
                       {"b", ElementType::kFp32, shape({-1, -1})}};
    control->outputs = control->inputs;
    files.add_model("m");
    files.add_model("n");
    repository = std::move(
        models::ModelRepository::open(files.path(), models::make_fake_backend(control), *counters)
            .value());
    instance = std::move(repository->find("m", "")->loaded()->create_instance({}).value());
    batch = std::make_unique<Batch>(Batch::create(16, 1 << 20, GetParam()).value());
  }
  // Rows filled with `first`, `first` + 1 and so on, input b with a hundred more.
  models::PendingRequest& add(int64_t rows, float first, size_t memory_bytes = 1 << 16,
                              const char* model = "m", int64_t columns_of_b = 2) {
    all.push_back(
        std::make_unique<models::PendingRequest>(repository->find(model, ""), memory_bytes));
    std::vector<float> a;
    std::vector<float> b;
    for (int64_t row = 0; row < rows; ++row) {
      a.insert(a.end(), 4, first + static_cast<float>(row));
      b.insert(b.end(), static_cast<size_t>(columns_of_b), first + 100 + static_cast<float>(row));
    }
    all.back()->add_input(ElementType::kFp32, {rows, 4}, a);
    all.back()->add_input(ElementType::kFp32, {rows, columns_of_b}, b);
    members.push_back(&all.back()->request);
    return *all.back();
  }
  void run(uint32_t run_rows) {
    ASSERT_TRUE(batch->pack(members, run_rows));
    ASSERT_EQ(instance->start(batch->request(), nullptr), models::StartOutcome::kDone);
    batch->split();
  }

  models::TempRepository files;
  std::shared_ptr<models::FakeControl> control = std::make_shared<models::FakeControl>();
  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<models::ModelRepository> repository;
  std::unique_ptr<models::Instance> instance;
  std::unique_ptr<Batch> batch;
  std::deque<std::unique_ptr<models::PendingRequest>> all;
  std::vector<models::InferRequest*> members;
};

TEST_P(BatchTest, GivesEachRequestItsOwnRowsOfEveryOutput) {
  add(1, 10);
  add(3, 20);
  add(2, 30);
  run(6);
  float first = 10;
  for (const auto& one : all) {
    ASSERT_TRUE(one->request.status.ok()) << one->request.status.message();
    ASSERT_EQ(one->request.outputs.size(), 2u);
    EXPECT_EQ(one->request.outputs[0].shape, one->request.inputs[0].shape);
    EXPECT_EQ(one->request.outputs[1].shape, one->request.inputs[1].shape);
    const auto rows = static_cast<size_t>(one->request.inputs[0].shape[0]);
    for (size_t row = 0; row < rows; ++row) {
      const float want = first + static_cast<float>(row) + 1;
      for (size_t i = 0; i < 4; ++i) EXPECT_EQ(one->output<float>(0)[row * 4 + i], want);
      for (size_t i = 0; i < 2; ++i) EXPECT_EQ(one->output<float>(1)[row * 2 + i], want + 100);
    }
    first += 10;
  }
}

TEST_P(BatchTest, RunsZerosInTheRowsThatNobodyHas) {
  add(1, 10);
  add(1, 20);
  ASSERT_TRUE(batch->pack(members, 8));
  const TensorView& packed = batch->request().inputs[0];
  EXPECT_EQ(packed.shape, shape({8, 4}));
  EXPECT_EQ(packed.byte_size, 8 * 4 * sizeof(float));
  std::vector<float> values(32);
  std::memcpy(values.data(), packed.data, packed.byte_size);
  EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 4), Each(10));
  EXPECT_THAT(std::vector<float>(values.begin() + 4, values.begin() + 8), Each(20));
  EXPECT_THAT(std::vector<float>(values.begin() + 8, values.end()), Each(0));
  run(8);
  EXPECT_THAT(all[1]->output<float>(0), ElementsAre(21, 21, 21, 21));
  EXPECT_EQ(all[1]->request.outputs[0].shape, shape({1, 4}));
}

TEST_P(BatchTest, GivesOnlyTheOutputsThatEachRequestWants) {
  add(1, 10).want_outputs({1});
  add(1, 20);
  add(1, 30).want_outputs({1, 0});
  run(3);
  ASSERT_EQ(all[0]->request.outputs.size(), 1u);
  EXPECT_THAT(all[0]->output<float>(0), ElementsAre(111, 111));
  ASSERT_EQ(all[1]->request.outputs.size(), 2u);
  ASSERT_EQ(all[2]->request.outputs.size(), 2u);
  EXPECT_THAT(all[2]->output<float>(0), ElementsAre(131, 131));
  EXPECT_THAT(all[2]->output<float>(1), ElementsAre(31, 31, 31, 31));
}

TEST_P(BatchTest, ARequestWithoutRoomForItsOutputsFailsAlone) {
  add(1, 10);
  models::PendingRequest& poor = add(1, 20);
  while (poor.arena().allocate(16, 16) != nullptr) {
  }
  add(1, 30);
  run(3);
  EXPECT_TRUE(all[0]->request.status.ok());
  EXPECT_EQ(all[1]->request.status.code(), Code::kTooLarge);
  EXPECT_THAT(all[1]->request.status.message(), HasSubstr("'m'"));
  EXPECT_THAT(all[2]->output<float>(0), ElementsAre(31, 31, 31, 31));
}

TEST_P(BatchTest, SaysNoWhenItsOwnMemoryDoesNotHoldTheInputs) {
  add(1, 10);
  add(1, 20);
  batch = std::make_unique<Batch>(Batch::create(16, 4096, GetParam()).value());
  EXPECT_FALSE(batch->pack(members, 1024));
  (void)batch->reset();
  EXPECT_TRUE(batch->pack(members, 2)) << "usable again";
}

TEST_P(BatchTest, PassesAFailedRunToAllItsMembers) {
  add(1, 10);
  add(1, 20);
  ASSERT_TRUE(batch->pack(members, 2));
  batch->request().status = Status::error(Code::kInternal, "gone wrong");
  batch->split();
  for (const auto& one : all) EXPECT_EQ(one->request.status.code(), Code::kInternal);
}

TEST_P(BatchTest, TellsOnAModelWhoseOutputRowsAreNotItsInputRows) {
  add(1, 10);
  add(1, 20);
  ASSERT_TRUE(batch->pack(members, 2));
  ASSERT_EQ(instance->start(batch->request(), nullptr), models::StartOutcome::kDone);
  batch->request().outputs[1].shape[0] = 1;
  batch->split();
  EXPECT_EQ(all[0]->request.status.code(), Code::kInternal);
  EXPECT_THAT(all[0]->request.status.message(), HasSubstr("'b' of a batch of 2 rows has 1"));
}

TEST_P(BatchTest, StampsEveryMemberWithTheTimesOfTheCall) {
  add(1, 10);
  add(1, 20);
  run(2);
  for (const auto& one : all) {
    EXPECT_EQ(one->request.times.inferred_ns, batch->request().times.inferred_ns);
    EXPECT_EQ(one->request.times.preprocessed_ns, batch->request().times.preprocessed_ns);
    EXPECT_GT(one->request.times.postprocessed_ns, 0u);
  }
}

TEST_P(BatchTest, CountsItsMemoryAndForgetsItsMembers) {
  for (int round = 0; round < 3; ++round) {
    members.clear();
    add(1, 10);
    add(1, 20);
    run(2);
    const RequestMemory::Usage usage = batch->reset();
    if (GetParam() == RequestMemory::Kind::kHeap) {
      // Two inputs, two outputs, the list of outputs: each a malloc and a free.
      EXPECT_EQ(usage.heap_calls, 10u);
      EXPECT_EQ(usage.arena_bytes, 0u);
    } else {
      EXPECT_EQ(usage.heap_calls, 0u);
      EXPECT_GE(usage.arena_bytes, 2 * (2 * 4 + 2 * 2) * sizeof(float));
    }
    EXPECT_TRUE(batch->members().empty());
  }
}

TEST_P(BatchTest, ARandomSplitOfRowsGivesEachTheRowsItSent) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    members.clear();
    all.clear();
    uint32_t rows = 0;
    for (size_t i = 0; i < 1 + random() % 16; ++i) {
      const auto own = static_cast<int64_t>(1 + random() % 4);
      add(own, static_cast<float>(random() % 1000));
      rows += static_cast<uint32_t>(own);
    }
    run(rows + static_cast<uint32_t>(random() % 8));
    for (const auto& one : all) {
      ASSERT_TRUE(one->request.status.ok());
      for (size_t output = 0; output < 2; ++output) {
        std::vector<float> want(one->request.inputs[output].byte_size / sizeof(float));
        std::memcpy(want.data(), one->request.inputs[output].data,
                    one->request.inputs[output].byte_size);
        for (float& value : want) value += 1;
        EXPECT_EQ(one->output<float>(output), want) << "round " << round;
      }
    }
    (void)batch->reset();
  }
}

TEST_P(BatchTest, OnlyRequestsThatDifferInRowsAloneShareACall) {
  const models::InferRequest& one = add(1, 0).request;
  EXPECT_TRUE(can_share_call(one, add(3, 0).request));
  EXPECT_FALSE(can_share_call(one, add(1, 0, 1 << 16, "n").request)) << "another model";
  EXPECT_FALSE(can_share_call(one, add(1, 0, 1 << 16, "m", 3).request)) << "another inner axis";
  models::PendingRequest differs(repository->find("m", ""));
  differs.add_input<float>(ElementType::kFp32, {1, 4}, {0, 0, 0, 0});
  differs.add_input<float>(ElementType::kFp32, {2, 2}, {0, 0, 0, 0});
  EXPECT_EQ(rows_of(differs.request), 0u);
  EXPECT_FALSE(can_share_call(one, differs.request)) << "inputs of different rows";
  EXPECT_EQ(rows_of(one), 1u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, BatchTest,
                         testing::Values(RequestMemory::Kind::kArena, RequestMemory::Kind::kHeap),
                         [](const testing::TestParamInfo<RequestMemory::Kind>& one) {
                           return one.param == RequestMemory::Kind::kArena ? "Arena" : "Heap";
                         });

TEST(BatchAxis, IsThereOnlyWhereEveryInputAndOutputHasAFreeFirstAxisOfFixedElements) {
  const models::TensorSpec free{"x", ElementType::kFp32, shape({-1, 4})};
  const models::TensorSpec fixed{"x", ElementType::kFp32, shape({1, 4})};
  const models::TensorSpec inner{"x", ElementType::kFp32, shape({1, -1})};
  const models::TensorSpec scalar{"x", ElementType::kFp32, {}};
  const models::TensorSpec text{"x", ElementType::kBytes, shape({-1, 4})};
  const auto has = [](std::vector<models::TensorSpec> inputs,
                      std::vector<models::TensorSpec> outputs) {
    return models::has_batch_axis({"m", "1", "fake", std::move(inputs), std::move(outputs)});
  };
  EXPECT_TRUE(has({free}, {free}));
  EXPECT_TRUE(has({free, free}, {free, free}));
  for (const models::TensorSpec& other : {fixed, inner, scalar, text}) {
    EXPECT_FALSE(has({free, other}, {free})) << other.name;
    EXPECT_FALSE(has({free}, {other}));
  }
  EXPECT_FALSE(has({}, {free}));
}

}  // namespace
}  // namespace lumen::engine
