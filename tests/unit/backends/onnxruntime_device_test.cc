// Backends on devices: why one can't be used, nothing on the CPU without a word, faults of the
// device, its memory, its streams and copies. The devices are those of tests/device.
#include <lumen/backends/built_in.h>
#include <lumen/backends/onnxruntime.h>
#include <lumen/models/backends.h>
#include <lumen/models/model_repository.h>

#include "support/one_backend.h"
#include "support/temp_repository.h"
#include "support/test_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lumen::engine {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class DeviceTest : public testing::Test {
 protected:
  DeviceTest() { calm(); }
  ~DeviceTest() override { calm(); }
  static void calm() {
    device::DeviceControl& device = test::device_control();
    device.run_us = 0;
    device.failing_runs = 0;
    device.failing_value = 0;
    device.is_lost = false;
    device.memory_bytes = UINT64_MAX;
    device.most_running = 0;
  }
  void open(const models::ExecutionProvider& provider, const std::string& config = "{}",
            const char* fixture = "add_one") {
    repository.reset();
    std::filesystem::remove_all(files.path() / fixture);
    files.copy_model(test::source_path("tests/fixtures/backend") / fixture / "1", fixture);
    files.write(std::string(fixture) + "/config.json", config);
    auto opened = models::ModelRepository::open(files.path(),
                                                backends::make_device_backend(provider), *counters);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    repository = std::move(*opened);
    model = repository->find(fixture, "");
    ASSERT_NE(model, nullptr);
  }
  std::string reason(const models::ExecutionProvider& provider, const std::string& config = "{}") {
    open(provider, config);
    EXPECT_EQ(model->state(), models::ModelState::kUnavailable);
    return model->reason();
  }
  Result<std::unique_ptr<models::Instance>> instance() {
    return model->loaded()->create_instance({});
  }
  std::unique_ptr<models::PendingRequest> start(models::Instance& on, float value) {
    auto pending = std::make_unique<models::PendingRequest>(model);
    pending->add_input<float>(ElementType::kFp32, {1, 4}, {value, value, value, value});
    EXPECT_EQ(
        on.start(pending->request, [](models::InferRequest& one) noexcept { one.complete(one); }),
        models::StartOutcome::kPending);
    return pending;
  }
  Status status_of(models::Instance& on, float value) {
    const auto pending = start(on, value);
    pending->wait();
    if (pending->request.status.ok()) {
      EXPECT_EQ(pending->output<float>(0), std::vector<float>(4, value + 1));
    }
    return pending->request.status;
  }

  models::TempRepository files;
  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<models::ModelRepository> repository;
  models::Model* model = nullptr;
};

// With streams, without, and in the host's memory.
class EachKind : public DeviceTest, public testing::WithParamInterface<uint32_t> {
 protected:
  static models::ExecutionProvider provider() {
    models::ExecutionProvider one = test::device_provider();
    one.device_id = GetParam();
    return one;
  }
};

TEST_F(DeviceTest, CudaAndTensorRtSayWhyTheyCanNotBeUsedAndWhatToInstall) {
  const auto backends = backends::with_devices({});
  ASSERT_EQ(backends.size(), backends::built_in().size() + 2);
  EXPECT_EQ(backends[backends.size() - 2]->name(), "cuda");
  EXPECT_EQ(backends[backends.size() - 1]->name(), "tensorrt");
  EXPECT_THAT(reason({.name = "cuda"}),
              AllOf(HasSubstr("the backend cuda can't be used here: CUDA execution provider is not "
                              "enabled in this build"),
                    HasSubstr("onnxruntime-gpu"), HasSubstr("CUDA 13 and cuDNN 9")));
  EXPECT_THAT(reason({.name = "tensorrt"}),
              AllOf(HasSubstr("TensorRT execution provider is not enabled in this build"),
                    HasSubstr("TensorRT 10")));
}

TEST_F(DeviceTest, AnEntryOfTheSettingStandsForTheBackendOfItsName) {
  const std::vector<models::ExecutionProvider> providers = {{.name = "cuda", .device_id = 1},
                                                            test::device_provider({}, "npu")};
  std::vector<std::string> names;
  for (const auto& one : backends::with_devices(providers)) names.emplace_back(one->name());
  names.erase(names.begin(), names.begin() + static_cast<long>(backends::built_in().size()));
  EXPECT_THAT(names, testing::ElementsAre("cuda", "npu", "tensorrt"));
}

TEST_F(DeviceTest, APluginThatIsNoneIsNamedWithTheLibrarysWords) {
  EXPECT_THAT(reason({.name = "npu", .library = "/no/such/plugin.so"}),
              AllOf(HasSubstr("the backend npu can't be used here"),
                    HasSubstr("/no/such/plugin.so"), HasSubstr("No such file")));
  const std::filesystem::path text = files.path() / "text.so";
  files.write("text.so", "no library");
  EXPECT_THAT(reason({.name = "npu", .library = text}), HasSubstr("text.so"));
}

TEST_F(DeviceTest, ADeviceThatItDoesNotHaveIsRefused) {
  auto provider = test::device_provider();
  provider.device_id = 7;
  EXPECT_THAT(reason(provider), HasSubstr("got device 7 of device, which has 3"));
  EXPECT_THAT(reason(test::device_provider(), R"({"device": {"id": 3}})"),
              HasSubstr("got device 3 of device"));
  open(provider, R"({"device": {"id": 0}})");
  EXPECT_EQ(model->state(), models::ModelState::kReady) << "the model's own number counts";
}

TEST_F(DeviceTest, NothingRunsOnTheCpuWithoutAWord) {
  EXPECT_THAT(reason(test::device_provider({{"not_supported", "Add"}})),
              AllOf(HasSubstr("the backend device has no kernel for some of its nodes"),
                    HasSubstr("\"backend\": \"auto\"")));
}

TEST_P(EachKind, AsManyRunsAreUnderWayAsTheConfigurationSays) {
  open(provider(), R"({"device": {"streams": 4, "batch_sizes": [1, 8]}})");
  auto made = instance();
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)->max_in_flight(), 4u);
  device::DeviceControl& device = test::device_control();
  EXPECT_GE(device.runs, 8u) << "each stream has run both sizes";
  device.most_running = 0;
  device.run_us = 100'000;
  std::vector<std::unique_ptr<models::PendingRequest>> all(4);
  for (size_t i = 0; i < all.size(); ++i) all[i] = start(**made, static_cast<float>(i));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i]->wait();
    EXPECT_EQ(all[i]->output<float>(0), std::vector<float>(4, static_cast<float>(i) + 1));
  }
  EXPECT_EQ(device.most_running, 4u);
}

// ONNX Runtime forgets the error of a stream that it waits for, and gives the bytes that are there.
TEST_P(EachKind, AFailedRunIsTheServersErrorAndTheNextOneRuns) {
  open(provider());
  auto made = instance();
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_TRUE(status_of(**made, 3).ok()) << "whose answer lies where the failed run's would";
  test::device_control().failing_runs = 1;
  const Status failed = status_of(**made, 1);
  // The model's axes are free: on the CPU such an error would be the client's.
  EXPECT_EQ(failed.code(), Code::kInternal) << failed.message();
  EXPECT_THAT(std::string(failed.message()), HasSubstr("the device failed as the test wants"));
  EXPECT_TRUE(status_of(**made, 2).ok());
}

TEST_P(EachKind, ALostDeviceAnswersEachRequestUntilItIsBack) {
  open(provider());
  auto made = instance();
  ASSERT_TRUE(made.ok()) << made.status().message();
  test::device_control().is_lost = true;
  for (int i = 0; i < 3; ++i) {
    const Status status = status_of(**made, 1);
    EXPECT_EQ(status.code(), Code::kInternal) << status.message();
    EXPECT_THAT(std::string(status.message()), HasSubstr("the device is lost"));
  }
  EXPECT_FALSE(instance().ok()) << "an instance that can't run is not made";
  test::device_control().is_lost = false;
  EXPECT_TRUE(status_of(**made, 2).ok());
}

TEST_F(DeviceTest, ARequestForWhichTheDeviceHasNoMemoryFailsAloneAndLeavesNone) {
  open(test::device_provider());
  auto made = instance();
  ASSERT_TRUE(made.ok()) << made.status().message();
  device::DeviceControl& device = test::device_control();
  const uint64_t before = device.used_bytes;
  device.memory_bytes = before;  // the input has its room, the output has none
  const Status status = status_of(**made, 1);
  EXPECT_EQ(status.code(), Code::kInternal) << status.message();
  EXPECT_EQ(device.used_bytes, before);
  device.memory_bytes = UINT64_MAX;
  EXPECT_TRUE(status_of(**made, 2).ok());
}

TEST_P(EachKind, AModelThatGoesLeavesNoMemoryOfTheDevice) {
  const device::DeviceControl& device = test::device_control();
  const uint64_t before = device.used_bytes;
  const uint64_t host_blocks = device.host_blocks;
  const uint64_t streams = device.streams;
  for (int i = 0; i < 20; ++i) {
    open(provider(), "{}", i % 2 == 0 ? "add_one_large" : "add_one");
    auto made = instance();
    ASSERT_TRUE(made.ok()) << made.status().message();
    made->reset();
    repository.reset();
    EXPECT_EQ(device.used_bytes, before);
    EXPECT_EQ(device.host_blocks, host_blocks);
    EXPECT_EQ(device.streams, streams);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, EachKind, testing::Values(0, 1, 2),
                         [](const auto& one) { return "Device" + std::to_string(one.param); });

TEST_F(DeviceTest, CopiesGoThroughMemoryOfTheProviderAndOneOfAnOutputThatIsNotWantedIsNotMade) {
  device::DeviceControl& device = test::device_control();
  const uint64_t blocks = device.host_blocks;
  open(test::device_provider(), R"({"device": {"streams": 1}})", "two_large");
  auto made = instance();
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(device.host_blocks, blocks + 3) << "for the input and each output";
  const std::vector<float> values(16384, 2.0F);
  for (const bool wants_all : {true, false}) {
    models::PendingRequest pending(model);
    pending.add_input<float>(ElementType::kFp32, {16384}, values);
    const std::vector<uint16_t> second = {1};
    if (!wants_all) pending.request.outputs_wanted = second;
    const uint64_t copies = device.copies;
    EXPECT_EQ((*made)->start(pending.request,
                             [](models::InferRequest& one) noexcept { one.complete(one); }),
              models::StartOutcome::kPending);
    pending.wait();
    ASSERT_TRUE(pending.request.status.ok()) << pending.request.status.message();
    EXPECT_EQ(device.copies - copies, wants_all ? 3u : 2u);
    EXPECT_EQ(pending.request.outputs.size(), wants_all ? 2u : 1u);
  }
}

TEST_F(DeviceTest, NoOutputStaysOnTheDeviceBetweenRunsAndInputsKeepTheirPlace) {
  open(test::device_provider(), R"({"device": {"streams": 1}})");
  auto made = instance();
  ASSERT_TRUE(made.ok()) << made.status().message();
  const uint64_t before = test::device_control().used_bytes;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(status_of(**made, static_cast<float>(i)).ok());
  EXPECT_EQ(test::device_control().used_bytes, before);
}

TEST_F(DeviceTest, OneRunIn64IsMeasuredByParts) {
  open(test::device_provider(), R"({"device": {"streams": 1}})");
  auto made = instance();
  ASSERT_TRUE(made.ok()) << made.status().message();
  test::device_control().run_us = 2'000;
  int measured = 0;
  for (int i = 0; i < 128; ++i) {
    const auto pending = start(**made, 1);
    pending->wait();
    const models::DeviceTimes& times = pending->request.times.device;
    if (times.run_ns == 0) continue;
    ++measured;
    EXPECT_GE(times.run_ns, 2'000'000u);
    EXPECT_GT(times.copy_in_ns, 0u);
    EXPECT_GT(times.copy_out_ns, 0u);
  }
  EXPECT_EQ(measured, 2);
}

TEST_F(DeviceTest, ARunThatFailsWhileAnotherStreamComputesHarmsThatOneNot) {
  open(test::device_provider());
  auto made = instance();
  ASSERT_TRUE(made.ok()) << made.status().message();
  device::DeviceControl& device = test::device_control();
  device.run_us = 20'000;
  device.failing_value = 7;
  for (int i = 0; i < 5; ++i) {
    const auto failing = start(**made, 7);
    const auto running = start(**made, 1);
    failing->wait();
    running->wait();
    EXPECT_EQ(failing->request.status.code(), Code::kInternal);
    EXPECT_EQ(running->output<float>(0), std::vector<float>(4, 2.0F));
  }
}

// Of the rows that a warm-up makes up such a model refuses all; the device itself is well.
TEST_F(DeviceTest, AModelThatRefusesRowsThatAreMadeUpIsServed) {
  test::device_control().failing_runs = 2;  // the warm-up of both streams
  open(test::device_provider());
  auto made = instance();
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_TRUE(status_of(**made, 2).ok());
}

TEST_F(DeviceTest, TensorsOfStringsAreRefused) {
  open(test::device_provider(), "{}", "identity_bytes");
  EXPECT_EQ(model->state(), models::ModelState::kUnavailable);
  EXPECT_THAT(model->reason(), HasSubstr("'x' is a tensor of strings"));
}

TEST_F(DeviceTest, Bf16IsRefusedAndSoIsAFileOfAnotherForm) {
  EXPECT_THAT(reason(test::device_provider(), R"({"precision": "bf16"})"),
              HasSubstr("with device"));
}

}  // namespace
}  // namespace lumen::engine
