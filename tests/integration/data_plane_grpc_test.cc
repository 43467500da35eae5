// Calls of gRPC, and requests of REST over HTTP/2, allocate nothing and take no lock, on either
// loop and for each queue type.
#include "support/call_counter.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include "integration/data_plane_server.h"
#include "support/grpc_client.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

namespace lumen::server {
namespace {

using models::QueueType;

class DataPlaneGrpc : public testing::TestWithParam<std::tuple<QueueType, net::LoopKind>> {
 protected:
  void start() {
    served.options.engine.queue_type = std::get<0>(GetParam());
    // Where the kernel has no io_uring both are epoll.
    const net::LoopKind loop = std::get<1>(GetParam());
    served.options.loop = net::choose_loop(loop).ok() ? loop : net::LoopKind::kEpoll;
    served.start();
  }
  DataPlaneServer served;
};

void expect_nothing_counted(DataPlaneServer& served, const std::string& method,
                            const std::string& message, size_t reply_bytes) {
  test::GrpcClient client(served.client(false));
  const auto round = [&] {
    ASSERT_TRUE(client.send(client.call(method, message)));
    const test::GrpcClient::Reply reply = client.read();
    ASSERT_TRUE(reply.has_ended);
    EXPECT_EQ(reply.data.size(), reply_bytes) << reply.trailer;
  };
  for (int i = 0; i < 5; ++i) round();
  testing_support::open_call_window();
  for (int i = 0; i < kRequests; ++i) round();
  expect_none(method, testing_support::close_call_window().data_plane);
}

TEST_P(DataPlaneGrpc, InferAllocatesNothing) {
  start();
  // The prefix; "mlp", "1"; an output of 40 bytes with its name, type and shape.
  constexpr size_t kReplyBytes = 5 + 5 + 3 + (2 + 8 + 6 + 4) + 2 + 40;
  expect_nothing_counted(served, "ModelInfer",
                         test::grpc_infer("mlp", "input", std::string(1024, '\0')), kReplyBytes);
}

TEST_P(DataPlaneGrpc, AStreamAllocatesNothing) {
  start();
  const std::string message = test::grpc_infer("mlp", "input", std::string(1024, '\0'));
  const std::string bad = test::grpc_infer("none", "input", std::string(1024, '\0'));
  test::GrpcClient client(served.client(false));
  ASSERT_TRUE(client.send(client.begin("ModelStreamInfer")));
  const auto round = [&] {
    ASSERT_TRUE(client.send(client.next(message) + client.next(bad) + client.next(message)));
    size_t bytes = 0;
    for (int i = 0; i < 3; ++i) {
      const test::GrpcClient::Reply reply = client.read_message();
      ASSERT_FALSE(reply.has_ended);
      bytes += reply.data.size();
    }
    EXPECT_GT(bytes, 2 * 40u);
  };
  for (int i = 0; i < 5; ++i) round();
  testing_support::open_call_window();
  for (int i = 0; i < kRequests; ++i) round();
  expect_none("ModelStreamInfer", testing_support::close_call_window().data_plane);
}

TEST_P(DataPlaneGrpc, ARefusalAllocatesNothing) {
  start();
  expect_nothing_counted(served, "ModelInfer",
                         test::grpc_infer("none", "input", std::string(1024, '\0')), 0);
}

TEST_P(DataPlaneGrpc, DocumentsAllocateNothing) {
  start();
  expect_nothing_counted(served, "ServerLive", {}, 5 + 2);
  expect_nothing_counted(served, "ModelReady", test::proto_field(1, "mlp"), 5 + 2);
}

TEST_P(DataPlaneGrpc, RequestsOfRestAllocateNothing) {
  start();
  const std::string json = R"({"inputs":[{"name":"input","datatype":"FP32","shape":[1,256],)"
                           R"("parameters":{"binary_data_size":1024}}]})";
  const std::string body = json + std::string(1024, '\0');
  const std::string path = "/v2/models/mlp/infer";
  const std::pair<std::string, std::string> json_bytes{"inference-header-content-length",
                                                       std::to_string(json.size())};
  test::GrpcClient client(served.client(false));
  const auto ask = [&](const std::string& request, size_t least_bytes) {
    ASSERT_TRUE(client.send(request));
    const test::GrpcClient::Reply reply = client.read();
    ASSERT_TRUE(reply.has_ended);
    EXPECT_GE(reply.data.size(), least_bytes) << reply.trailer;
  };
  const auto round = [&] {
    ask(client.rest(path, body, {json_bytes}), 100);  // in chunks
    ask(client.rest(path, body, {json_bytes, {"content-length", std::to_string(body.size())}}),
        100);
    ask(client.rest("/v2/models/none/infer", body), 20);
    ask(client.rest("/v2/health/live", {}), 2);
  };
  for (int i = 0; i < 5; ++i) round();
  testing_support::open_call_window();
  for (int i = 0; i < kRequests; ++i) round();
  expect_none("REST", testing_support::close_call_window().data_plane);
}

std::string name_of(const testing::TestParamInfo<DataPlaneGrpc::ParamType>& one) {
  return std::string(models::name_of(std::get<0>(one.param))) + "_" +
         std::string(net::name_of(std::get<1>(one.param)));
}

INSTANTIATE_TEST_SUITE_P(
    Queues, DataPlaneGrpc,
    testing::Combine(testing::Values(QueueType::kMpmc, QueueType::kInline, QueueType::kAuto),
                     testing::Values(net::LoopKind::kEpoll, net::LoopKind::kIoUring)),
    name_of);

}  // namespace
}  // namespace lumen::server

#endif
