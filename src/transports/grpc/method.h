// The methods that are answered, by their path.
// Threads: any. Memory: none. Errors: kUnknown.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lumen::grpc {

enum class Method : uint8_t {
  kServerLive,
  kServerReady,
  kModelReady,
  kServerMetadata,
  kModelMetadata,
  kModelInfer,
  kModelStreamInfer,
  kModelConfig,
  kModelStatistics,
  kRepositoryIndex,
  kRepositoryModelLoad,
  kRepositoryModelUnload,
  kRegionStatus,
  kRegionRegister,
  kRegionUnregister,
  kCudaRegionStatus,
  kCudaRegionRegister,
  kCudaRegionUnregister,
  kTraceSetting,
  kLogSettings,
  kHealthCheck,
  kHealthWatch,
  kReflection,
  kReflectionAlpha,
  kUnknown,
};

inline constexpr std::array<std::string_view, 24> kPaths = {
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
    "/inference.GRPCInferenceService/ModelReady",
    "/inference.GRPCInferenceService/ServerMetadata",
    "/inference.GRPCInferenceService/ModelMetadata",
    "/inference.GRPCInferenceService/ModelInfer",
    "/inference.GRPCInferenceService/ModelStreamInfer",
    "/inference.GRPCInferenceService/ModelConfig",
    "/inference.GRPCInferenceService/ModelStatistics",
    "/inference.GRPCInferenceService/RepositoryIndex",
    "/inference.GRPCInferenceService/RepositoryModelLoad",
    "/inference.GRPCInferenceService/RepositoryModelUnload",
    "/inference.GRPCInferenceService/SystemSharedMemoryStatus",
    "/inference.GRPCInferenceService/SystemSharedMemoryRegister",
    "/inference.GRPCInferenceService/SystemSharedMemoryUnregister",
    "/inference.GRPCInferenceService/CudaSharedMemoryStatus",
    "/inference.GRPCInferenceService/CudaSharedMemoryRegister",
    "/inference.GRPCInferenceService/CudaSharedMemoryUnregister",
    "/inference.GRPCInferenceService/TraceSetting",
    "/inference.GRPCInferenceService/LogSettings",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
};

static_assert(kPaths.size() == static_cast<size_t>(Method::kUnknown));

[[nodiscard]] inline Method method_of(std::string_view path) noexcept {
  return static_cast<Method>(std::ranges::find(kPaths, path) - kPaths.begin());
}

// Its client sends any number of messages, and has a reply to each of them.
[[nodiscard]] constexpr bool takes_many(Method method) noexcept {
  return method == Method::kModelStreamInfer || method == Method::kReflection ||
         method == Method::kReflectionAlpha;
}
// Its reply has any number of messages.
[[nodiscard]] constexpr bool replies_many(Method method) noexcept {
  return takes_many(method) || method == Method::kHealthWatch;
}

}  // namespace lumen::grpc
