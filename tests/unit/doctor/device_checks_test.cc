// The check of GPUs: a driver, the libraries of CUDA and TensorRT, each missing or there.
#include "made_up_machine.h"

#include <gmock/gmock.h>

#include <string_view>

namespace lumen::doctor {
namespace {

using testing::HasSubstr;
using testing::Not;

class DeviceChecks : public MadeUpMachine {
 protected:
  void install_driver() const {
    write(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 06:11:18 UTC 2025\n"
        "GCC version:  gcc version 12.2.0\n");
  }
};

TEST_F(DeviceChecks, AMachineWithoutADriverHasNoneAndNoWarning) {
  const Finding found = check_gpu(machine);
  expect_ok(found);
  EXPECT_EQ(value_of(found), "none");
  EXPECT_THAT(found.note, HasSubstr("no NVIDIA driver"));
}

TEST_F(DeviceChecks, NamesTheDriverAndEachLibraryThatIsMissing) {
  install_driver();
  machine.has_library = [](const char* name) {
    return std::string_view(name) != "libcudnn.so.9" && std::string_view(name) != "libcudart.so.13";
  };
  const Finding found = check_gpu(machine);
  expect_warning(found, "pip install onnxruntime-gpu");
  EXPECT_THAT(found.note, HasSubstr("driver 580.65.06; not found: libcudart.so.13, libcudnn.so.9"));
}

TEST_F(DeviceChecks, SaysThatTensorRtIsMissingWithoutAWarning) {
  install_driver();
  machine.has_library = [](const char* name) {
    return std::string_view(name) != "libnvinfer.so.10";
  };
  const Finding found = check_gpu(machine);
  expect_ok(found);
  EXPECT_THAT(found.note, HasSubstr("CUDA, no TensorRT"));
  machine.has_library = [](const char*) { return true; };
  EXPECT_THAT(check_gpu(machine).note, Not(HasSubstr("TensorRT")));
}

TEST_F(DeviceChecks, TheDriverOfWslHasNoVersion) {
  write("/dev/dxg", "");
  const Finding found = check_gpu(machine);
  expect_ok(found);
  EXPECT_EQ(found.note, "driver");
}

}  // namespace
}  // namespace lumen::doctor
