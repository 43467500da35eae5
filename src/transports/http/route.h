// Route: the meaning of a request's path. Pure.
// Threads: any. Memory: names are views into the path, decoded ones in the caller's memory.
// Errors: Endpoint::kUnknown.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/transports/common/access.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lumen::http {

using transports::Audience;

enum class Endpoint : uint8_t {
  kUnknown,
  kLive,
  kReady,
  kServerMetadata,
  kModelMetadata,
  kModelReady,
  kModelConfig,
  kModelStatistics,
  kAllStatistics,
  kMetrics,
  kPage,  // for browsers: static_pages.h
  kEngine,
  kRecording,
  kRepositoryIndex,
  kLoadModel,
  kUnloadModel,
  kRegions,  // of system shared memory
  kRegisterRegion,
  kUnregisterRegion,
  kCudaRegions,
  kRegisterCudaRegion,
  kUnregisterCudaRegion,
  kTrace,
  kLogging,
  kInfer,
};
inline constexpr size_t kEndpoints = static_cast<size_t>(Endpoint::kInfer) + 1;

struct Route {
  Endpoint endpoint = Endpoint::kUnknown;
  std::string_view model{};    // as sent; may be no valid name, then no model is found
  std::string_view version{};  // empty: the highest
  std::string_view region{};   // as sent; empty: all
};

// `path` without the query. A single trailing slash is tolerated.
[[nodiscard]] Route route_path(std::string_view path) noexcept;

// Percent escapes in the names (RFC 3986 6.2.2.2: %6Dlp is mlp), once: an escape that is left after
// that, a slash or dots, is part of a name that no model has.
void decode_names(Route& route, Allocator& memory) noexcept;

struct EndpointTraits {
  bool takes_get = true;  // and HEAD
  bool takes_post = false;
  Audience audience = Audience::kAll;
};

[[nodiscard]] constexpr EndpointTraits traits_of(Endpoint endpoint) noexcept {
  switch (endpoint) {
    case Endpoint::kInfer:
    case Endpoint::kRepositoryIndex:
    case Endpoint::kRegisterCudaRegion:
    case Endpoint::kUnregisterCudaRegion: return {.takes_get = false, .takes_post = true};
    case Endpoint::kLoadModel:
    case Endpoint::kUnloadModel:
      return {.takes_get = false, .takes_post = true, .audience = Audience::kControl};
    case Endpoint::kTrace:
    case Endpoint::kLogging: return {.takes_post = true, .audience = Audience::kControl};
    case Endpoint::kRegions: return {.audience = Audience::kSharedMemory};
    case Endpoint::kRegisterRegion:
    case Endpoint::kUnregisterRegion:
      return {.takes_get = false, .takes_post = true, .audience = Audience::kSharedMemory};
    case Endpoint::kEngine:
    case Endpoint::kRecording: return {.takes_post = true, .audience = Audience::kUnixSocket};
    default: return {};
  }
}

}  // namespace lumen::http
