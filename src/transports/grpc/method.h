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
  kHealthCheck,
  kHealthWatch,
  kUnknown,
};

inline constexpr std::array<std::string_view, 9> kPaths = {
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
    "/inference.GRPCInferenceService/ModelReady",
    "/inference.GRPCInferenceService/ServerMetadata",
    "/inference.GRPCInferenceService/ModelMetadata",
    "/inference.GRPCInferenceService/ModelInfer",
    "/inference.GRPCInferenceService/ModelStreamInfer",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
};

[[nodiscard]] inline Method method_of(std::string_view path) noexcept {
  return static_cast<Method>(std::ranges::find(kPaths, path) - kPaths.begin());
}

// Its client sends any number of messages, and has a reply to each of them.
[[nodiscard]] constexpr bool takes_many(Method method) noexcept {
  return method == Method::kModelStreamInfer;
}
// Its reply has any number of messages.
[[nodiscard]] constexpr bool replies_many(Method method) noexcept {
  return takes_many(method) || method == Method::kHealthWatch;
}

}  // namespace lumen::grpc
