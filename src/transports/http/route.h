// Route: the meaning of a request's path. Pure.
// Threads: any. Memory: names are views into the path, decoded ones in the caller's memory.
// Errors: Endpoint::kUnknown.
#pragma once

#include <lumen/base/allocator.h>

#include <cstdint>
#include <string_view>

namespace lumen::http {

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
  // By the unix socket only: GET tells, POST changes.
  kEngine,
  kRecording,
  kInfer,
};

struct Route {
  Endpoint endpoint = Endpoint::kUnknown;
  std::string_view model;    // as sent; may be no valid name, then no model is found
  std::string_view version;  // empty: the highest
};

// `path` without the query. A single trailing slash is tolerated.
[[nodiscard]] Route route_path(std::string_view path) noexcept;

// Percent escapes in the names (RFC 3986 6.2.2.2: %6Dlp is mlp), once: an escape that is left after
// that, a slash or dots, is part of a name that no model has.
void decode_names(Route& route, Allocator& memory) noexcept;

[[nodiscard]] constexpr bool is_control(Endpoint endpoint) noexcept {
  return endpoint == Endpoint::kEngine || endpoint == Endpoint::kRecording;
}

// POST to run a model, GET (and HEAD) to be told.
[[nodiscard]] constexpr bool wants_post(Endpoint endpoint) noexcept {
  return endpoint == Endpoint::kInfer;
}

}  // namespace lumen::http
