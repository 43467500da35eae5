// Warm-up: a size that is packed was shown to come out as single rows do, and to be cheaper; no
// other is.
// Threads: the test's. Memory: the heap. Errors: by gtest.
#include "engine/model_slot.h"

#include "support/fake_backend.h"
#include "support/temp_repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace lumen::engine {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

// Of calls that take so long, noise of the machine is a small part.
uint64_t flat(uint64_t) { return 300'000; }
uint64_t dearer_by_the_row(uint64_t rows) { return 200'000 * rows * rows; }

class ModelSlotTest : public testing::Test {
 protected:
  std::unique_ptr<ModelSlot> slot_of(const EngineConfig& config, const char* model = "m") {
    if (repository == nullptr) {
      files.add_model(model);
      repository = std::move(
          models::ModelRepository::open(files.path(), models::make_fake_backend(control), *counters)
              .value());
    }
    auto slot = std::move(make_slot(*repository->find(model, ""), config, shared).value());
    const Status planned = plan_slot(*slot, config, {});
    EXPECT_TRUE(planned.ok()) << planned.message();
    return slot;
  }

  models::TempRepository files;
  std::shared_ptr<models::FakeControl> control = std::make_shared<models::FakeControl>();
  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<models::ModelRepository> repository;
  SharedInstances shared;
};

EngineConfig batched(uint32_t batch_size) {
  return {.queue_type = models::QueueType::kBatched, .batch_size = batch_size};
}

TEST_F(ModelSlotTest, PacksWhereOneCallForManyRowsIsCheaper) {
  control->cost_ns = &flat;
  const auto slot = slot_of(batched(8));
  ASSERT_FALSE(slot->batches.empty());
  EXPECT_TRUE(slot->plan.packs());
  EXPECT_EQ(slot->plan.max_rows(), 8u);
  EXPECT_EQ(slot->plan.step(8), 8u);
  EXPECT_EQ(slot->max_in_flight, 1u);
}

TEST_F(ModelSlotTest, DoesNotPackWhereRowsGetDearerTogether) {
  control->cost_ns = &dearer_by_the_row;
  const auto slot = slot_of(batched(4));
  EXPECT_TRUE(slot->batches.empty());
  EXPECT_FALSE(slot->plan.packs());
  EXPECT_THAT(control->take_rows_run(), Contains(4)) << "it was measured, not assumed";
}

TEST_F(ModelSlotTest, MeasuresAModelOnceAndNotForEachInstance) {
  control->cost_ns = &flat;
  const auto first = slot_of(batched(8));
  EXPECT_FALSE(control->take_rows_run().empty());
  const auto second = slot_of(batched(8));
  EXPECT_THAT(control->take_rows_run(), ElementsAre(1, 2, 4, 8)) << "a first call, not a measure";
  ASSERT_FALSE(second->batches.empty());
  EXPECT_EQ(second->plan.step(8), first->plan.step(8));
  (void)slot_of(batched(4));
  EXPECT_THAT(control->take_rows_run(), Contains(4)) << "other sizes were compiled";
}

TEST_F(ModelSlotTest, NeverPacksAModelWhoseRowsDependOnEachOther) {
  control->cost_ns = &flat;  // packing would pay
  control->models_that_sum_rows = {"m"};
  const auto slot = slot_of(batched(8));
  EXPECT_TRUE(slot->batches.empty());
  EXPECT_EQ(slot->plan.step(8), 1u);
  EXPECT_NE(slot->instance, nullptr);
}

TEST_F(ModelSlotTest, LeavesADeviceThatTakesSeveralAtOnceToOverlapThemItself) {
  control->asynchronous = true;
  control->max_in_flight = 4;
  const auto slot = slot_of(batched(8));
  EXPECT_EQ(slot->max_in_flight, 4u);
  EXPECT_TRUE(slot->batches.empty());
  EXPECT_THAT(control->take_rows_run(), IsEmpty());
}

TEST_F(ModelSlotTest, WarmsUpAnAsynchronousDeviceToo) {
  control->asynchronous = true;
  control->cost_ns = &flat;
  EXPECT_FALSE(slot_of(batched(4))->batches.empty());
}

TEST_F(ModelSlotTest, RunsNothingAheadWhereTheQueueNeverPacks) {
  for (const models::QueueType type :
       {models::QueueType::kMpmc, models::QueueType::kSpsc, models::QueueType::kNaive}) {
    EXPECT_TRUE(slot_of({.queue_type = type, .batch_size = 8})->batches.empty());
  }
  EXPECT_TRUE(slot_of(batched(1))->batches.empty());
  EXPECT_TRUE(
      slot_of({.queue_type = models::QueueType::kInline, .batch_size = 1})->batches.empty());
  EXPECT_THAT(control->take_rows_run(), IsEmpty());
}

TEST_F(ModelSlotTest, DoesNotPackAModelWithoutABatchAxis) {
  Shape fixed;
  ASSERT_TRUE(fixed.append(1) && fixed.append(4));
  control->outputs = {{"y", ElementType::kFp32, fixed}};
  EXPECT_TRUE(slot_of(batched(8))->batches.empty());
  EXPECT_THAT(control->take_rows_run(), IsEmpty());
}

TEST_F(ModelSlotTest, DoesNotPackAModelWithAnotherFreeAxisWhichItCannotTry) {
  Shape two_free;
  ASSERT_TRUE(two_free.append(Shape::kDynamic) && two_free.append(Shape::kDynamic));
  control->inputs = {{"x", ElementType::kFp32, two_free}};
  control->outputs = {{"y", ElementType::kFp32, two_free}};
  EXPECT_TRUE(slot_of(batched(8))->batches.empty());
}

TEST_F(ModelSlotTest, DoesNotPackAModelThatFailsItsWarmUpAndServesItAllTheSame) {
  control->model_that_fails = "m";
  const auto slot = slot_of(batched(8));
  EXPECT_TRUE(slot->batches.empty());
  EXPECT_NE(slot->instance, nullptr);
}

TEST_F(ModelSlotTest, AnUnavailableModelHasNoInstanceAndOneThatCannotBeMadeSaysWhy) {
  control->models_without_instance = {"m"};
  files.add_model("m");
  repository = std::move(
      models::ModelRepository::open(files.path(), models::make_fake_backend(control), *counters)
          .value());
  models::Model& model = *repository->find("m", "");
  EXPECT_THAT(std::string(make_slot(model, batched(8), shared).status().message()),
              testing::HasSubstr("no instance of 'm'"));
  model.mark_unavailable("broken");
  EXPECT_EQ(slot_of(batched(8))->instance, nullptr);
}

TEST(BatchSizes, ArePowersOfTwoAndTheLargestItself) {
  EXPECT_THAT(batch_sizes_of(batched(8)), ElementsAre(2, 4, 8));
  EXPECT_THAT(batch_sizes_of(batched(12)), ElementsAre(2, 4, 8, 12));
  EXPECT_THAT(batch_sizes_of(batched(2)), ElementsAre(2));
  EXPECT_THAT(batch_sizes_of(batched(1)), IsEmpty());
  EXPECT_THAT(batch_sizes_of({.queue_type = models::QueueType::kMpmc, .batch_size = 8}), IsEmpty());
}

}  // namespace
}  // namespace lumen::engine
