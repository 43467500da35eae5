// ExecutionProvider: a way of ONNX Runtime to a device (a GPU), as the server's setting
// `execution_providers` names it. Each is a backend of its own.
// Threads: a value. Memory: the heap (control plane). Errors: parse says what it got and wanted.
#pragma once

#include <lumen/base/result.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::models {

// Those that ONNX Runtime has itself; a server has them without a word.
inline constexpr std::string_view kCudaProvider = "cuda";
inline constexpr std::string_view kTensorRtProvider = "tensorrt";

struct ExecutionProvider {
  // More devices of one kind are more entries; no machine of ours has more kinds.
  static constexpr size_t kMost = 8;
  static constexpr size_t kMostOptions = 64;

  std::string name;                 // of the backend, for "backend" in a model's config.json
  std::filesystem::path library{};  // a plugin; empty for cuda and tensorrt, which are part of it
  uint32_t device_id = 0;           // of the models whose config.json names none
  std::map<std::string, std::string> options{};  // as the library takes them
};

// `json`: [{"name": "npu", "library": "/opt/npu.so", "device_id": 0, "options": {"key": "value"}}].
// kInvalidArgument: "got ..., wanted ...", for a sentence that begins with the setting.
[[nodiscard]] Result<std::vector<ExecutionProvider>> parse_execution_providers(
    std::string_view json);

}  // namespace lumen::models
