// ONNX Runtime's own ways: datatypes, strings, where tensors lie, failed runs, ZipMap, one session
// for all instances.
#include <lumen/backends/onnxruntime.h>
#include <lumen/base/cpu.h>
#include <lumen/models/backend.h>
#include <lumen/models/model_repository.h>

#include "support/failing_models.h"
#include "support/one_backend.h"
#include "support/temp_repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace lumen::engine {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class OnnxRuntimeTest : public models::OneBackendTest {
 protected:
  OnnxRuntimeTest() : models::OneBackendTest(backends::make_onnxruntime) {}
};

TEST_F(OnnxRuntimeTest, CarriesEveryDatatypeThereAndBackInFullWidth) {
  open();
  expect_identity<uint8_t>("identity_bool", ElementType::kBool, {1, 0, 1});
  expect_identity<uint8_t>("identity_uint8", ElementType::kUint8, {0, 255});
  expect_identity<uint16_t>("identity_uint16", ElementType::kUint16, {0, 65535});
  expect_identity<uint32_t>("identity_uint32", ElementType::kUint32, {0, UINT32_MAX});
  expect_identity<uint64_t>("identity_uint64", ElementType::kUint64, {0, UINT64_MAX});
  expect_identity<int8_t>("identity_int8", ElementType::kInt8, {-128, 127});
  expect_identity<int16_t>("identity_int16", ElementType::kInt16, {-32768, 32767});
  expect_identity<int32_t>("identity_int32", ElementType::kInt32, {INT32_MIN, INT32_MAX});
  expect_identity<int64_t>("identity_int64", ElementType::kInt64, {INT64_MIN, INT64_MAX});
  expect_identity<uint16_t>("identity_fp16", ElementType::kFp16, {0x3c00, 0xfbff});
  expect_identity<uint16_t>("identity_bf16", ElementType::kBf16, {0x3f80, 0xff7f});
  expect_identity<float>("identity_fp32", ElementType::kFp32, {1.5f, -3.4e38f});
  expect_identity<double>("identity_fp64", ElementType::kFp64, {1.5, -2.25});
}

TEST_F(OnnxRuntimeTest, CarriesStringsWithAnyBytesInThem) {
  open();
  const std::vector<uint8_t> bytes = {3, 0, 0, 0, 'a', 0, 'c', 0, 0, 0, 0, 1, 0, 0, 0, 0xff};
  const auto instance = instance_of("identity_bytes");
  for (int i = 0; i < 3; ++i) {
    models::PendingRequest pending(repository->find("identity_bytes", ""));
    pending.add_input(ElementType::kBytes, {3}, bytes);
    run(*instance, pending);
    EXPECT_EQ(pending.output<uint8_t>(0), bytes);
  }
}

TEST_F(OnnxRuntimeTest, RefusesStringsWhoseLengthsDoNotAddUp) {
  open();
  const auto instance = instance_of("identity_bytes");
  for (const std::vector<uint8_t>& bytes :
       {std::vector<uint8_t>{9, 0, 0, 0, 'a'}, {1, 0, 0}, {0, 0, 0, 0, 'x'}}) {
    models::PendingRequest pending(repository->find("identity_bytes", ""));
    pending.add_input(ElementType::kBytes, {1}, bytes);
    EXPECT_EQ(status_of(*instance, pending).code(), Code::kInvalidArgument);
  }
}

TEST_F(OnnxRuntimeTest, ReadsLargeInputWhereItLiesAndCopiesSmallOnes) {
  open();
  const auto instance = instance_of("add_one_large");
  models::PendingRequest large(repository->find("add_one_large", ""));
  large.add_input(ElementType::kFp32, {1, 16384}, std::vector<float>(16384, 1.0f));
  run(*instance, large);
  EXPECT_EQ(instance->last_bound_input(0), large.request.inputs[0].data);
  const auto other = instance_of("add_one");
  models::PendingRequest small(repository->find("add_one", ""));
  small.add_input<float>(ElementType::kFp32, {1, 4}, {1, 2, 3, 4});
  run(*other, small);
  EXPECT_FALSE(small.arena().owns(other->last_bound_input(0)));
}

TEST_F(OnnxRuntimeTest, WritesNothingIntoARequestThatIsAlreadyAnswered) {
  open();
  const auto instance = instance_of("two_large");
  models::PendingRequest first(repository->find("two_large", ""));
  first.add_input(ElementType::kFp32, {16384}, std::vector<float>(16384, 1.0f));
  run(*instance, first);
  const std::vector<float> more = first.output<float>(0);
  models::PendingRequest second(repository->find("two_large", ""));
  second.add_input(ElementType::kFp32, {16384}, std::vector<float>(16384, 7.0f));
  second.want_outputs({1});
  run(*instance, second);
  EXPECT_EQ(second.output<float>(0), std::vector<float>(16384, 6.0f));
  EXPECT_EQ(first.output<float>(0), more);
}

TEST_F(OnnxRuntimeTest, AnOutputThatIsNamedTwiceIsThereTwice) {
  open();
  const auto instance = instance_of("two_large");
  models::PendingRequest pending(repository->find("two_large", ""));
  pending.add_input(ElementType::kFp32, {16384}, std::vector<float>(16384, 7.0f));
  pending.want_outputs({1, 0, 1});
  run(*instance, pending);
  EXPECT_EQ(pending.output<float>(0), std::vector<float>(16384, 6.0f));
  EXPECT_EQ(pending.output<float>(2), pending.output<float>(0));
}

TEST_F(OnnxRuntimeTest, ReturnsTheShapeThatTheDataDecided) {
  open();
  const auto instance = instance_of("nonzero");
  for (const auto& [values, found] :
       {std::pair{std::vector<float>{0, 1, 0, 1}, 2}, {std::vector<float>{1, 1, 1}, 3}}) {
    models::PendingRequest pending(repository->find("nonzero", ""));
    pending.add_input(ElementType::kFp32, {static_cast<int64_t>(values.size())}, values);
    run(*instance, pending);
    EXPECT_EQ(pending.request.outputs[0].shape[1], found);
  }
}

TEST_F(OnnxRuntimeTest, ARequestWhoseShapesDoNotFitIsTheClientsErrorAndLeavesNoTrace) {
  open(models::kFailingFixtures);
  for (const char* name : {"relu_sum", "relu_concat"}) {
    SCOPED_TRACE(name);
    models::Model* model = repository->find(name, "");
    const auto instance = instance_of(name);
    const auto run_rows = [&](int64_t left, int64_t right, std::vector<float>* sums) {
      models::PendingRequest pending(model);
      models::add_pair(pending, left, right);
      Status status = status_of(*instance, pending);
      if (status.ok()) *sums = pending.output<float>(0);
      return status;
    };
    std::vector<float> before;
    ASSERT_TRUE(run_rows(2, 2, &before).ok());
    for (int i = 0; i < 3; ++i) {
      const Status refused = run_rows(2, 3, &before);
      EXPECT_EQ(refused.code(), Code::kInvalidArgument);
      EXPECT_THAT(
          std::string(refused.message()),
          AllOf(HasSubstr("'left' [2,4]"), HasSubstr("'right' [3,4]"), Not(HasSubstr("\n"))));
      std::vector<float> after;
      ASSERT_TRUE(run_rows(2, 2, &after).ok());
      EXPECT_EQ(after, before);
    }
  }
}

TEST_F(OnnxRuntimeTest, AnIndexOutsideOfATableIsTheClientsError) {
  open(models::kFailingFixtures);
  models::Model* model = repository->find("pick", "");
  const auto instance = instance_of("pick");
  models::PendingRequest outside(model);
  models::add_pick(outside, 3, 9);
  EXPECT_EQ(status_of(*instance, outside).code(), Code::kInvalidArgument);
  models::PendingRequest inside(model);
  models::add_pick(inside, 2, 1);
  EXPECT_TRUE(status_of(*instance, inside).ok());
}

TEST_F(OnnxRuntimeTest, ABrokenFileAndOneOfAnotherKindSayTheFault) {
  models::TempRepository files;
  files.write("garbage/1/model.onnx", "this is no model");
  files.write("ir/1/model.xml", "<net/>");
  files.copy_model(models::kBackendFixtures / "add_one/1", "half");
  files.write("half/config.json", R"({"precision": "bf16"})");
  open(files.path());
  EXPECT_THAT(repository->find("garbage", "")->reason(), HasSubstr("garbage"));
  EXPECT_THAT(repository->find("ir", "")->reason(),
              AllOf(HasSubstr("model.xml"), HasSubstr("openvino")));
  EXPECT_THAT(repository->find("half", "")->reason(),
              AllOf(HasSubstr("bf16"), HasSubstr("\"f32\"")));
}

TEST_F(OnnxRuntimeTest, RunsOnTheCallingThreadAloneAndLeavesItsPinning) {
  open();
  const std::vector<uint32_t> before = usable_cpus();
  const uint32_t cpu = before.back();
  const auto threads = [] {
    size_t count = 0;
    for ([[maybe_unused]] const auto& task :
         std::filesystem::directory_iterator("/proc/self/task")) {
      ++count;
    }
    return count;
  };
  const auto instance = instance_of("add_one");
  const size_t threads_before = threads();
  std::thread worker([&] {
    ASSERT_TRUE(pin_this_thread(cpu).ok());
    models::PendingRequest pending(repository->find("add_one", ""));
    pending.add_input<float>(ElementType::kFp32, {1, 4}, {1, 2, 3, 4});
    run(*instance, pending);
    EXPECT_THAT(usable_cpus(), ElementsAre(cpu));
    EXPECT_EQ(threads(), threads_before + 1);  // this one
  });
  worker.join();
  EXPECT_EQ(usable_cpus(), before);
}

TEST(OnnxRuntimeBackend, NamesItsVersion) {
  EXPECT_THAT(backends::make_onnxruntime()->description(), HasSubstr("ONNX Runtime 1."));
}

}  // namespace
}  // namespace lumen::engine
