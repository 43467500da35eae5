// Paths to endpoints. One thread.
#include "serve/route.h"

#include <gtest/gtest.h>

namespace lumen::serve {
namespace {

TEST(Route, KnowsEveryEndpoint) {
  EXPECT_EQ(Endpoint::kLive, route_path("/v2/health/live").endpoint);
  EXPECT_EQ(Endpoint::kReady, route_path("/v2/health/ready").endpoint);
  EXPECT_EQ(Endpoint::kServerMetadata, route_path("/v2").endpoint);
  EXPECT_EQ(Endpoint::kServerMetadata, route_path("/v2/").endpoint);
  EXPECT_EQ(Endpoint::kAllStatistics, route_path("/v2/models/stats").endpoint);
  EXPECT_EQ(Endpoint::kModelMetadata, route_path("/v2/models/m").endpoint);
  EXPECT_EQ(Endpoint::kModelReady, route_path("/v2/models/m/ready").endpoint);
  EXPECT_EQ(Endpoint::kModelStatistics, route_path("/v2/models/m/stats").endpoint);
  EXPECT_EQ(Endpoint::kInfer, route_path("/v2/models/m/infer").endpoint);
}

TEST(Route, TakesModelAndVersionFromThePath) {
  const Route route = route_path("/v2/models/m.x-1/versions/12/infer");
  EXPECT_EQ(Endpoint::kInfer, route.endpoint);
  EXPECT_EQ("m.x-1", route.model);
  EXPECT_EQ("12", route.version);
  EXPECT_EQ("", route_path("/v2/models/m/infer").version);
}

TEST(Route, AModelMayBeNamedLikeAnEndpoint) {
  const Route route = route_path("/v2/models/stats/infer");
  EXPECT_EQ(Endpoint::kInfer, route.endpoint);
  EXPECT_EQ("stats", route.model);
}

TEST(Route, EverythingElseIsUnknown) {
  for (const char* path :
       {"/", "", "*", "/v1", "/v2x", "/v2/health", "/v2/models", "/v2/modelsx/m/infer",
        "/v2/models/m/infer/x", "/v2/models/m/versions", "/v2/models/m/versions/",
        "/V2/health/live", "/v2/models/m/versions/1/infer/x", "/v2//health/live",
        "/v2/models/m/explain"}) {
    EXPECT_EQ(Endpoint::kUnknown, route_path(path).endpoint) << path;
  }
}

}  // namespace
}  // namespace lumen::serve
