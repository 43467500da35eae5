// The server's engine changed through all its configurations while clients are served: not one
// request fails, and each gets its own answer. With the fake backend, so that it runs under ASan
// and TSan too.
// Threads: clients, and the test's, which changes. Memory: the heap. Errors: by gtest.
#include "support/fake_server.h"
#include "support/stress.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lumen::server {
namespace {

using models::AllocatorType;
using models::QueueType;

struct SwapCase {
  const char* name;
  bool asynchronous;
  uint32_t max_in_flight;
};

std::ostream& operator<<(std::ostream& out, const SwapCase& one) { return out << one.name; }

class LiveSwap : public FakeServer, public testing::WithParamInterface<SwapCase> {
 protected:
  LiveSwap() {
    control_->asynchronous = GetParam().asynchronous;
    control_->max_in_flight = GetParam().max_in_flight;
    options_.io_thread_count = 2;
    options_.engine.batch_size = 4;
  }
  // One client's requests until `stop`, each with values of its own.
  uint64_t run_client(uint64_t number, const std::atomic<bool>& stop,
                      const std::string& model = "plus_one") const {
    HttpClient http = client();
    uint64_t answered = 0;
    while (!stop.load()) {
      std::array<float, 4> values{};
      values.fill(static_cast<float>(number * 1'000'000 + answered % 1'000'000));
      std::string bytes(sizeof(values), '\0');
      std::memcpy(bytes.data(), values.data(), sizeof(values));
      const HttpReply reply = http.exchange(binary_infer(model, "x", bytes));
      for (float& value : values) value += 1;
      std::memcpy(bytes.data(), values.data(), sizeof(values));
      EXPECT_EQ(200, reply.status) << reply.body;
      EXPECT_TRUE(reply.body.ends_with(bytes));
      if (HasFailure()) break;
      ++answered;
    }
    return answered;
  }
};

TEST_P(LiveSwap, EveryOrderedChangeOfQueueTypeLosesNothing) {
  start();
  std::atomic<bool> stop{false};
  std::array<std::atomic<uint64_t>, 4> answered{};
  std::vector<std::thread> clients;
  clients.reserve(answered.size());
  for (size_t i = 0; i < answered.size(); ++i) {
    clients.emplace_back([&, i] { answered[i].store(run_client(i + 1, stop)); });
  }
  const auto change = [&](QueueType type, uint32_t round) {
    const uint64_t before = server_->counters().total("requests");
    engine::EngineConfig config = server_->engine_config();
    config.queue_type = type;
    config.policy = static_cast<engine::Policy>(round % 3);
    config.allocator_type = static_cast<AllocatorType>(round % 2);
    config.thread_count = 1 + round % 3;
    const Status status = server_->reconfigure(config);
    EXPECT_TRUE(status.ok()) << status.message();
    // Each configuration serves before the next one comes.
    while (!HasFailure() && server_->counters().total("requests") < before + 20) {
      std::this_thread::yield();
    }
  };
  // Workers end with each change, and their counts stay.
  std::thread watcher([&] {
    const telemetry::Counters& counters = server_->counters();
    const uint32_t model = server_->models().find("plus_one", "")->index();
    for (std::array<uint64_t, 4> last{}; !stop.load();) {
      const std::array<uint64_t, 4> now = {
          counters.total("worker_parks"), counters.total("requests"),
          counters.total(model, "inference"), counters.total(model, "queue_ns")};
      for (size_t i = 0; i < now.size(); ++i) EXPECT_GE(now[i], last[i]) << i;
      if (HasFailure()) break;
      last = now;
      std::this_thread::yield();
    }
  });
  uint32_t round = 0;
  for (uint64_t turn = 0; turn < test::number_from("LUMEN_STRESS_SCALE", 1); ++turn) {
    for (size_t from = 0; from < models::kQueueTypeNames.size(); ++from) {
      for (size_t to = 0; to < models::kQueueTypeNames.size(); ++to) {
        if (from == to) continue;
        change(static_cast<QueueType>(from), round);
        change(static_cast<QueueType>(to), ++round);
      }
    }
  }
  stop.store(true);
  for (std::thread& client : clients) client.join();
  watcher.join();
  for (const auto& count : answered) EXPECT_GT(count.load(), 0u);
  EXPECT_GE(server_->counters().total("engine_swaps"), 20u);
  const telemetry::Counters& counters = server_->counters();
  EXPECT_EQ(counters.total("responses_4xx") + counters.total("responses_5xx"), 0u);
  uint64_t all = 0;
  for (const auto& count : answered) all += count.load();
  const telemetry::ModelCounters model = server_->models().find("plus_one", "")->counters();
  for (const telemetry::ModelCounter counter :
       {telemetry::ModelCounter("inference"), telemetry::ModelCounter("success"),
        telemetry::ModelCounter("queue"), telemetry::ModelCounter("run"),
        telemetry::ModelCounter("postprocess")}) {
    EXPECT_EQ(model.total(counter), all) << counter.descriptor().name;
  }
  EXPECT_EQ(counters.total("requests"), all);
  EXPECT_EQ(counters.total("responses_2xx"), all);
}

// Models that go inline, to any worker, to some workers and packed, one of them heavy.
TEST_P(LiveSwap, FortyChangesUnderALoadOfSeveralModelsLoseNothing) {
  const std::array<std::string, 5> names = {"plus_one", "some", "urgent", "packed", "worker"};
  for (const std::string& name : names) repository_.add_model(name);
  repository_.write("some/config.json", R"({"instances": 1, "weight": 5})");
  repository_.write("urgent/config.json", R"({"priority": 1})");
  repository_.write("packed/config.json", R"({"queue_type": "batched", "priority": 3})");
  repository_.write("worker/config.json", R"({"queue_type": "mpmc"})");
  options_.engine.queue_type = QueueType::kAuto;
  control_->cost_ns = [](uint64_t rows) { return rows * 20'000; };
  start();
  std::atomic<bool> stop{false};
  std::array<std::atomic<uint64_t>, 5> answered{};
  std::vector<std::thread> clients;
  clients.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    clients.emplace_back([&, i] { answered[i].store(run_client(i + 1, stop, names[i])); });
  }
  constexpr std::array kTypes = {QueueType::kAuto, QueueType::kMpmc,  QueueType::kAuto,
                                 QueueType::kSpsc, QueueType::kAuto,  QueueType::kInline,
                                 QueueType::kAuto, QueueType::kNaive, QueueType::kBatched};
  for (uint32_t i = 0; i < 40 && !HasFailure(); ++i) {
    std::array<uint64_t, 5> before{};
    for (size_t model = 0; model < names.size(); ++model) {
      before[model] = server_->models().find(names[model], "")->counters().total("success");
    }
    engine::EngineConfig config = server_->engine_config();
    config.queue_type = kTypes[i % kTypes.size()];
    config.policy = static_cast<engine::Policy>(i % 3);
    config.thread_count = 1 + i % 3;
    const Status status = server_->reconfigure(config);
    EXPECT_TRUE(status.ok()) << status.message();
    // Each model is served by each configuration.
    for (size_t model = 0; model < names.size() && !HasFailure(); ++model) {
      const telemetry::ModelCounters counters =
          server_->models().find(names[model], "")->counters();
      while (counters.total("success") < before[model] + 2) std::this_thread::yield();
    }
  }
  stop.store(true);
  for (std::thread& one : clients) one.join();
  uint64_t all = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const telemetry::ModelCounters counters = server_->models().find(names[i], "")->counters();
    EXPECT_EQ(counters.total("success"), answered[i].load()) << names[i];
    all += answered[i].load();
  }
  EXPECT_EQ(server_->counters().total("responses_2xx"), all);
  EXPECT_EQ(server_->counters().total("responses_4xx"), 0u);
  EXPECT_EQ(server_->counters().total("responses_5xx"), 0u);
}

// A drain while a change is under way, and a change while a drain is: neither waits for the other
// for ever, and accepted requests are answered.
TEST_P(LiveSwap, ADrainDuringChangesEndsAndAnswersAcceptedRequests) {
  for (int round = 0; round < 5; ++round) {
    start();
    std::atomic<bool> drained{false};
    std::thread changer([&] {
      for (uint32_t i = 0; !drained.load(); ++i) {
        engine::EngineConfig config = server_->engine_config();
        config.queue_type = static_cast<QueueType>(i % models::kQueueTypeNames.size());
        if (!server_->reconfigure(config).ok()) break;
      }
    });
    HttpClient http = client();
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(200, http.exchange(binary_infer("plus_one", "x", std::string(16, '\0'))).status);
    }
    http.close();
    server_->drain();
    drained.store(true);
    changer.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, LiveSwap,
                         testing::Values(SwapCase{"Synchronous", false, 1},
                                         SwapCase{"Asynchronous", true, 1},
                                         SwapCase{"AsynchronousFour", true, 4}),
                         [](const testing::TestParamInfo<SwapCase>& one) {
                           return one.param.name;
                         });

}  // namespace
}  // namespace lumen::server
