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

// Of a path behind the model or the version, without its first slash.
Endpoint endpoint_of_model(std::string_view rest) noexcept {
  if (rest.empty()) return Endpoint::kModelMetadata;
  if (rest == "/infer") return Endpoint::kInfer;
  if (rest == "/ready") return Endpoint::kModelReady;
  if (rest == "/config") return Endpoint::kModelConfig;
  if (rest == "/stats") return Endpoint::kModelStatistics;
  if (rest == "/trace/setting") return Endpoint::kTrace;
  return Endpoint::kUnknown;
}

Route model_route(std::string_view rest) noexcept {
  Route route;
  const std::optional<std::string_view> model = next_segment(rest);
  if (!model) return {};
  if (*model == "stats" && rest.empty()) return {.endpoint = Endpoint::kAllStatistics};
  route.model = *model;
  std::string_view after = rest;
  if (next_segment(after) == "versions") {
    const std::optional<std::string_view> version = next_segment(after);
    if (!version || version->empty()) return {};
    route.version = *version;
    rest = after;
  }
  route.endpoint = endpoint_of_model(rest);
  return route;
}

Route repository_route(std::string_view rest) noexcept {
  if (rest == "/index") return {.endpoint = Endpoint::kRepositoryIndex};
  if (next_segment(rest) != "models") return {};
  Route route;
  route.model = next_segment(rest).value_or("");
  if (route.model.empty()) return {};
  if (rest == "/load") route.endpoint = Endpoint::kLoadModel;
  if (rest == "/unload") route.endpoint = Endpoint::kUnloadModel;
  return route;
}

// The endpoints of one kind of shared memory.
struct RegionEndpoints {
  Endpoint status;
  Endpoint enter;
  Endpoint leave;
};
constexpr RegionEndpoints kSystem = {Endpoint::kRegions, Endpoint::kRegisterRegion,
                                     Endpoint::kUnregisterRegion};
constexpr RegionEndpoints kCuda = {Endpoint::kCudaRegions, Endpoint::kRegisterCudaRegion,
                                   Endpoint::kUnregisterCudaRegion};

Route region_route(std::string_view rest, const RegionEndpoints& endpoints) noexcept {
  Route route;
  std::string_view after = rest;
  if (next_segment(after) == "region") {
    route.region = next_segment(after).value_or("");
    if (route.region.empty()) return {};
    rest = after;
  }
  if (rest == "/status") route.endpoint = endpoints.status;
  if (rest == "/unregister") route.endpoint = endpoints.leave;
  if (rest == "/register" && !route.region.empty()) route.endpoint = endpoints.enter;
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
  route.region = decode(route.region, memory);
}

Route route_path(std::string_view path) noexcept {
  if (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  std::string_view rest = path;
  if (next_segment(rest) == "v2") {
    const std::optional<std::string_view> second = next_segment(rest);
    if (second == "models") return model_route(rest);
    if (second == "repository") return repository_route(rest);
    if (second == "systemsharedmemory") return region_route(rest, kSystem);
    if (second == "cudasharedmemory") return region_route(rest, kCuda);
  }
  if (path == "/v2/health/live") return {.endpoint = Endpoint::kLive};
  if (path == "/v2/health/ready") return {.endpoint = Endpoint::kReady};
  if (path == "/v2/trace/setting") return {.endpoint = Endpoint::kTrace};
  if (path == "/v2/logging") return {.endpoint = Endpoint::kLogging};
  if (path == "/metrics") return {.endpoint = Endpoint::kMetrics};
  if (path == "/v2/lumen/engine") return {.endpoint = Endpoint::kEngine};
  if (path == "/v2/lumen/recording") return {.endpoint = Endpoint::kRecording};
  const bool is_page =
      path == "/" || path == "/lumen.css" || path == "/lumen.js" || path == "/openapi.json";
  if (is_page) return {.endpoint = Endpoint::kPage};
  if (path == "/v2") return {.endpoint = Endpoint::kServerMetadata};
  return {};
}

}  // namespace lumen::http
