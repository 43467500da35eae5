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
  kHealthCheck,
  kUnknown,
};

inline constexpr std::array<std::string_view, 7> kPaths = {
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
    "/inference.GRPCInferenceService/ModelReady",
    "/inference.GRPCInferenceService/ServerMetadata",
    "/inference.GRPCInferenceService/ModelMetadata",
    "/inference.GRPCInferenceService/ModelInfer",
    "/grpc.health.v1.Health/Check",
};

[[nodiscard]] inline Method method_of(std::string_view path) noexcept {
  return static_cast<Method>(std::ranges::find(kPaths, path) - kPaths.begin());
}

}  // namespace lumen::grpc
