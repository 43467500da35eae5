// The data plane's cost of a request if answers are cached: a hit, a miss that evicts, one that
// waits for another's run, all without a heap call or a lock that a thread waits for.
#include "support/call_counter.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include "integration/data_plane_server.h"
#include "support/fake_backend.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace lumen::server {
namespace {

class DataPlaneCallsCached : public testing::TestWithParam<std::tuple<QueueType, std::string>> {
 protected:
  DataPlaneCallsCached() {
    models.add_model("m");
    models.write("m/config.json",
                 R"({"response_cache": {"enable": true, "max_bytes": 65536, "policy": ")" +
                     std::get<1>(GetParam()) + "\"}}");
    served.options.model_repository = models.path();
    served.options.engine.queue_type = std::get<0>(GetParam());
    served.options.engine.batch_size = 8;
    served.options.io_thread_count = 2;
    served.start(models::make_fake_backend(control));
  }
  static std::string infer(float value) {
    std::string row(16, '\0');
    std::memcpy(row.data(), &value, sizeof(value));
    return binary_infer("m", "x", row);
  }

  const std::shared_ptr<models::FakeControl> control = std::make_shared<models::FakeControl>();
  models::TempRepository models;
  DataPlaneServer served;
};

TEST_P(DataPlaneCallsCached, AHitMakesNone) {
  const telemetry::ModelCounters counters = served.counters_of("m");
  for (const bool over_unix : {false, true}) {
    CallCounts counts = served.count(infer(1), over_unix).data_plane;
    // LRU and LFU gather hits, and a reader that has gathered enough tries to tell the policy of
    // them.
    const bool gathers = std::get<1>(GetParam()) != "s3fifo";
    EXPECT_LE(counts.tried_locks, gathers ? uint64_t{kRequests} / 15 + 1 : 0);
    counts.tried_locks = 0;
    expect_none(over_unix ? "hit over unix" : "hit over tcp", counts);
  }
  EXPECT_EQ(counters.total("cache_hit"), 2 * (uint64_t{kRequests} + 5) - 1);
}

// More than there is room for, so that each evicts another.
TEST_P(DataPlaneCallsCached, AMissThatEvictsMakesNone) {
  HttpClient client = served.client(true);
  float value = 0;
  const auto round = [&](int requests) {
    for (int i = 0; i < requests; ++i) {
      EXPECT_TRUE(client.send(infer(++value)));
      EXPECT_EQ(200, client.read().status);
    }
  };
  round(200);
  testing_support::open_call_window();
  round(kRequests);
  CallCounts counts = testing_support::close_call_window().data_plane;
  // The index is tried to be locked, once for each that is put; nobody waits for it.
  EXPECT_LE(counts.tried_locks, uint64_t{kRequests} + 1);
  counts.tried_locks = 0;
  expect_none("miss", counts);
  EXPECT_EQ(served.counters_of("m").total("cache_miss"), 200u + kRequests);
}

// No run ends before all requests of its round are on their way.
std::atomic<bool> is_sending{false};

TEST_P(DataPlaneCallsCached, OnesThatWaitForAnothersRunMakeNone) {
  control->cost_ns = [](uint64_t) {
    while (is_sending) std::this_thread::yield();
    return uint64_t{300'000};
  };
  std::vector<HttpClient> clients;
  clients.reserve(8);
  for (int i = 0; i < 8; ++i) clients.push_back(served.client(i % 2 == 0));
  float value = 0;
  const auto round = [&] {
    const std::string request = infer(++value);
    is_sending = true;
    for (HttpClient& one : clients) EXPECT_TRUE(one.send(request));
    is_sending = false;
    for (HttpClient& one : clients) EXPECT_EQ(200, one.read().status);
  };
  for (int i = 0; i < 100; ++i) round();
  const telemetry::ModelCounters counters = served.counters_of("m");
  const auto within = [&, before = counters.total("cache_hit") + counters.total("cache_miss"),
                       shared_before = counters.total("cache_shared")] {
    const uint64_t shared = counters.total("cache_shared") - shared_before;
    return std::pair(shared, counters.total("cache_hit") + counters.total("cache_miss") - before);
  };
  testing_support::open_call_window();
  for (int i = 0; i < kRequests; ++i) round();
  CallCounts counts = testing_support::close_call_window().data_plane;
  const auto [shared, requests] = within();
  EXPECT_EQ(requests, uint64_t{8} * kRequests);
  // Inline: one of the two I/O threads may have all the clients, and runs them in turn.
  const bool may_be_in_turn = std::get<0>(GetParam()) == QueueType::kInline;
  EXPECT_GE(shared, may_be_in_turn ? 0u : 1u);
  // One try for each that did not wait: to put its answer, or to tell the policy of hits. How many
  // these are can't be foretold: a request that comes after a run whose answer LFU has not let in
  // runs again.
  EXPECT_LE(counts.tried_locks, requests - shared);
  counts.tried_locks = 0;
  expect_none("shared", counts);
}

INSTANTIATE_TEST_SUITE_P(Queues, DataPlaneCallsCached,
                         testing::Combine(testing::Values(QueueType::kMpmc, QueueType::kBatched,
                                                          QueueType::kInline, QueueType::kAuto),
                                          testing::Values("lru", "lfu", "s3fifo")),
                         [](const auto& one) {
                           return std::string(models::name_of(std::get<0>(one.param))) + "With" +
                                  std::get<1>(one.param);
                         });

}  // namespace
}  // namespace lumen::server

#endif
