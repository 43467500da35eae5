// Path matching by segments, as they are sent; names are decoded afterwards, so that %2F ends no
// segment and %69nfer is no endpoint. One thread; memory from the caller.
#include "transports/http/route.h"

#include <lumen/base/limits.h>

#include <optional>

namespace lumen::http {
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
  } else if (*segment == "config") {
    route.endpoint = Endpoint::kModelConfig;
  } else if (*segment == "stats") {
    route.endpoint = Endpoint::kModelStatistics;
  }
  return route;
}

int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Returns `name` as it is where it has no escapes, or is too long to be a model's even decoded.
std::string_view decode(std::string_view name, Allocator& memory) noexcept {
  constexpr size_t kEscapeBytes = 3;
  if (name.find('%') == std::string_view::npos) return name;
  if (name.size() > limits::kMaxNameBytes * kEscapeBytes) return name;
  char* const out = static_cast<char*>(memory.allocate(name.size(), 1));
  if (out == nullptr) return name;
  size_t size = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    char c = name[i];
    if (c == '%' && i + 2 < name.size()) {
      const int high = hex_value(name[i + 1]);
      const int low = hex_value(name[i + 2]);
      if (high < 0 || low < 0) return name;  // the head's parser has refused these
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    out[size++] = c;
  }
  return {out, size};
}

}  // namespace

void decode_names(Route& route, Allocator& memory) noexcept {
  route.model = decode(route.model, memory);
  route.version = decode(route.version, memory);
}

Route route_path(std::string_view path) noexcept {
  if (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  constexpr std::string_view kModels = "/v2/models";
  if (path.starts_with(kModels)) return model_route(path.substr(kModels.size()));
  if (path == "/v2/health/live") return {Endpoint::kLive, {}, {}};
  if (path == "/v2/health/ready") return {Endpoint::kReady, {}, {}};
  if (path == "/metrics") return {Endpoint::kMetrics, {}, {}};
  if (path == "/v2/lumen/engine") return {Endpoint::kEngine, {}, {}};
  if (path == "/v2/lumen/recording") return {Endpoint::kRecording, {}, {}};
  if (path == "/v2") return {Endpoint::kServerMetadata, {}, {}};
  return {};
}

}  // namespace lumen::http
