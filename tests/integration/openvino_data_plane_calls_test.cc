// The data plane allocates nothing and takes no lock once the server is ready: counted over the whole
// process from the first byte of a request to the last of its reply, outside the backend's own call.
#include "support/call_counter.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <lumen/serve/server.h>

#include "support/http_client.h"
#include "support/temp_repository.h"
#include "support/wrapping_backend.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace lumen::serve {
namespace {

using testing_support::CallCountPause;
using testing_support::CallCounts;

// The backend's own calls are its business, unless a test wants one to be seen.
class UncountedInstance final : public engine::Instance {
 public:
  UncountedInstance(std::unique_ptr<engine::Instance> inner, bool deliberate_allocation)
      : inner_(std::move(inner)), deliberate_allocation_(deliberate_allocation) {}
  engine::StartOutcome start(engine::InferRequest& request,
                             void (*done)(engine::InferRequest&) noexcept) noexcept override {
    if (deliberate_allocation_) {
      void* volatile memory = std::malloc(16);  // volatile: the compiler may drop an unused pair
      std::free(memory);
    }
    const CallCountPause pause;
    return inner_->start(request, done);
  }

 private:
  std::unique_ptr<engine::Instance> inner_;
  const bool deliberate_allocation_;
};

class DataPlaneCalls : public testing::Test {
 protected:
  void start(std::unique_ptr<engine::Backend> backend, const std::filesystem::path& models,
             bool deliberate_allocation = false) {
    ServerOptions options;
    options.http_address = "127.0.0.1:0";
    options.model_repository = models;
    options.max_active_requests = 4;
    options.max_connections = 16;
    auto wrap = [deliberate_allocation](std::unique_ptr<engine::Instance> inner) {
      return std::unique_ptr<engine::Instance>(
          std::make_unique<UncountedInstance>(std::move(inner), deliberate_allocation));
    };
    auto server =
        Server::start(options, std::make_unique<engine::WrappingBackend>(std::move(backend), wrap));
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
  }

  // Sends `request` a hundred times over one connection after a few to warm up, and counts.
  CallCounts count(const std::string& request) {
    HttpClient http(server_->http_address());
    for (int i = 0; i < 5; ++i) EXPECT_EQ(200, http.exchange(request).status);
    testing_support::open_call_window();
    for (int i = 0; i < 100; ++i) {
      const CallCountPause pause;  // this client's own strings
      EXPECT_EQ(200, http.exchange(request).status);
    }
    return testing_support::close_call_window();
  }
  void expect_none(const std::string& what, const std::string& request) {
    const CallCounts counts = count(request);
    EXPECT_EQ(0u, counts.allocations) << what;
    EXPECT_EQ(0u, counts.frees) << what;
    EXPECT_EQ(0u, counts.locks) << what;
  }

  std::unique_ptr<Server> server_;
};

TEST_F(DataPlaneCalls, ABinaryRequestToOpenVinoMakesNone) {
  start(engine::make_openvino_backend(), LUMEN_SOURCE_DIR "/models");
  expect_none("small", binary_infer("mlp", "input", std::string(1024, '\0')));
  expect_none("large", binary_infer("identity", "input", std::string(602'112, '\0')));
}

TEST_F(DataPlaneCalls, AJsonRequestMakesNone) {
  start(engine::make_openvino_backend(), LUMEN_SOURCE_DIR "/models");
  expect_none("json", post_request("/v2/models/identity/infer",
                                   R"({"id":"1","inputs":[{"name":"input","datatype":"FP32",)"
                                   R"("shape":[1,3],"data":[1,2.5,3]}]})"));
}

TEST_F(DataPlaneCalls, AChunkedRequestMakesNone) {
  start(engine::make_openvino_backend(), LUMEN_SOURCE_DIR "/models");
  const std::string body =
      R"({"inputs":[{"name":"input","datatype":"FP32","shape":[1,1],"data":[1]}]})";
  char size[32];
  std::snprintf(size, sizeof(size), "%zx\r\n", body.size());
  expect_none("chunked",
              "POST /v2/models/identity/infer HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked"
              "\r\n\r\n" +
                  std::string(size) + body + "\r\n0\r\n\r\n");
}

TEST_F(DataPlaneCalls, HealthMetadataAndStatisticsMakeNone) {
  start(engine::make_openvino_backend(), LUMEN_SOURCE_DIR "/models");
  for (const char* path :
       {"/v2/health/ready", "/v2", "/v2/models/mlp", "/v2/models/mlp/ready", "/v2/models/stats"}) {
    expect_none(path, get_request(path));
  }
}

TEST_F(DataPlaneCalls, OneDeliberateAllocationIsSeen) {
  start(engine::make_openvino_backend(), LUMEN_SOURCE_DIR "/models", true);
  const CallCounts counts = count(binary_infer("mlp", "input", std::string(1024, '\0')));
  EXPECT_EQ(100u, counts.allocations);
  EXPECT_EQ(100u, counts.frees);
}

}  // namespace
}  // namespace lumen::serve

#endif
