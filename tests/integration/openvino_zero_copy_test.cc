// Where the model reads: a large binary input lies where the socket's bytes were received.
#include <lumen/backends/openvino.h>
#include <lumen/server/server.h>

#include "support/grpc_client.h"
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

TEST_F(ZeroCopy, TheModelReadsALargeInputOfGrpcInTheMessageItWasReceivedInto) {
  const std::string values(602'112, 'x');
  test::GrpcClient client(HttpClient(server_->http_address()));
  const std::string message = test::grpc_infer("identity", "input", values);
  // The place of the tensor in its message, whatever that is, and frames of any size.
  for (const size_t most_of_frame : {size_t{16'384}, size_t{1'000'000}}) {
    const uint64_t direct_before = server_->counters().total("received_direct_bytes");
    ASSERT_TRUE(client.send(client.call("ModelInfer", message, most_of_frame)));
    const test::GrpcClient::Reply reply = client.read();
    ASSERT_TRUE(reply.has_ended);
    EXPECT_EQ(values, reply.data.substr(reply.data.size() - values.size()));
    const auto call = observations_->calls().back();
    EXPECT_EQ(call.request_data, call.bound) << "the input was copied";
    // All but the first bytes went from the socket to where the model read them.
    if (most_of_frame < values.size()) continue;
    EXPECT_GE(server_->counters().total("received_direct_bytes") - direct_before + (64 << 10),
              values.size());
  }
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
