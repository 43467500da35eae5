// The data plane allocates nothing and takes no lock once the server is ready, for any queue type
// but `naive`: counted from the first byte of a request to the last of its reply, outside the
// backend's own calls, which are printed apart.
#include "support/call_counter.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <lumen/backends/built_in.h>
#include <lumen/backends/openvino.h>
#include <lumen/base/clock.h>
#include <lumen/bus_client/infer_client.h>
#include <lumen/server/server.h>

#include "integration/data_plane_server.h"
#include "support/fake_backend.h"
#include "support/http_client.h"
#include "support/source_dir.h"
#include "support/temp_repository.h"
#include "support/wrapping_backend.h"
#ifdef LUMEN_WITH_TEST_DEVICE
#include <lumen/backends/onnxruntime.h>

#include "support/test_device.h"
#endif

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace lumen::server {
namespace {

using models::AllocatorType;
// --- every queue type and backend, over TCP and the unix socket, the telemetry CSV on ------------

constexpr std::string_view kDevice = "device";  // of tests/device

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const auto& backend : backends::built_in()) names.emplace_back(backend->name());
#ifdef LUMEN_WITH_TEST_DEVICE
  names.emplace_back(kDevice);
#endif
  return names;
}

std::unique_ptr<models::Backend> make_backend(std::string_view name) {
#ifdef LUMEN_WITH_TEST_DEVICE
  if (name == kDevice) return backends::make_device_backend(test::device_provider());
#endif
  for (auto& backend : backends::built_in()) {
    if (backend->name() == name) return std::move(backend);
  }
  return nullptr;
}

using QueueOverSocketToBackend = std::tuple<QueueType, bool, std::string>;

class DataPlaneCallsOf : public testing::TestWithParam<QueueOverSocketToBackend> {
 protected:
  [[nodiscard]] static QueueType queue_type() { return std::get<0>(GetParam()); }
  [[nodiscard]] static bool over_unix() { return std::get<1>(GetParam()); }
  void start(AllocatorType allocator_type) {
    served.options.engine.queue_type = queue_type();
    served.options.engine.allocator_type = allocator_type;
    served.options.engine.batch_size = 8;
    models.copy_model(test::source_path("models/mlp/1"), "mlp");  // alone: warm-up takes its time
    served.options.model_repository = models.path();
    served.start(make_backend(std::get<2>(GetParam())));
  }
  // Only `naive` locks.
  static void expect_queue_calls(const CallCounts& counts) {
    EXPECT_EQ(0u, counts.allocations);
    EXPECT_EQ(0u, counts.frees);
    if (queue_type() == QueueType::kNaive) {
      EXPECT_GT(counts.locks, 0u);
    } else {
      EXPECT_EQ(0u, counts.all_locks());
    }
  }
  models::TempRepository models;
  DataPlaneServer served;
};

TEST_P(DataPlaneCallsOf, ARequestAllocatesNothingAndOnlyNaiveLocks) {
  start(AllocatorType::kLumenArena);
  const WindowCounts counts = served.count(kMlpRequest, over_unix());
  expect_queue_calls(counts.data_plane);
  // All that sleeps on the data plane is a worker that parks (and counts it) or the loop in epoll.
  const uint64_t may_wait = queue_type() == QueueType::kInline ? 0 : served.parks_within + 1;
  EXPECT_LE(counts.data_plane.futex_waits, may_wait);
  const std::string& backend = std::get<2>(GetParam());
  std::printf("a request: %.2f futex waits; %s: %.2f allocations, %.2f locks\n",
              static_cast<double>(counts.data_plane.futex_waits) / kRequests, backend.c_str(),
              static_cast<double>(counts.backend.allocations) / kRequests,
              static_cast<double>(counts.backend.locks) / kRequests);
  if (backend == kDevice) {  // the worker hands over, and another thread is in the library's call
    EXPECT_EQ(0u, counts.backend.allocations);
    EXPECT_GT(counts.backend.locks, 0u);
    EXPECT_GT(counts.completions, 0u) << "the counter sees the completions";
    return;
  }
  EXPECT_GT(counts.backend.allocations, 0u) << "the counter sees what the backend does";
}

TEST_P(DataPlaneCallsOf, EightConnectionsAtOnceAllocateNothing) {
  start(AllocatorType::kLumenArena);
  expect_queue_calls(served.count(kMlpRequest, over_unix(), 8).data_plane);
}

TEST_P(DataPlaneCallsOf, ARequestOfATraceAllocatesNothing) {
  start(AllocatorType::kLumenArena);
  expect_queue_calls(served.count(kTracedRequest, over_unix()).data_plane);
  served.server.reset();
  EXPECT_TRUE(std::filesystem::exists(served.files.path() / "requests.traceparent.csv"));
}

// Its heap calls a request, as users see them, are those that the C library saw. The backend places
// outputs in the request's memory, so memory freed here was in part allocated there.
TEST_P(DataPlaneCallsOf, WithTheHeapARequestAllocatesAndAllOfItIsCounted) {
  start(AllocatorType::kStandard);
  const CallCounts counts = served.count(kMlpRequest, over_unix()).data_plane;
  EXPECT_GE(counts.allocations, uint64_t{kRequests});
  EXPECT_GE(counts.frees, counts.allocations);
  // The window opens and closes while the request before may still hold its memory.
  EXPECT_NEAR(static_cast<double>(served.heap_calls_within),
              2.0 * static_cast<double>(counts.frees),
              2.0 * static_cast<double>(counts.frees) / kRequests * 2);
  if (queue_type() != QueueType::kNaive) {
    EXPECT_EQ(0u, counts.all_locks());
  }
}

// A sample of one row, so that each request of the window may be the one that replaces it.
TEST_P(DataPlaneCallsOf, ARequestWhoseRowIsRecordedAllocatesNothing) {
  served.options.allows_recording = true;
  start(AllocatorType::kLumenArena);
  HttpClient control = served.client(true);
  const auto ask = [&control](const std::string& body) {
    return control.exchange(post_request("/v2/lumen/recording", body));
  };
  const HttpReply begun = ask(R"({"action": "begin", "model": "mlp", "rows": 1})");
  ASSERT_EQ(begun.status, 200) << begun.body;
  expect_queue_calls(served.count(kMlpRequest, over_unix(), 8).data_plane);
  const HttpReply ended = ask(R"({"action": "end"})");
  EXPECT_NE(ended.body.find("\"seen\":840,\"kept\":1"), std::string::npos) << ended.body;
}

INSTANTIATE_TEST_SUITE_P(Queues, DataPlaneCallsOf,
                         testing::Combine(testing::Values(QueueType::kMpmc, QueueType::kSpsc,
                                                          QueueType::kNaive, QueueType::kBatched,
                                                          QueueType::kInline, QueueType::kAuto),
                                          testing::Bool(), testing::ValuesIn(backend_names())),
                         [](const testing::TestParamInfo<QueueOverSocketToBackend>& one) {
                           std::string name(models::name_of(std::get<0>(one.param)));
                           name += std::get<1>(one.param) ? "OverUnixTo" : "OverTcpTo";
                           return name + std::get<2>(one.param);
                         });

// --- packing -------------------------------------------------------------------------------------

class DataPlaneCallsPacked : public testing::TestWithParam<QueueType> {};

// Eight requests that come while a slow call runs are the next batch.
TEST_P(DataPlaneCallsPacked, PackingAndSplittingAllocatesNothing) {
  DataPlaneServer served;
  const auto control = std::make_shared<models::FakeControl>();
  control->cost_ns = [](uint64_t) { return uint64_t{300'000}; };
  models::TempRepository models;
  models.add_model("m");
  served.options.model_repository = models.path();
  served.options.engine.queue_type = GetParam();
  served.options.engine.batch_size = 8;
  served.start(models::make_fake_backend(control));
  const telemetry::ModelCounters counters = served.counters_of("m");
  expect_none("packed",
              served.count(binary_infer("m", "x", std::string(16, '\0')), false, 8).data_plane);
  EXPECT_EQ(counters.total("inference"), uint64_t{8} * (kRequests + 5));
  EXPECT_LT(counters.total("execution"), counters.total("inference") * 3 / 4)
      << "several went in one call";
}

INSTANTIATE_TEST_SUITE_P(Queues, DataPlaneCallsPacked,
                         testing::Values(QueueType::kBatched, QueueType::kInline, QueueType::kAuto),
                         [](const testing::TestParamInfo<QueueType>& one) {
                           return std::string(models::name_of(one.param));
                         });

// --- ensembles -----------------------------------------------------------------------------------

class DataPlaneCallsOfEnsembles : public testing::TestWithParam<QueueType> {};

// Two branches, which run at the same time where there are workers, and a step behind one of them.
TEST_P(DataPlaneCallsOfEnsembles, StepsAllocateNothing) {
  DataPlaneServer served;
  models::TempRepository models;
  for (const char* name : {"one", "two", "three"}) models.add_model(name);
  models.write("tree/config.json", R"({"ensemble": {"steps": [
      {"model": "one", "inputs": {"x": "a"}, "outputs": {"y": "left"}},
      {"model": "two", "inputs": {"x": "a"}, "outputs": {"y": "right"}},
      {"model": "three", "inputs": {"x": "left"}, "outputs": {"y": "leaf"}}]}})");
  served.options.model_repository = models.path();
  served.options.engine.queue_type = GetParam();
  served.options.engine.thread_count = 2;
  served.start(models::make_fake_backend(std::make_shared<models::FakeControl>()));
  expect_none("ensemble",
              served.count(binary_infer("tree", "a", std::string(16, '\0')), false, 8).data_plane);
  EXPECT_EQ(served.counters_of("three").total("inference"), uint64_t{8} * (kRequests + 5));
}

INSTANTIATE_TEST_SUITE_P(Queues, DataPlaneCallsOfEnsembles,
                         testing::Values(QueueType::kMpmc, QueueType::kSpsc, QueueType::kBatched,
                                         QueueType::kInline, QueueType::kAuto),
                         [](const testing::TestParamInfo<QueueType>& one) {
                           return std::string(models::name_of(one.param));
                         });

// --- several models, each lane -------------------------------------------------------------------

// By the rows: one goes inline, a hundred to a worker, or to the additional one while two thousand
// run.
TEST(DataPlaneCalls, NoLaneOfAutoMakesAnyUnderAnyPolicy) {
  DataPlaneServer served;
  const auto control = std::make_shared<models::FakeControl>();
  control->cost_ns = [](uint64_t rows) { return rows * 1'000; };
  models::TempRepository models;
  for (const char* name : {"open", "pinned", "mpmc", "packed"}) models.add_model(name);
  models.write("pinned/config.json", R"({"workers": [0], "priority": 1})");
  models.write("mpmc/config.json", R"({"queue_type": "mpmc", "weight": 3})");
  models.write("packed/config.json", R"({"queue_type": "batched", "priority": 3})");
  served.options.model_repository = models.path();
  served.options.engine = {.queue_type = QueueType::kAuto, .thread_count = 2, .batch_size = 8};
  served.start(models::make_fake_backend(control));
  std::vector<std::string> requests;
  for (const size_t rows : {2000u, 2000u, 100u, 100u, 1u, 1u}) {
    requests.push_back(binary_infer("open", "x", std::string(rows * 16, '\0'), rows));
  }
  for (const char* name : {"pinned", "mpmc", "packed", "packed"}) {
    requests.push_back(binary_infer(name, "x", std::string(16, '\0')));
  }
  for (const engine::Policy policy :
       {engine::Policy::kFair, engine::Policy::kDeadline, engine::Policy::kFifo}) {
    engine::EngineConfig config = served.server->engine_config();
    config.policy = policy;
    ASSERT_TRUE(served.server->reconfigure(config).ok());
    expect_none(std::string(engine::name_of(policy)), served.count_each(requests).data_plane);
  }
}

// --- kinds of requests ---------------------------------------------------------------------------

TEST(DataPlaneCalls, ALargeTensorMakesNone) {
  DataPlaneServer served;
  served.start();
  expect_none(
      "large",
      served.count(binary_infer("identity", "input", std::string(602'112, '\0'))).data_plane);
}

TEST(DataPlaneCalls, AJsonRequestMakesNone) {
  DataPlaneServer served;
  served.start();
  expect_none("json",
              served
                  .count(post_request("/v2/models/identity/infer",
                                      R"({"id":"1","inputs":[{"name":"input","datatype":"FP32",)"
                                      R"("shape":[1,3],"data":[1,2.5,3]}]})"))
                  .data_plane);
}

TEST(DataPlaneCalls, AChunkedRequestMakesNone) {
  DataPlaneServer served;
  served.start();
  const std::string body =
      R"({"inputs":[{"name":"input","datatype":"FP32","shape":[1,1],"data":[1]}]})";
  char size[32];
  std::snprintf(size, sizeof(size), "%zx\r\n", body.size());
  expect_none("chunked", served
                             .count("POST /v2/models/identity/infer HTTP/1.1\r\nHost: t\r\n"
                                    "Transfer-Encoding: chunked\r\n\r\n" +
                                    std::string(size) + body + "\r\n0\r\n\r\n")
                             .data_plane);
}

TEST(DataPlaneCalls, HealthMetadataStatisticsAndMetricsMakeNone) {
  DataPlaneServer served;
  served.start();
  for (const char* path : {"/v2/health/ready", "/v2", "/v2/models/mlp", "/v2/models/mlp/ready",
                           "/v2/models/stats", "/metrics"}) {
    expect_none(path, served.count(get_request(path)).data_plane);
  }
}

// Over TCP and a unix socket, small and large, one and several at once: io_uring has memory of its
// own, made at start. Elsewhere `auto` decides, which takes epoll on most machines.
TEST(DataPlaneCalls, ARequestOverIoUringMakesNone) {
  if (const auto choice = net::choose_loop(net::LoopKind::kIoUring); !choice.ok()) {
    GTEST_SKIP() << choice.status().message();
  }
  DataPlaneServer served;
  served.options.loop = net::LoopKind::kIoUring;
  served.start();
  const std::string large = binary_infer("identity", "input", std::string(602'112, '\0'));
  for (const bool over_unix : {false, true}) {
    expect_none("small", served.count(kMlpRequest, over_unix).data_plane);
    expect_none("8 at once", served.count(kMlpRequest, over_unix, 8).data_plane);
    expect_none("large", served.count(large, over_unix).data_plane);
  }
}

// After a change of configuration the data plane is a new one, warmed up like the first.
TEST(DataPlaneCalls, ARequestAfterALiveSwapMakesNone) {
  DataPlaneServer served;
  served.start();
  for (const QueueType type :
       {QueueType::kInline, QueueType::kSpsc, QueueType::kBatched, QueueType::kAuto}) {
    engine::EngineConfig config = served.server->engine_config();
    config.queue_type = type;
    ASSERT_TRUE(served.server->reconfigure(config).ok());
    expect_none(std::string(models::name_of(type)), served.count(kMlpRequest).data_plane);
  }
}

// --- refusals, limits and new connections, on every queue type -----------------------------------

class DataPlaneCallsRefused : public testing::TestWithParam<QueueType> {
 protected:
  DataPlaneCallsRefused() {
    models.add_model("m");
    served.options.model_repository = models.path();
    served.options.engine.queue_type = GetParam();
    served.options.engine.batch_size = 1;
    control->cost_ns = [](uint64_t) { return uint64_t{20'000}; };
  }
  ~DataPlaneCallsRefused() override { control->release(); }
  void start() { served.start(models::make_fake_backend(control)); }
  static std::string infer(size_t bytes = 16) {
    return binary_infer("m", "x", std::string(bytes, '\0'));
  }
  void expect_calls(const std::string& what, const CallCounts& counts) const {
    EXPECT_EQ(0u, counts.allocations) << what;
    EXPECT_EQ(0u, counts.frees) << what;
    if (GetParam() != QueueType::kNaive) {
      EXPECT_EQ(0u, counts.all_locks()) << what;
    }
  }

  const std::shared_ptr<models::FakeControl> control = std::make_shared<models::FakeControl>();
  models::TempRepository models;
  DataPlaneServer served;
};

TEST_P(DataPlaneCallsRefused, AMistakeOfTheClientMakesNone) {
  start();
  const std::string not_the_models = post_request(
      "/v2/models/m/infer",
      R"({"inputs":[{"name":"other","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]})");
  const std::string no_json = post_request("/v2/models/m/infer", R"({"inputs":[)");
  for (const auto& [request, status] :
       {std::pair(get_request("/no/such/path"), 404),
        std::pair(get_request("/v2/models/none"), 404),
        std::pair(get_request("/v2/models/m/infer"), 405), std::pair(not_the_models, 400),
        std::pair(no_json, 400), std::pair(infer(12), 400)}) {
    const std::string what = request.substr(0, request.find("\r\n")) + std::to_string(status);
    expect_calls(what, served.count(request, false, 1, status).data_plane);
  }
}

// Not `inline`: its thread can't be held and answer, and it runs requests at once when it reads
// them.
class DataPlaneCallsFull : public DataPlaneCallsRefused {};

TEST_P(DataPlaneCallsFull, AFullQueueMakesNone) {
  served.options.engine.queue_capacity = 2;
  served.options.max_active_requests = 64;
  start();
  control->hold();
  std::vector<HttpClient> held;
  for (int i = 0; i < 20; ++i) {
    held.push_back(served.client(false));
    ASSERT_TRUE(held.back().send(infer()));
    if (i == 0) control->wait_until_held(1);
  }
  ASSERT_EQ(429, [&] {
    HttpClient last = served.client(false);
    return last.send(infer()) ? last.read().status : 0;
  }());
  expect_calls("429", served.count(infer(), false, 1, 429).data_plane);
}

TEST_P(DataPlaneCallsFull, AnExpiredRequestMakesNone) {
  served.options.engine.default_timeout_us = 1;
  start();
  // 64 KiB: taking them in alone takes longer than that.
  const std::string request = binary_infer("m", "x", std::string(65'536, '\0'), 4096);
  expect_calls("504", served.count(request, false, 1, 504).data_plane);
}

TEST_P(DataPlaneCallsFull, ABudgetThatCanNotBeKeptMakesNone) {
  served.options.engine.latency_budget_us = 1;
  start();
  control->hold();
  const HttpClient ahead = served.client(false);
  ASSERT_TRUE(ahead.send(infer()));
  control->wait_until_held(1);
  expect_calls("over budget", served.count(infer(), false, 1, 429).data_plane);
}

TEST_P(DataPlaneCallsRefused, ARequestWithADeadlineThatIsKeptMakesNone) {
  served.options.engine.default_timeout_us = 3'600'000'000;
  start();
  expect_calls("deadline", served.count(infer()).data_plane);
}

TEST_P(DataPlaneCallsRefused, ABudgetThatIsKeptMakesNone) {
  served.options.engine.latency_budget_us = 3'600'000'000;
  start();
  expect_calls("budget", served.count(infer()).data_plane);
}

TEST_P(DataPlaneCallsRefused, AConnectionsFirstRequestMakesNone) {
  start();
  for (const bool over_unix : {false, true}) {
    const auto visit = [&] {
      HttpClient client = served.client(over_unix);
      EXPECT_TRUE(client.send(infer()));
      EXPECT_EQ(200, client.read().status);
    };
    for (int i = 0; i < 40; ++i) visit();  // each place for a connection has been used once
    testing_support::open_call_window();
    for (int i = 0; i < kRequests; ++i) visit();
    expect_calls(over_unix ? "unix" : "tcp", testing_support::close_call_window().data_plane);
  }
}

INSTANTIATE_TEST_SUITE_P(Queues, DataPlaneCallsFull,
                         testing::Values(QueueType::kMpmc, QueueType::kSpsc, QueueType::kNaive,
                                         QueueType::kBatched),
                         [](const testing::TestParamInfo<QueueType>& one) {
                           return std::string(models::name_of(one.param));
                         });

INSTANTIATE_TEST_SUITE_P(Queues, DataPlaneCallsRefused,
                         testing::Values(QueueType::kMpmc, QueueType::kSpsc, QueueType::kNaive,
                                         QueueType::kBatched, QueueType::kInline, QueueType::kAuto),
                         [](const testing::TestParamInfo<QueueType>& one) {
                           return std::string(models::name_of(one.param));
                         });

// --- over the bus --------------------------------------------------------------------------------

class DataPlaneCallsOverTheBus : public testing::TestWithParam<QueueType> {
 protected:
  void start() {
    served.options.bus_path = served.files.path() / "s.bus";
    served.options.max_active_requests = 64;
    served.options.engine.queue_type = GetParam();
    served.options.engine.batch_size = 8;
    models.copy_model(test::source_path("models/mlp/1"), "mlp");
    served.options.model_repository = models.path();
    served.start();
    auto connected = bus_client::InferClient::connect(served.options.bus_path);
    ASSERT_TRUE(connected.ok()) << connected.status().message();
    client.emplace(std::move(*connected));
    ASSERT_TRUE(input.shape.append(1) && input.shape.append(256));
  }
  // So many of each at once, as often as count() does it; all are answered with `status`.
  void expect_none(const wire::BusRequest& request, wire::BusVerb verb, int in_flight, int status) {
    const auto round = [&] {
      for (int i = 0; i < in_flight; ++i) {
        ASSERT_EQ(client->send(request, verb).outcome, bus::Outcome::kOk);
      }
      for (int taken = 0; taken < in_flight;) {
        ASSERT_EQ(client->wait(now_ns() + 60'000'000'000u), bus::Outcome::kOk);
        while (const auto reply = client->try_take()) {
          ++taken;
          EXPECT_EQ(reply->reply.status, status) << reply->reply.text;
        }
        client->release();
      }
    };
    for (int i = 0; i < 5; ++i) round();
    testing_support::open_call_window();
    for (int i = 0; i < kRequests; ++i) round();
    const CallCounts counts = testing_support::close_call_window().data_plane;
    EXPECT_EQ(0u, counts.allocations) << status;
    EXPECT_EQ(0u, counts.frees) << status;
    if (GetParam() != QueueType::kNaive) {
      EXPECT_EQ(0u, counts.all_locks()) << status;
    }
  }

  models::TempRepository models;
  DataPlaneServer served;
  std::optional<bus_client::InferClient> client;
  wire::BusTensor input{.name = "input", .offset = 4096, .bytes = 1024};
};

TEST_P(DataPlaneCallsOverTheBus, RequestsRefusalsAndDocumentsMakeNone) {
  start();
  wire::BusRequest request{
      .model = "mlp", .reply_offset = 0, .reply_room = 4096, .inputs = {&input, 1}};
  for (const int in_flight : {1, 32}) {
    expect_none(request, wire::BusVerb::kInfer, in_flight, 200);
  }
  expect_none(request, wire::BusVerb::kModelMetadata, 1, 200);
  expect_none(request, wire::BusVerb::kStatistics, 4, 200);
  request.reply_room = 4;
  expect_none(request, wire::BusVerb::kInfer, 4, 413);
  request.model = "a model with a name that is longer than what a string holds by itself";
  expect_none(request, wire::BusVerb::kInfer, 4, 404);
}

INSTANTIATE_TEST_SUITE_P(Queues, DataPlaneCallsOverTheBus,
                         testing::Values(QueueType::kMpmc, QueueType::kSpsc, QueueType::kNaive,
                                         QueueType::kBatched, QueueType::kInline, QueueType::kAuto),
                         [](const testing::TestParamInfo<QueueType>& one) {
                           return std::string(models::name_of(one.param));
                         });

// --- the counter itself
// ------------------------------------------------------------------------------

TEST(DataPlaneCalls, OneDeliberateAllocationIsSeen) {
  DataPlaneServer served;
  served.start(backends::make_openvino(), Deliberate::kAllocation);
  const CallCounts counts = served.count(kMlpRequest).data_plane;
  EXPECT_EQ(uint64_t{kRequests}, counts.allocations);
  EXPECT_EQ(uint64_t{kRequests}, counts.frees);
}

TEST(DataPlaneCalls, OneDeliberateLockIsSeen) {
  DataPlaneServer served;
  served.start(backends::make_openvino(), Deliberate::kLock);
  EXPECT_EQ(uint64_t{kRequests}, served.count(kMlpRequest).data_plane.locks);
}

}  // namespace
}  // namespace lumen::server

#endif
