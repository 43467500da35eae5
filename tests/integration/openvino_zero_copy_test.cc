// Where the model reads: a large binary input lies where the socket's bytes were received.
#include <lumen/backends/openvino.h>
#include <lumen/server/server.h>

#include "support/http_client.h"
#include "support/observing_backend.h"
#include "support/source_dir.h"

#include <gtest/gtest.h>

#include <string>

namespace lumen::server {
namespace {

class ZeroCopy : public testing::Test {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.http_address = "127.0.0.1:0";
    options.model_repository = test::source_path("models");
    options.max_active_requests = 4;
    auto server = Server::start(options, models::observe(backends::make_openvino(), observations_));
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
  }

  std::shared_ptr<models::Observations> observations_ = std::make_shared<models::Observations>();
  std::unique_ptr<Server> server_;
};

TEST_F(ZeroCopy, TheModelReadsALargeInputInTheRegionItWasReceivedInto) {
  const std::string values(602'112, 'x');  // as large as an image for SqueezeNet
  HttpClient http(server_->http_address());
  const size_t calls_before = observations_->calls().size();  // warm-up
  ASSERT_EQ(200, http.exchange(binary_infer("identity", "input", values)).status);
  const auto calls = observations_->calls();
  ASSERT_EQ(calls_before + 1, calls.size());
  EXPECT_TRUE(observations_->in_a_region(calls.back().request_data));
  EXPECT_EQ(calls.back().request_data, calls.back().bound) << "the input was copied";
  // All but the bytes that came with the head went from the socket to where the model read it.
  EXPECT_GE(server_->counters().total("received_direct_bytes") + limits::kReceiveBufferBytes,
            values.size());
}

TEST_F(ZeroCopy, ASmallInputIsCopiedIntoTheBoundBuffer) {
  const std::string values(1024, 'x');
  HttpClient http(server_->http_address());
  ASSERT_EQ(200, http.exchange(binary_infer("mlp", "input", values)).status);
  const auto calls = observations_->calls();
  ASSERT_FALSE(calls.empty());
  EXPECT_NE(calls.back().request_data, calls.back().bound);
}

}  // namespace
}  // namespace lumen::server
