// The reason in texts as onnxruntime-gpu 1.31.1 gave them on a machine without a GPU.
#include "backends/onnxruntime/reason.h"

#include <gtest/gtest.h>

namespace lumen::backends::onnxruntime {
namespace {

TEST(ReasonOf, KeepsATextWithoutCodes) {
  EXPECT_EQ(reason_of("CUDA execution provider is not enabled in this build. "),
            "CUDA execution provider is not enabled in this build");
  EXPECT_EQ(reason_of(""), "");
}

TEST(ReasonOf, LeavesOutThePlaceAndTheCodes) {
  EXPECT_EQ(reason_of("/onnxruntime_src/onnxruntime/core/session/provider_bridge_ort.cc:2043 "
                      "onnxruntime::Provider& onnxruntime::ProviderLibrary::Get() "
                      "[ONNXRuntimeError] : 1 : FAIL : Failed to load library "
                      "/x/libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: cannot "
                      "open shared object file: No such file or directory\n"),
            "Failed to load library /x/libonnxruntime_providers_cuda.so with error: "
            "libcublasLt.so.13: cannot open shared object file: No such file or directory");
}

TEST(ReasonOf, LeavesOutTheMachinesName) {
  EXPECT_EQ(reason_of("[ONNXRuntimeError] : 1 : FAIL : Failed to parse provider option "
                      "\"device_id\": CUDA failure 35: CUDA driver version is insufficient ; "
                      "GPU=-1 ; hostname=vm ; file=/x.cc ; line=67"),
            "Failed to parse provider option \"device_id\": CUDA failure 35: CUDA driver version "
            "is insufficient");
}

TEST(ReasonOf, ATextThatEndsInItsCodesIsNotReadBeyondItsEnd) {
  EXPECT_EQ(reason_of("[ONNXRuntimeError] : "), "");
  EXPECT_EQ(reason_of("[ONNXRuntimeError] : 1 : FAIL : "), "");
}

}  // namespace
}  // namespace lumen::backends::onnxruntime
