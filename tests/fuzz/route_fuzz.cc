// route_path and decode_names: names are parts of the path or of the caller's memory, an endpoint
// has the names that it needs and no others, and the answer is the same for the same path.
#include <lumen/base/limits.h>

#include "fuzz/fuzz_support.h"
#include "transports/http/route.h"

using lumen::fuzz::Copy;
using lumen::fuzz::Memory;
using lumen::http::Endpoint;
using lumen::http::Route;

namespace {

bool names_a_model(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kInfer:
    case Endpoint::kModelMetadata:
    case Endpoint::kModelReady:
    case Endpoint::kModelConfig:
    case Endpoint::kModelStatistics:
    case Endpoint::kLoadModel:
    case Endpoint::kUnloadModel:
    case Endpoint::kTrace: return true;
    default: return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Copy path(std::string_view(reinterpret_cast<const char*>(data), size));
  Route route = lumen::http::route_path(path.view());
  LUMEN_CHECK(route.model.empty() || path.holds(route.model));
  LUMEN_CHECK(route.version.empty() || path.holds(route.version));
  LUMEN_CHECK(route.region.empty() || path.holds(route.region));
  LUMEN_CHECK(route.model.find('/') == std::string_view::npos);
  LUMEN_CHECK(route.region.find('/') == std::string_view::npos);
  LUMEN_CHECK(route.model.empty() || route.region.empty());
  if (route.endpoint != Endpoint::kUnknown && !names_a_model(route.endpoint)) {
    LUMEN_CHECK(route.model.empty() && route.version.empty());
  }
  const Route again = lumen::http::route_path(path.view());
  LUMEN_CHECK(again.endpoint == route.endpoint && again.model == route.model);

  const Route sent = route;
  Memory memory(1 << 20);
  lumen::http::decode_names(route, memory);
  LUMEN_CHECK(route.endpoint == sent.endpoint && route.model.size() <= sent.model.size());
  if (sent.model.find('%') == std::string_view::npos) LUMEN_CHECK(route.model == sent.model);

  Memory none(0);  // names stay as they were sent
  Route as_sent = sent;
  lumen::http::decode_names(as_sent, none);
  LUMEN_CHECK(as_sent.model == sent.model && as_sent.version == sent.version);
  return 0;
}
