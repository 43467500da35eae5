// Path matching by segments. Pure; no percent-decoding: every name Lumen serves is made of
// characters that need none, so an encoded path can only be an unknown one.
#include "serve/route.h"

#include <optional>

namespace lumen::serve {
namespace {

// Cuts the next segment off `rest`; nullopt when there is none.
std::optional<std::string_view> next_segment(std::string_view& rest) noexcept {
  if (rest.empty() || rest.front() != '/') return std::nullopt;
  rest.remove_prefix(1);
  const size_t end = rest.find('/');
  const std::string_view segment = rest.substr(0, end);
  rest.remove_prefix(segment.size());
  return segment;
}

Route model_route(std::string_view rest) noexcept {
  Route route;
  std::optional<std::string_view> segment = next_segment(rest);
  if (!segment) return {};
  if (*segment == "stats" && rest.empty()) return {Endpoint::kAllStatistics, {}, {}};
  route.model = *segment;
  segment = next_segment(rest);
  if (segment && *segment == "versions") {
    segment = next_segment(rest);
    if (!segment || segment->empty()) return {};
    route.version = *segment;
    segment = next_segment(rest);
  }
  if (!rest.empty()) return {};
  if (!segment) {
    route.endpoint = Endpoint::kModelMetadata;
  } else if (*segment == "infer") {
    route.endpoint = Endpoint::kInfer;
  } else if (*segment == "ready") {
    route.endpoint = Endpoint::kModelReady;
  } else if (*segment == "stats") {
    route.endpoint = Endpoint::kModelStatistics;
  }
  return route;
}

}  // namespace

Route route_path(std::string_view path) noexcept {
  if (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  constexpr std::string_view kModels = "/v2/models";
  if (path.starts_with(kModels)) return model_route(path.substr(kModels.size()));
  if (path == "/v2/health/live") return {Endpoint::kLive, {}, {}};
  if (path == "/v2/health/ready") return {Endpoint::kReady, {}, {}};
  if (path == "/metrics") return {Endpoint::kMetrics, {}, {}};
  if (path == "/v2/lumen/engine") return {Endpoint::kEngine, {}, {}};
  if (path == "/v2") return {Endpoint::kServerMetadata, {}, {}};
  return {};
}

}  // namespace lumen::serve
