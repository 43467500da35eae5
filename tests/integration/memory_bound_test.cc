// The bound of all requests' memory, and clients that would use it up: slow heads, slow bodies, the
// largest bodies all at once. Runs under ASan and TSan.
// Threads: the test's and the server's. Memory: the heap. Errors: by gtest.
#include "support/fake_server.h"
#include "support/grpc_client.h"

#include <lumen/base/clock.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace lumen::server {
namespace {

using testing::HasSubstr;

constexpr size_t kMostBody = 1024 * 1024;

// Of `bytes` in all.
std::string infer_of(size_t bytes) {
  const size_t rows = bytes / 16;
  return binary_infer("plus_one", "x", std::string(rows * 16, '\0'), rows);
}

std::string grpc_infer_of(size_t bytes) {
  const size_t rows = bytes / 16;
  return test::grpc_infer("plus_one", "x", std::string(rows * 16, '\0'), rows);
}

class MemoryBound : public FakeServer {
 protected:
  MemoryBound() {
    options_.max_connections = 512;
    options_.max_active_requests = 4;
    options_.max_body_bytes = kMostBody;
    options_.engine.thread_count = 1;
    options_.timeouts.head_ns = options_.timeouts.body_period_ns = options_.timeouts.room_ns =
        60'000'000'000u;  // longer than the test
  }
  std::vector<HttpClient> clients_that_send(size_t count, const std::string& bytes) const {
    std::vector<HttpClient> clients;
    for (size_t i = 0; i < count; ++i) {
      clients.push_back(client());
      EXPECT_TRUE(clients.back().send(bytes));
    }
    return clients;
  }
  // One after the other, while the only worker is held with the first.
  std::vector<std::unique_ptr<test::GrpcClient>> grpc_calls_until_one_is_refused() const {
    const std::string message = grpc_infer_of(kMostBody - 1024);
    const telemetry::ModelCounters model = server_->models().find("plus_one", "")->counters();
    const uint64_t before = total("memory_refused");
    std::vector<std::unique_ptr<test::GrpcClient>> calls;
    for (uint64_t refused = 0; refused == 0; refused = total("memory_refused") - before) {
      calls.push_back(std::make_unique<test::GrpcClient>(client()));
      EXPECT_TRUE(calls.back()->send(calls.back()->call("ModelInfer", message)));
      control_->wait_until_held(1);
      while (1 + model.total("queued") + total("memory_refused") - before < calls.size()) {
        std::this_thread::yield();
      }
    }
    return calls;
  }
  size_t grpc_calls_that_fit() const {
    control_->hold();
    const auto calls = grpc_calls_until_one_is_refused();
    control_->release();
    for (const auto& call : calls) (void)call->read();
    return calls.size() - 1;
  }
  // Heads understood, as the server counts them.
  void wait_for_requests(uint64_t count) const {
    while (total("requests") < count) std::this_thread::yield();
  }
  void expect_health() const { EXPECT_EQ(200, get("/v2/health/live").status); }
};

TEST_F(MemoryBound, AHealthCheckDoesNotWaitForHeadsThatTrickle) {
  start();
  auto slow = clients_that_send(200, "POST /v2/models/plus_one/infer HTTP/1.1\r\nHost: t\r\n");
  expect_health();
  // The first client gives way first.
  EXPECT_EQ(408, slow.front().read().status);
  EXPECT_GE(total("timeouts"), 100u);
  // A client that is still there may go on.
  ASSERT_TRUE(slow.back().send("Content-Length: 0\r\n\r\n"));
  EXPECT_EQ(400, slow.back().read().status);
}

TEST_F(MemoryBound, AHealthCheckDoesNotWaitForBodiesThatTrickle) {
  start();
  const std::string request = infer_of(1024);
  const auto slow = clients_that_send(4, request.substr(0, request.size() - 1));
  wait_for_requests(4);
  expect_health();
  // As many more as there are contexts, and some: the longest waiting is told that there is no
  // room.
  auto waiting = clients_that_send(100, request);
  expect_health();
  const HttpReply refused = waiting.front().read();
  EXPECT_EQ(429, refused.status);
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(refused.body, HasSubstr("max_active_requests"));
  EXPECT_GE(total("memory_refused"), 1u);
  while (total("memory_waiting") < 32) std::this_thread::yield();  // most contexts are theirs
  // A body that has begun is read to its end, and a request that waits comes in then.
  for (const HttpClient& one : slow) ASSERT_TRUE(one.send(request.substr(request.size() - 1)));
  EXPECT_EQ(200, waiting.back().read().status);
  EXPECT_THAT(get("/metrics").body, HasSubstr("lumen_memory_refused_total "));
}

// Was: each kept a context for all of write_timeout_ms, and the 69th client waited.
TEST_F(MemoryBound, AHealthCheckDoesNotWaitForScrapersThatDoNotRead) {
  options_.timeouts.write_stall_ns = 60'000'000'000u;
  start();
  std::string scrapes;
  for (int i = 0; i < 40; ++i) scrapes += get_request("/metrics") + get_request("/v2/models/stats");
  std::vector<HttpClient> deaf;
  for (int i = 0; i < 200; ++i) {
    deaf.push_back(unix_client());  // whose socket takes 200 KiB
    ASSERT_TRUE(deaf.back().send(scrapes));
  }
  // More than contexts, so they have given way to each other; a client that asks now is answered
  // all the same.
  while (total("timeouts") < 100) std::this_thread::yield();
  for (int i = 0; i < 10; ++i) expect_health();
  EXPECT_EQ(200, client().exchange(infer_of(1024)).status);
}

// Was: a connection that had given its context up counted again while the reply that said so had
// not left yet. One connection that waited for a context was forgotten for each that counted twice.
TEST_F(MemoryBound, AHealthCheckDoesNotWaitForClientsThatDoNotReadThatTheyAreLate) {
  options_.timeouts.write_stall_ns = 60'000'000'000u;
  start();
  const std::string request = get_request("/v2/health/live");
  std::string fill;  // as many requests as a socket that nobody reads has room for replies
  HttpClient deaf = unix_client();
  ASSERT_TRUE(deaf.send(request));
  uint64_t sent = 0;
  while ((sent = total("sent_bytes")) == 0) std::this_thread::yield();
  const uint64_t reply_bytes = sent;
  for (bool has_left = true; has_left;) {
    fill += request;
    ASSERT_TRUE(deaf.send(request));
    sent += reply_bytes;
    const uint64_t until = now_ns() + 500'000'000;
    while (total("sent_bytes") < sent && now_ns() < until) std::this_thread::yield();
    has_left = total("sent_bytes") >= sent;
  }
  std::vector<HttpClient> late;
  for (int i = 0; i < 200; ++i) {
    late.push_back(unix_client());
    ASSERT_TRUE(late.back().send(fill + request.substr(0, request.size() - 2)));
  }
  for (int i = 0; i < 10; ++i) expect_health();
  EXPECT_EQ(200, client().exchange(infer_of(1024)).status);
}

TEST_F(MemoryBound, AHealthCheckDoesNotWaitForBodiesThatAreDroppedSlowly) {
  start();
  const auto slow = clients_that_send(
      200, "POST /v2/nowhere HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\n");
  wait_for_requests(200);
  expect_health();
}

TEST_F(MemoryBound, TheLargestBodiesAllAtOnceAreReadOneAfterTheOther) {
  options_.max_active_requests = 32;
  options_.max_memory_bytes = least_memory_bytes(options_);
  start();
  const std::string request = infer_of(kMostBody - 1024);
  std::vector<std::thread> threads;
  threads.reserve(32);
  for (int i = 0; i < 32; ++i) {
    threads.emplace_back([&] {
      HttpClient one = client();
      EXPECT_TRUE(one.send(request));
      EXPECT_EQ(200, one.read().status);
    });
  }
  for (std::thread& one : threads) one.join();
}

// Was: two floods took all of max_active_requests, and a third model's request waited with its body
// unread.
TEST_F(MemoryBound, FloodsOfTwoModelsLeaveRoomForAThird) {
  for (const char* name : {"flooded", "light"}) repository_.add_model(name);
  options_.max_active_requests = 40;
  start();
  control_->hold();
  const std::string zeros(16, '\0');
  auto first = clients_that_send(45, binary_infer("plus_one", "x", zeros));
  auto second = clients_that_send(45, binary_infer("flooded", "x", zeros));
  wait_for_requests(90);
  while (total("memory_waiting") < 45) std::this_thread::yield();
  HttpClient third = client();
  ASSERT_TRUE(third.send(binary_infer("light", "x", zeros)));
  const telemetry::ModelCounters light = server_->models().find("light", "")->counters();
  while (light.total("queued") < 1) std::this_thread::yield();
  EXPECT_GE(total("memory_waiting"), 45u) << "it has come in before those that wait";
  control_->release();
  EXPECT_EQ(200, third.read().status);
  for (auto* flood : {&first, &second}) {
    for (HttpClient& one : *flood) EXPECT_EQ(200, one.read().status);
  }
}

TEST_F(MemoryBound, ARequestThatFindsNoMemoryInTimeIsAnswered429AndMayTryAgain) {
  options_.max_active_requests = 32;
  options_.max_memory_bytes = least_memory_bytes(options_);
  options_.timeouts.room_ns = 20'000'000;
  start();
  control_->hold();
  const std::string request = infer_of(kMostBody - 1024);
  std::vector<HttpClient> all;
  std::map<int, int> statuses;
  for (int i = 0; i < 16; ++i) {
    all.push_back(client());
    ASSERT_TRUE(all.back().send(request));  // bytes that aren't read are dropped behind the refusal
  }
  control_->wait_until_held(1);
  while (total("responses_4xx") == 0) std::this_thread::yield();
  control_->release();
  for (HttpClient& one : all) ++statuses[one.read().status];
  EXPECT_GE(statuses[200], 1);
  EXPECT_GE(statuses[429], 1);
  EXPECT_EQ(16, statuses[200] + statuses[429]);
  for (HttpClient& one : all) EXPECT_EQ(200, one.exchange(request).status);
}

TEST_F(MemoryBound, TheCountersTellTheReservedPartAndTheWhole) {
  options_.max_memory_bytes = 2 * least_memory_bytes(options_);
  start();
  EXPECT_EQ(options_.max_memory_bytes, total("memory_bound_bytes"));
  const uint64_t idle = total("memory_reserved_bytes");
  control_->hold();
  HttpClient one = client();
  ASSERT_TRUE(one.send(infer_of(kMostBody - 1024)));
  control_->wait_until_held(1);
  // The turn that submitted it may not have ended yet.
  while (total("memory_reserved_bytes") < idle + kMostBody) std::this_thread::yield();
  EXPECT_LE(total("memory_reserved_bytes"), options_.max_memory_bytes);
  EXPECT_EQ(0u, total("memory_waiting"));
  EXPECT_EQ(0u, total("memory_refused"));
  control_->release();
  EXPECT_EQ(200, one.read().status);
}

// The bound is that of all transports together: max_memory_bytes was granted to gRPC once more.
TEST_F(MemoryBound, RequestsOfGrpcTakeTheirMemoryFromTheSameBound) {
  options_.max_active_requests = 64;
  options_.max_memory_bytes = least_memory_bytes(options_);
  options_.timeouts.room_ns = 20'000'000;
  start();
  control_->hold();
  const std::string message = grpc_infer_of(kMostBody - 1024);
  // Each has its message and room for its reply: no more than a few fit.
  std::vector<std::unique_ptr<test::GrpcClient>> calls;
  for (int i = 0; i < 32; ++i) {
    calls.push_back(std::make_unique<test::GrpcClient>(client()));
    ASSERT_TRUE(calls.back()->send(calls.back()->call("ModelInfer", message)));
  }
  control_->wait_until_held(1);
  while (total("grpc_requests") < 32 || total("memory_refused") == 0) std::this_thread::yield();
  EXPECT_LE(total("memory_reserved_bytes"), options_.max_memory_bytes);
  // A request over HTTP finds none either, and is answered.
  EXPECT_EQ(429, client().exchange(infer_of(kMostBody - 1024)).status);
  expect_health();
  control_->release();
  size_t answered = 0;
  for (auto& call : calls) answered += call->read().data.size() > kMostBody / 2 ? 1 : 0;
  EXPECT_GE(answered, 1u);
  EXPECT_LT(answered, 32u);
  EXPECT_EQ(200, client().exchange(infer_of(kMostBody - 1024)).status);
}

TEST_F(MemoryBound, ARequestOverHttpThatWaitsBeginsWhenOneOfGrpcEnds) {
  options_.max_active_requests = 64;
  options_.max_memory_bytes = least_memory_bytes(options_);
  start();
  control_->hold();
  const auto calls = grpc_calls_until_one_is_refused();
  HttpClient waiting = client();
  ASSERT_TRUE(waiting.send(infer_of(kMostBody - 1024)));
  while (total("memory_waiting") == 0) std::this_thread::yield();
  control_->release();
  EXPECT_EQ(200, waiting.read().status);
}

// Idle requests keep their pages for the next ones: those of one transport are there for the other.
TEST_F(MemoryBound, PagesThatIdleRequestsOfHttpKeepAreGivenToGrpcAndBack) {
  options_.max_active_requests = 64;
  options_.max_memory_bytes = least_memory_bytes(options_);
  start();
  const size_t at_first = grpc_calls_that_fit();
  EXPECT_GE(at_first, 4u);
  const std::string request = infer_of(kMostBody / 2);
  for (int round = 0; round < 3; ++round) {
    control_->hold();
    auto all = clients_that_send(16, request);
    while (total("memory_waiting") == 0) std::this_thread::yield();
    control_->release();
    for (HttpClient& one : all) EXPECT_EQ(200, one.read().status);
    // The last reply of the round may be with its context still. HTTP keeps the pages of two calls.
    EXPECT_GE(grpc_calls_that_fit() + 1, at_first);
  }
}

TEST_F(MemoryBound, AClientThatLeavesWhileItWaitsTakesNothing) {
  options_.max_active_requests = 1;
  start();
  control_->hold();
  HttpClient first = client();
  ASSERT_TRUE(first.send(infer_of(1024)));
  control_->wait_until_held(1);
  {
    auto waiting = clients_that_send(10, infer_of(1024));
    wait_for_requests(11);
    for (HttpClient& one : waiting) one.reset();
  }
  while (total("connections_open") > 1) std::this_thread::yield();
  control_->release();
  EXPECT_EQ(200, first.read().status);
  EXPECT_EQ(200, client().exchange(infer_of(1024)).status);
}

// Was: the walk that gave memory to waiting requests began the second of them twice. Its context
// was reused while the engine held it, and its call was counted twice and ended once.
TEST_F(MemoryBound, TwoRequestsThatWaitForMemoryBeginOnceEach) {
  // Of a reply's rows: a request reserves megabytes before it is read.
  constexpr size_t kRepeats = 2700;
  control_->repeats = kRepeats;
  Shape row;
  ASSERT_TRUE(row.append(Shape::kDynamic) && row.append(4 * int64_t{kRepeats}));
  control_->outputs.front().shape = row;
  options_.max_active_requests = 8;
  options_.max_body_bytes = 1024;
  options_.max_memory_bytes = least_memory_bytes(options_);
  start();
  // Memory is reserved for as many rows as the body could hold: 17 MB of 20, and 5.3 MB for a small
  // one.
  const std::string large = binary_infer("plus_one", "x", std::string(42 * 16, '\0'), 42);
  const auto has_room_for_a_small_one = [this] {
    return total("memory_reserved_bytes") + 5'400'000 <= total("memory_bound_bytes");
  };
  for (int round = 0; round < 16; ++round) {
    while (!has_room_for_a_small_one()) std::this_thread::yield();
    HttpClient first = client();
    ASSERT_TRUE(first.send(large.substr(0, large.size() - 1)));
    // Small ones that came before it would not wait.
    while (has_room_for_a_small_one()) std::this_thread::yield();
    auto waiting = clients_that_send(0, "");
    for (int i = 1; i < 4; ++i) {
      const auto value = static_cast<float>(round + i * 100);
      waiting.push_back(client());
      ASSERT_TRUE(
          waiting.back().send(binary_infer("plus_one", "x", floats({value, value, value, value}))));
    }
    while (total("memory_waiting") < 3) std::this_thread::yield();
    if (round % 2 == 0) {
      waiting.back().reset();
      waiting.pop_back();
    } else {
      ASSERT_TRUE(waiting.back().send("P"));  // of a request that never becomes whole
    }
    ASSERT_TRUE(first.send(large.substr(large.size() - 1)));
    EXPECT_EQ(200, first.read().status);
    for (size_t i = 0; i < waiting.size(); ++i) {
      const float value = static_cast<float>(round) + static_cast<float>(i + 1) * 100 + 1;
      const HttpReply reply = waiting[i].read();
      ASSERT_EQ(200, reply.status) << reply.body;
      EXPECT_TRUE(reply.body.ends_with(floats({value, value, value, value})));
    }
  }
  // None of the calls in memory is lost: as many as may be are held at once.
  control_->hold();
  auto all = clients_that_send(8, binary_infer("plus_one", "x", floats({1, 2, 3, 4})));
  wait_for_requests(16 * 4 + 8);
  control_->release();
  for (HttpClient& one : all) EXPECT_EQ(200, one.read().status);
  server_->drain();  // which ends the process where something is still held
}

TEST_F(MemoryBound, AChunkedBodyTakesMemoryAsItComesAndIsRefusedWhereThereIsNone) {
  options_.max_active_requests = 32;
  options_.max_memory_bytes = least_memory_bytes(options_);
  start();
  control_->hold();
  // Each has its body and its reply's memory, 8 MiB: two fit.
  const std::string whole = infer_of(kMostBody - 1024);
  auto large = clients_that_send(2, whole);
  control_->wait_until_held(1);
  wait_for_requests(2);
  std::vector<HttpClient> chunked;
  const std::string head =
      "POST /v2/models/plus_one/infer HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string chunk = "80000\r\n" + std::string(0x80000, ' ') + "\r\n";
  for (int i = 0; i < 16; ++i) {
    chunked.push_back(client());
    (void)chunked.back().send(head + chunk);  // false: refused while it was still sending
  }
  while (total("responses_4xx") == 0) std::this_thread::yield();
  control_->release();
  for (HttpClient& one : large) EXPECT_EQ(200, one.read().status);
  EXPECT_EQ(200, client().exchange(infer_of(1024)).status);
}

TEST_F(MemoryBound, IsToldWhereItIsTooSmallToServeAnything) {
  options_.max_memory_bytes = 1024;
  auto server = Server::start(options_, models::make_fake_backend(control_));
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(std::string(server.status().message()),
              testing::AllOf(HasSubstr("max_memory_bytes: got 1024"), HasSubstr("wanted at least"),
                             HasSubstr("lower max_body_bytes")));
}

}  // namespace
}  // namespace lumen::server
