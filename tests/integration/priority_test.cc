// The parameter `priority` on its way from a client, over HTTP and the bus, to the choice of the
// next request.
// Threads: the test's and the server's. Memory: the heap. Errors: failed expectations.
#include <lumen/base/clock.h>
#include <lumen/bus_client/infer_client.h>

#include "support/fake_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace lumen::server {
namespace {

using testing::ElementsAre;

constexpr uint64_t kPatienceNs = 60'000'000'000;

// The number of rows tells which request it is.
std::string rows_with(size_t rows, const std::string& parameters) {
  std::string data = "0";
  for (size_t i = 1; i < rows * 4; ++i) data += ",0";
  return post_request("/v2/models/plus_one/infer",
                      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[)" +
                          std::to_string(rows) + R"(,4],"data":[)" + data +
                          R"(]}],"parameters":{)" + parameters + "}}");
}

class PriorityServer : public FakeServer, public testing::WithParamInterface<models::QueueType> {
 protected:
  PriorityServer() {
    options_.bus_path = (repository_.path() / "lumen.bus").string();
    options_.bus_area_bytes = 4096;
    options_.engine.queue_type = GetParam();
    options_.engine.thread_count = 1;
    options_.engine.batch_size = 1;
  }
  // A worker is held in the middle of a run, so later requests wait.
  void hold_the_worker() {
    start();
    (void)control_->take_rows_run();
    control_->hold();
    ASSERT_TRUE(first_.emplace_back(client()).send(rows_with(1, "")));
    control_->wait_until_held(1);
  }
  void wait_until_queued(uint64_t count) {
    const telemetry::ModelCounters counters = server_->models().find("plus_one", "")->counters();
    while (counters.total("queued") < count) std::this_thread::yield();
    // A request is counted before it is in its queue. The I/O thread answers the second of these in
    // a later turn than that in which it counted.
    for (int i = 0; i < 2; ++i) EXPECT_EQ(get("/v2/health/live").status, 200);
  }
  void send(size_t rows, const std::string& parameters) {
    ASSERT_TRUE(first_.emplace_back(client()).send(rows_with(rows, parameters)));
    wait_until_queued(++queued_);
  }
  void send_over_bus(bus_client::InferClient& bus, int64_t rows, uint32_t priority) {
    wire::BusTensor x{.name = "x", .type = ElementType::kFp32};
    ASSERT_TRUE(x.shape.append(rows) && x.shape.append(4));
    x.bytes = 16 * static_cast<uint64_t>(rows);
    const wire::BusRequest request{.model = "plus_one",
                                   .priority = priority,
                                   .reply_offset = 1024,
                                   .reply_room = 1024,
                                   .inputs = {&x, 1}};
    ASSERT_EQ(bus.send(request).outcome, bus::Outcome::kOk);
    bus.flush();
    wait_until_queued(++queued_);
  }
  void read_all() {
    control_->release();
    for (HttpClient& one : first_) EXPECT_EQ(one.read().status, 200);
  }

  std::vector<HttpClient> first_;
  uint64_t queued_ = 0;
};

TEST_P(PriorityServer, RequestsRunByTheirParameterPriorityThenAsTheyCame) {
  hold_the_worker();
  send(2, "");
  send(3, R"("priority":3)");
  send(4, R"("priority":1)");
  send(5, R"("priority":4294967297)");
  send(6, R"("priority":0)");
  auto bus = bus_client::InferClient::connect(options_.bus_path, now_ns() + kPatienceNs);
  ASSERT_TRUE(bus.ok());
  send_over_bus(*bus, 7, 1);
  read_all();
  EXPECT_EQ(bus->wait(now_ns() + kPatienceNs), bus::Outcome::kOk);
  EXPECT_THAT(control_->take_rows_run(), ElementsAre(1, 4, 7, 2, 6, 3, 5));
}

INSTANTIATE_TEST_SUITE_P(QueueTypes, PriorityServer,
                         testing::Values(models::QueueType::kMpmc, models::QueueType::kBatched),
                         [](const auto& one) { return std::string(name_of(one.param)); });

}  // namespace
}  // namespace lumen::server
