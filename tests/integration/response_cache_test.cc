// The response cache from a client's socket, or its ring of the bus, and back, over the fake
// backend. Runs under ASan and TSan.
#include <lumen/base/clock.h>
#include <lumen/bus_client/infer_client.h>

#include "support/fake_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace lumen::server {
namespace {

using bus_client::InferClient;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kEnabled =
    R"({"response_cache": {"enable": true, "ttl_ms": 3600000, "max_bytes": 1048576}})";

std::string json_infer(const std::string& inputs, const std::string& more = "") {
  return post_request("/v2/models/plus_one/infer", "{\"inputs\":[" + inputs + "]" + more + "}");
}

std::string json_input(const std::string& name, const std::string& data,
                       const std::string& shape = "[1,4]", const std::string& type = "FP32") {
  return R"({"name":")" + name + R"(","datatype":")" + type + R"(","shape":)" + shape +
         R"(,"data":)" + data + "}";
}

class ResponseCacheServer : public FakeServer {
 protected:
  ResponseCacheServer() {
    repository_.write("plus_one/config.json", kEnabled);
    options_.bus_path = (repository_.path() / "lumen.bus").string();
    options_.bus_area_bytes = 1 << 20;
  }
  void start_counting() {
    start();
    starts_before_ = control_->starts.load();
  }
  [[nodiscard]] uint64_t runs() const { return control_->starts.load() - starts_before_; }
  [[nodiscard]] uint64_t total_of_model(telemetry::ModelCounter counter) const {
    return server_->models().find("plus_one", "")->counters().total(counter);
  }
  static std::string row(float first) {
    return binary_infer("plus_one", "x", floats({first, first + 1, first + 2, first + 3}));
  }
  static std::string row_after(float first) {
    return floats({first + 1, first + 2, first + 3, first + 4});
  }

 private:
  uint64_t starts_before_ = 0;
};

TEST_F(ResponseCacheServer, AHitHasTheRequestsOwnIdAndForm) {
  start_counting();
  HttpClient http = client();
  const std::string x = json_input("x", "[1,2,3,4]");
  EXPECT_THAT(http.exchange(json_infer(x, R"(,"id":"first")")).body, HasSubstr(R"("id":"first")"));
  const HttpReply second = http.exchange(json_infer(x, R"(,"id":"second")"));
  EXPECT_THAT(second.body, HasSubstr(R"("id":"second")"));
  EXPECT_THAT(second.body, HasSubstr(R"("data":[2,3,4,5])"));
  const HttpReply without = http.exchange(json_infer(x));
  EXPECT_THAT(without.body, Not(HasSubstr("\"id\"")));
  const HttpReply binary = http.exchange(row(1));
  EXPECT_EQ(binary_part(binary), row_after(1)) << "the same bytes, sent and wanted as binary";
  EXPECT_EQ(runs(), 1u);
  EXPECT_EQ(total_of_model("cache_hit"), 3u);
}

TEST_F(ResponseCacheServer, TcpUnixSocketAndBusShareStoredAnswers) {
  start_counting();
  EXPECT_EQ(binary_part(client().exchange(row(1))), row_after(1));
  EXPECT_EQ(binary_part(unix_client().exchange(row(1))), row_after(1));
  auto bus = InferClient::connect(options_.bus_path, now_ns() + 60'000'000'000u);
  ASSERT_TRUE(bus.ok());
  const std::string input = floats({1, 2, 3, 4});
  std::memcpy(bus->area().data(), input.data(), input.size());
  wire::BusTensor x{.name = "x", .type = ElementType::kFp32};
  ASSERT_TRUE(x.shape.append(1) && x.shape.append(4));
  x.bytes = input.size();
  const wire::BusRequest request{
      .model = "plus_one", .reply_offset = 64, .reply_room = 64, .inputs = {&x, 1}};
  const auto ask = [&](const wire::BusRequest& asked) {
    std::memset(bus->area().data() + 64, 0, 64);
    EXPECT_EQ(bus->send(asked).outcome, bus::Outcome::kOk);
    EXPECT_EQ(bus->wait(now_ns() + 60'000'000'000u), bus::Outcome::kOk);
    const auto reply = bus->try_take();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->reply.status, 200);
    ASSERT_EQ(reply->reply.outputs.size(), 1u);
    const std::string got(
        reinterpret_cast<const char*>(bus->area().data()) + reply->reply.outputs[0].offset,
        reply->reply.outputs[0].bytes);
    EXPECT_EQ(got, row_after(1));
    bus->release();
  };
  ask(request);
  EXPECT_EQ(runs(), 1u);
  wire::BusRequest uncached = request;
  uncached.no_cache = true;
  ask(uncached);
  EXPECT_EQ(runs(), 2u);
  EXPECT_EQ(total_of_model("cache_hit"), 2u);
  // A request that a client of the bus leaves there is the one that was run.
  const std::string other = floats({50, 51, 52, 53});
  std::memcpy(bus->area().data(), other.data(), other.size());
  EXPECT_EQ(bus->send(request).outcome, bus::Outcome::kOk);
  EXPECT_EQ(bus->wait(now_ns() + 60'000'000'000u), bus::Outcome::kOk);
  ASSERT_TRUE(bus->try_take());
  bus->release();
  std::memset(bus->area().data(), 7, 128);
  EXPECT_EQ(binary_part(client().exchange(row(50))), row_after(50));
  EXPECT_EQ(runs(), 3u);
}

TEST_F(ResponseCacheServer, StatisticsAndMetricsTellHitsFromRuns) {
  start_counting();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(client().exchange(row(1)).status, 200);
  const std::string statistics = get("/v2/models/plus_one/stats").body;
  EXPECT_THAT(statistics, HasSubstr(R"("inference_count":1,"execution_count":1)"));
  EXPECT_THAT(statistics, HasSubstr(R"("success":{"count":5)"));
  EXPECT_THAT(statistics, HasSubstr(R"("queue":{"count":5)"));
  EXPECT_THAT(statistics, HasSubstr(R"("compute_infer":{"count":1)"));
  EXPECT_THAT(statistics, HasSubstr(R"("cache_hit":{"count":4)"));
  EXPECT_THAT(statistics, HasSubstr(R"("cache_miss":{"count":1)"));
  EXPECT_THAT(statistics, Not(HasSubstr(R"("cache_hit":{"count":4,"ns":0})")));
  const std::string metrics = get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr(R"(lumen_cache_hit_total{model="plus_one",version="1"} 4)"));
  EXPECT_THAT(metrics, HasSubstr(R"(lumen_cache_miss_total{model="plus_one",version="1"} 1)"));
  EXPECT_THAT(metrics, HasSubstr("lumen_cache_bytes{model=\"plus_one\",version=\"1\"}"));
  EXPECT_THAT(metrics,
              HasSubstr("lumen_cache_max_bytes{model=\"plus_one\",version=\"1\"} 1048576"));
}

TEST_F(ResponseCacheServer, ARequestMayWantNoneOrASooner) {
  start_counting();
  HttpClient http = client();
  const std::string x = json_input("x", "[1,2,3,4]");
  EXPECT_EQ(http.exchange(json_infer(x, R"(,"parameters":{"no_cache":true})")).status, 200);
  EXPECT_EQ(http.exchange(json_infer(x)).status, 200);
  EXPECT_EQ(runs(), 2u);
  EXPECT_EQ(http.exchange(json_infer(x, R"(,"parameters":{"ttl_ms":60000})")).status, 200);
  EXPECT_EQ(runs(), 2u);
  for (const char* bad :
       {R"("ttl_ms":0)", R"("ttl_ms":-5)", R"("ttl_ms":"1")", R"("no_cache":0)"}) {
    const HttpReply reply =
        client().exchange(json_infer(x, R"(,"parameters":{)" + std::string(bad) + "}"));
    EXPECT_EQ(reply.status, 400) << bad;
  }
  EXPECT_EQ(http.exchange(json_infer(x, R"(,"parameters":{"mine":[1]})")).status, 200);
  EXPECT_EQ(runs(), 3u) << "who knows what it changes";
}

TEST_F(ResponseCacheServer, ParametersThatChangeNoAnswerMakeNoOtherRequest) {
  start_counting();
  HttpClient http = client();
  const std::string x = json_input("x", "[1,2,3,4]");
  EXPECT_EQ(http.exchange(json_infer(x)).status, 200);
  for (const char* same : {R"("timeout":60000000)", R"("timeout":0)", R"("priority":3)",
                           R"("ttl_ms":60000)", R"("no_cache":false)"}) {
    EXPECT_EQ(http.exchange(json_infer(x, R"(,"id":"i","parameters":{)" + std::string(same) + "}"))
                  .status,
              200);
    EXPECT_EQ(runs(), 1u) << same;
  }
}

TEST_F(ResponseCacheServer, ASequenceIsNeverAnsweredFromIt) {
  start_counting();
  HttpClient http = client();
  const std::string x = json_input("x", "[1,2,3,4]");
  for (const char* of_sequence :
       {R"("sequence_id":5)", R"("sequence_id":"a","sequence_start":true)"}) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(http.exchange(json_infer(x, R"(,"parameters":{)" + std::string(of_sequence) + "}"))
                    .status,
                200);
    }
  }
  EXPECT_EQ(runs(), 4u);
  EXPECT_EQ(total_of_model("cache_hit") + total_of_model("cache_miss"), 0u);
}

TEST_F(ResponseCacheServer, TheOrderOfInputsDoesNotMatterTheirShapesDo) {
  Shape any;
  ASSERT_TRUE(any.append(Shape::kDynamic) && any.append(Shape::kDynamic));
  control_->inputs = {{"x", ElementType::kFp32, any}, {"z", ElementType::kFp32, any}};
  control_->outputs = {{"y", ElementType::kFp32, any}, {"w", ElementType::kFp32, any}};
  start_counting();
  HttpClient http = client();
  const std::string x = json_input("x", "[1,2,3,4]");
  const std::string z = json_input("z", "[5,6,7,8]");
  const HttpReply one = http.exchange(json_infer(x + "," + z));
  EXPECT_EQ(one.status, 200) << one.body;
  EXPECT_EQ(http.exchange(json_infer(z + "," + x)).body, one.body);
  EXPECT_EQ(runs(), 1u);
  const HttpReply shaped = http.exchange(json_infer(json_input("x", "[1,2,3,4]", "[2,2]") + "," +
                                                    json_input("z", "[5,6,7,8]", "[2,2]")));
  EXPECT_EQ(shaped.status, 200) << shaped.body;
  EXPECT_THAT(shaped.body, HasSubstr(R"("shape":[2,2])"));
  EXPECT_EQ(runs(), 2u) << "the same bytes under another shape";
  const std::string only_w = R"(,"outputs":[{"name":"w"}])";
  EXPECT_THAT(http.exchange(json_infer(x + "," + z, only_w)).body, Not(HasSubstr("\"y\"")));
  EXPECT_EQ(runs(), 3u) << "another choice of outputs";
  EXPECT_THAT(http.exchange(json_infer(x + "," + z, only_w)).body, HasSubstr("\"w\""));
  EXPECT_EQ(runs(), 3u);
}

TEST_F(ResponseCacheServer, AReloadBeginsEmpty) {
  start_counting();
  EXPECT_EQ(client().exchange(row(1)).status, 200);
  ASSERT_TRUE(server_->remove_model("plus_one", "").ok());
  EXPECT_EQ(client().exchange(row(1)).status, 404);
  ASSERT_TRUE(server_->add_model("plus_one", "").ok());
  const uint64_t before = control_->starts.load();
  EXPECT_EQ(client().exchange(row(1)).status, 200);
  EXPECT_EQ(control_->starts.load(), before + 1);
  EXPECT_EQ(client().exchange(row(1)).status, 200);
  EXPECT_EQ(control_->starts.load(), before + 1);
  // And without, if the file says so now.
  repository_.write("plus_one/config.json", "{}");
  ASSERT_TRUE(server_->remove_model("plus_one", "").ok());
  ASSERT_TRUE(server_->add_model("plus_one", "").ok());
  const uint64_t again = control_->starts.load();
  EXPECT_EQ(client().exchange(row(1)).status, 200);
  EXPECT_EQ(client().exchange(row(1)).status, 200);
  EXPECT_EQ(control_->starts.load(), again + 2);
}

// A run that began before the model was removed ends after; its answer is nobody's of the next
// load.
TEST_F(ResponseCacheServer, ARunFromBeforeAReloadDoesNotFillTheNext) {
  options_.engine.thread_count = 1;
  start_counting();
  control_->hold();
  HttpClient slow = client();
  ASSERT_TRUE(slow.send(row(1)));
  control_->wait_until_held(1);
  std::thread reloads([&] {
    EXPECT_TRUE(server_->remove_model("plus_one", "").ok());
    EXPECT_TRUE(server_->add_model("plus_one", "").ok());
  });
  // Not by a request like the one that is held: it would wait for that.
  while (get("/v2/models/plus_one/ready").status == 200) std::this_thread::yield();
  control_->release();
  EXPECT_EQ(binary_part(slow.read()), row_after(1));
  reloads.join();
  const uint64_t before = control_->starts.load();
  EXPECT_EQ(binary_part(client().exchange(row(1))), row_after(1));
  EXPECT_EQ(control_->starts.load(), before + 1);
}

// --- several at once -----------------------------------------------------------------------------

// A request whose thread finds another one inside the table of runs, and that one has lost its CPU,
// runs for itself (shared_runs.h). That is rare: in most rounds all clients wait for one run.
TEST_F(ResponseCacheServer, ClientsOfTwoThreadsWaitForOneRun) {
  constexpr int kRounds = 5;
  constexpr uint64_t kClients = 8;
  options_.io_thread_count = 2;
  start_counting();
  int rounds_of_one_run = 0;
  for (int round = 1; round <= kRounds; ++round) {
    const auto value = static_cast<float>(round);
    const uint64_t runs_before = runs();
    control_->hold();
    std::vector<HttpClient> clients;
    for (uint64_t i = 0; i < kClients; ++i) {
      clients.push_back(i % 2 == 0 ? client() : unix_client());
      ASSERT_TRUE(clients.back().send(row(value)));
    }
    control_->wait_until_held(1);
    while (total("requests") < kClients * static_cast<uint64_t>(round)) std::this_thread::yield();
    control_->release();
    for (HttpClient& one : clients) EXPECT_EQ(binary_part(one.read()), row_after(value));
    const uint64_t ran = runs() - runs_before;
    EXPECT_GE(ran, 1u);
    if (ran == 1) ++rounds_of_one_run;
  }
  EXPECT_GT(rounds_of_one_run, kRounds / 2);
}

TEST_F(ResponseCacheServer, WhereTheLeadersClientGoesAnotherIsAnswered) {
  options_.engine.thread_count = 1;
  start_counting();
  control_->hold();
  HttpClient before = client();
  ASSERT_TRUE(before.send(row(100)));
  control_->wait_until_held(1);
  HttpClient leader = client();
  ASSERT_TRUE(leader.send(row(3)));
  while (total("requests") < 2) std::this_thread::yield();
  HttpClient waiter = unix_client();
  ASSERT_TRUE(waiter.send(row(3)));
  while (total("requests") < 3) std::this_thread::yield();
  leader.reset();
  control_->release();
  EXPECT_EQ(binary_part(waiter.read()), row_after(3));
  EXPECT_EQ(binary_part(before.read()), row_after(100));
}

TEST_F(ResponseCacheServer, NobodyIsLostAtDrain) {
  options_.io_thread_count = 2;
  start_counting();
  control_->hold();
  std::vector<HttpClient> clients;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(unix_client());
    ASSERT_TRUE(clients.back().send(row(3)));
  }
  while (total("requests") < 6) std::this_thread::yield();
  control_->wait_until_held(1);
  std::thread drains([&] { server_->drain(); });
  control_->release();
  for (HttpClient& one : clients) EXPECT_EQ(binary_part(one.read()), row_after(3));
  drains.join();
}

// A client that does not read holds an answer that was evicted long ago: at last it reads the
// stored bytes.
TEST_F(ResponseCacheServer, ASlowReadersAnswerStaysWholeWhileItIsEvicted) {
  constexpr size_t kBytes = size_t{2} << 20;
  repository_.write("plus_one/config.json",
                    R"({"response_cache": {"enable": true, "max_bytes": 16777216}})");
  options_.max_body_bytes = size_t{8} << 20;
  start_counting();
  const auto large = [](float value) {
    std::string bytes(kBytes, '\0');
    for (size_t i = 0; i < kBytes; i += sizeof(float))
      std::memcpy(&bytes[i], &value, sizeof(float));
    return bytes;
  };
  const auto request = [&](float value) {
    const std::string json =
        R"({"parameters":{"binary_data_output":true},"inputs":[{"name":"x","datatype":"FP32","shape":[)" +
        std::to_string(kBytes / 16) + R"(,4],"parameters":{"binary_data_size":)" +
        std::to_string(kBytes) + "}}]}";
    return "POST /v2/models/plus_one/infer HTTP/1.1\r\nHost: t\r\nContent-Length: " +
           std::to_string(json.size() + kBytes) +
           "\r\nInference-Header-Content-Length: " + std::to_string(json.size()) + "\r\n\r\n" +
           json + large(value);
  };
  HttpClient http = unix_client();
  EXPECT_EQ(http.exchange(request(1)).status, 200);
  HttpClient slow = unix_client();
  ASSERT_TRUE(slow.send(request(1)));
  while (total_of_model("cache_hit") < 1) std::this_thread::yield();
  for (int i = 2; i < 20; ++i) {
    EXPECT_EQ(binary_part(http.exchange(request(static_cast<float>(i)))),
              large(static_cast<float>(i) + 1));
  }
  EXPECT_EQ(binary_part(slow.read()), large(2));
  EXPECT_EQ(total_of_model("cache_hit"), 1u);
}

TEST_F(ResponseCacheServer, UnderLoadEachClientGetsItsOwnAnswer) {
  options_.io_thread_count = 2;
  repository_.write("plus_one/config.json",
                    R"({"response_cache": {"enable": true, "max_bytes": 65536}})");
  start_counting();
  const auto drive = [&](HttpClient http, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < 300; ++i) {
      const auto value = static_cast<float>(random() % 100 < 70 ? random() % 8 : random() % 1000);
      EXPECT_EQ(binary_part(http.exchange(row(value))), row_after(value)) << "seed " << seed;
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([&, seed] { drive(seed % 2 == 0 ? client() : unix_client(), seed); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(total_of_model("cache_hit"), 0u);
  EXPECT_EQ(total_of_model("cache_hit") + total_of_model("cache_miss"), 1200u);
}

}  // namespace
}  // namespace lumen::server
