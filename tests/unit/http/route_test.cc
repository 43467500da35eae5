// Paths to endpoints. One thread.
#include "transports/http/route.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace lumen::http {
namespace {

TEST(Route, KnowsEveryEndpoint) {
  EXPECT_EQ(Endpoint::kLive, route_path("/v2/health/live").endpoint);
  EXPECT_EQ(Endpoint::kReady, route_path("/v2/health/ready").endpoint);
  EXPECT_EQ(Endpoint::kServerMetadata, route_path("/v2").endpoint);
  EXPECT_EQ(Endpoint::kServerMetadata, route_path("/v2/").endpoint);
  EXPECT_EQ(Endpoint::kAllStatistics, route_path("/v2/models/stats").endpoint);
  EXPECT_EQ(Endpoint::kModelMetadata, route_path("/v2/models/m").endpoint);
  EXPECT_EQ(Endpoint::kModelReady, route_path("/v2/models/m/ready").endpoint);
  EXPECT_EQ(Endpoint::kModelConfig, route_path("/v2/models/m/config").endpoint);
  EXPECT_EQ(Endpoint::kModelStatistics, route_path("/v2/models/m/stats").endpoint);
  EXPECT_EQ(Endpoint::kInfer, route_path("/v2/models/m/infer").endpoint);
  EXPECT_EQ(Endpoint::kEngine, route_path("/v2/lumen/engine").endpoint);
  EXPECT_EQ(Endpoint::kRecording, route_path("/v2/lumen/recording").endpoint);
  EXPECT_EQ(Endpoint::kRepositoryIndex, route_path("/v2/repository/index").endpoint);
  EXPECT_EQ(Endpoint::kLoadModel, route_path("/v2/repository/models/m/load").endpoint);
  EXPECT_EQ(Endpoint::kUnloadModel, route_path("/v2/repository/models/m/unload").endpoint);
  EXPECT_EQ(Endpoint::kTrace, route_path("/v2/trace/setting").endpoint);
  EXPECT_EQ(Endpoint::kTrace, route_path("/v2/models/m/trace/setting").endpoint);
  EXPECT_EQ(Endpoint::kLogging, route_path("/v2/logging").endpoint);
}

TEST(Route, KnowsTheEndpointsOfSharedMemoryWithAndWithoutARegion) {
  struct Row {
    std::string_view path;
    Endpoint endpoint;
    std::string_view region;
  };
  using enum Endpoint;
  for (const Row& row : {Row{"/v2/systemsharedmemory/status", kRegions, ""},
                         {"/v2/systemsharedmemory/region/r/status", kRegions, "r"},
                         {"/v2/systemsharedmemory/region/r/register", kRegisterRegion, "r"},
                         {"/v2/systemsharedmemory/region/r/unregister", kUnregisterRegion, "r"},
                         {"/v2/systemsharedmemory/unregister", kUnregisterRegion, ""},
                         {"/v2/cudasharedmemory/status", kCudaRegions, ""},
                         {"/v2/cudasharedmemory/region/r/register", kRegisterCudaRegion, "r"},
                         {"/v2/cudasharedmemory/unregister", kUnregisterCudaRegion, ""},
                         // All of them are left or told at once, but none can be entered.
                         {"/v2/systemsharedmemory/register", kUnknown, ""},
                         {"/v2/systemsharedmemory/region/status", kUnknown, "status"},
                         {"/v2/systemsharedmemory/region//status", kUnknown, ""},
                         {"/v2/systemsharedmemory", kUnknown, ""},
                         {"/v2/systemsharedmemory/region/r/s/status", kUnknown, "r"}}) {
    const Route route = route_path(row.path);
    EXPECT_EQ(row.endpoint, route.endpoint) << row.path;
    EXPECT_EQ(row.region, route.region) << row.path;
    EXPECT_EQ("", route.model) << row.path;
  }
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

class TextMemory final : public Allocator {
 public:
  explicit TextMemory(size_t bytes = 4096) : left_(bytes) {}
  void* allocate(size_t bytes, size_t) noexcept override {
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    return blocks_.emplace_back(std::make_unique<char[]>(bytes)).get();
  }
  [[nodiscard]] size_t blocks() const { return blocks_.size(); }

 private:
  size_t left_;
  std::vector<std::unique_ptr<char[]>> blocks_;
};

TEST(Route, DecodesTheNamesOnce) {
  struct Row {
    std::string_view path;
    std::string_view model;
    std::string_view version;
  };
  for (const Row& row : {
           Row{"/v2/models/%6Dlp/infer", "mlp", ""},
           {"/v2/models/%6d%6C%70/versions/%31%32/infer", "mlp", "12"},
           {"/v2/models/a%2Eb%5f%2d/infer", "a.b_-", ""},
           {"/v2/models/%256Dlp/infer", "%6Dlp", ""},
           {"/v2/models/%2e%2e/infer", "..", ""},
           {"/v2/models/a%2Fb/infer", "a/b", ""},
           {"/v2/models/m%c3%a4/infer", "m\xc3\xa4", ""},
           {"/v2/models/plain/infer", "plain", ""},
       }) {
    TextMemory memory;
    Route route = route_path(row.path);
    decode_names(route, memory);
    EXPECT_EQ(Endpoint::kInfer, route.endpoint) << row.path;
    EXPECT_EQ(row.model, route.model) << row.path;
    EXPECT_EQ(row.version, route.version) << row.path;
    EXPECT_EQ(memory.blocks(), row.model == "plain" ? 0U : row.version.empty() ? 1U : 2U);
  }
}

TEST(Route, DecodesNoMoreThanAModelsNameCanHave) {
  TextMemory memory;
  const std::string escapes = "/v2/models/" + std::string(2000, 'a') + "%6D/infer";
  Route route = route_path(escapes);
  decode_names(route, memory);
  EXPECT_EQ(0U, memory.blocks());
  EXPECT_EQ(2003U, route.model.size());
  TextMemory none(0);
  route = route_path("/v2/models/%6Dlp/infer");
  decode_names(route, none);
  EXPECT_EQ("%6Dlp", route.model);
}

TEST(Route, WordsOfThePathAreTakenAsTheyAreSent) {
  EXPECT_EQ(Endpoint::kUnknown, route_path("/v2/models/m/%69nfer").endpoint);
  EXPECT_EQ(Endpoint::kUnknown, route_path("/v2/%6Dodels/m/infer").endpoint);
  TextMemory memory;
  Route route = route_path("/v2/models/%73tats");
  decode_names(route, memory);
  EXPECT_EQ(Endpoint::kModelMetadata, route.endpoint) << "of a model called stats";
  EXPECT_EQ("stats", route.model);
}

TEST(Route, EverythingElseIsUnknown) {
  for (const char* path :
       {"", "*", "/v1", "/v2x", "/v2/health", "/v2/models", "/v2/modelsx/m/infer",
        "/v2/models/m/infer/x", "/v2/models/m/versions", "/v2/models/m/versions/",
        "/V2/health/live", "/v2/models/m/versions/1/infer/x", "/v2//health/live",
        "/v2/models/m/explain"}) {
    EXPECT_EQ(Endpoint::kUnknown, route_path(path).endpoint) << path;
  }
}

}  // namespace
}  // namespace lumen::http
