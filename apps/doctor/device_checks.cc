// Checks of devices that models can run on. Threads, memory and errors: see checks.h.
#include "doctor/checks.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace lumen::doctor {
namespace {

// Made by the driver's module; WSL has the host's driver and no module.
constexpr std::string_view kDriver = "/proc/driver/nvidia/version";
constexpr std::string_view kDriverOfWsl = "/dev/dxg";

// Libraries that ONNX Runtime's CUDA provider is linked to, of each package one.
constexpr const char* kCuda[] = {"libcuda.so.1", "libcudart.so.13", "libcublas.so.13",
                                 "libcurand.so.10", "libcudnn.so.9"};
constexpr const char* kTensorRt = "libnvinfer.so.10";

// "NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun ...": the first word that begins as a number
// and has a point. Empty: there is none.
std::string version_in(std::string_view line) {
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    const bool is_number = !word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) != 0;
    if (is_number && word.find('.') != std::string_view::npos) return std::string(word);
  }
  return {};
}

}  // namespace

Finding check_gpu(const Machine& machine) {
  const bool has_module = machine.exists(kDriver);
  if (!has_module && !machine.exists(kDriverOfWsl)) {
    return text("none", "no NVIDIA driver; models run on the CPU");
  }
  const auto line = machine.read_line(kDriver, "NVRM version:");
  const std::string version = line.ok() ? version_in(*line) : std::string();
  Finding finding = text("NVIDIA", version.empty() ? "driver" : "driver " + version);
  std::string missing;
  for (const char* library : kCuda) {
    if (!machine.has_library(library)) missing.append(missing.empty() ? "" : ", ").append(library);
  }
  if (!missing.empty()) {
    finding.note.append("; not found: ").append(missing);
    return std::move(finding).warn(
        "pip install onnxruntime-gpu in place of onnxruntime; name the folders of CUDA 13 and "
        "cuDNN 9 in LD_LIBRARY_PATH",
        "\"backend\": \"cuda\" runs models on the GPU");
  }
  if (!machine.has_library(kTensorRt)) finding.note.append("; CUDA, no TensorRT");
  return finding;
}

}  // namespace lumen::doctor
