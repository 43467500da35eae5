// The server from socket to model and back, with the fake backend: also states that can't be
// provoked from outside (a full queue, a held model, an expired deadline). Runs under ASan and
// TSan.
#include <lumen/base/clock.h>

#include "support/fake_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <optional>
#include <random>
#include <thread>

namespace lumen::server {
namespace {

using testing::HasSubstr;

class ServerTest : public FakeServer {
 protected:
  // The server still serves, on a connection of its own.
  void expect_alive() {
    HttpClient other = client();
    const HttpReply reply = other.exchange(binary_infer("plus_one", "x", floats({1, 2, 3, 4})));
    EXPECT_EQ(200, reply.status) << reply.body;
    EXPECT_EQ(floats({2, 3, 4, 5}), binary_part(reply));
  }
};

TEST_F(ServerTest, AnswersABinaryRequest) {
  start();
  expect_alive();
}

TEST_F(ServerTest, AnswersThroughAnAsynchronousBackendThatStagesToADevice) {
  control_->asynchronous = true;
  control_->max_in_flight = 4;
  start();
  expect_alive();
}

TEST_F(ServerTest, WithoutABackendItServesAndSaysSoOfEachModel) {
  start(models::Backends());
  HttpClient http = client();
  EXPECT_EQ(200, http.exchange("GET /v2/health/ready HTTP/1.1\r\nHost: t\r\n\r\n").status);
  const HttpReply reply = http.exchange(binary_infer("plus_one", "x", floats({1, 2, 3, 4})));
  EXPECT_EQ(503, reply.status);
  EXPECT_THAT(reply.body, HasSubstr("has no backend"));
}

TEST_F(ServerTest, AnswersJsonInAndOut) {
  start();
  HttpClient http = client();
  const HttpReply reply = http.exchange(post_request(
      "/v2/models/plus_one/infer",
      R"({"id":"7","inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3.5,4]}]})"));
  EXPECT_EQ(200, reply.status);
  EXPECT_THAT(reply.body, HasSubstr(R"("id":"7")"));
  EXPECT_THAT(reply.body, HasSubstr(R"("data":[2,3,4.5,5])"));
}

TEST_F(ServerTest, ARequestInSmallPiecesIsTheSameRequest) {
  start();
  HttpClient http = client();
  const std::string request = binary_infer("plus_one", "x", floats({1, 2, 3, 4}));
  for (char byte : request) ASSERT_TRUE(http.send({&byte, 1}));
  EXPECT_EQ(floats({2, 3, 4, 5}), binary_part(http.read()));
}

TEST_F(ServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  HttpClient http = client();
  std::string requests;
  constexpr int kCount = 200;
  for (int i = 0; i < kCount; ++i) {
    requests += binary_infer("plus_one", "x", floats({static_cast<float>(i), 0, 0, 0}));
  }
  std::thread sender([&] { EXPECT_TRUE(http.send(requests)); });
  for (int i = 0; i < kCount; ++i) {
    ASSERT_EQ(floats({static_cast<float>(i) + 1, 1, 1, 1}), binary_part(http.read())) << i;
  }
  sender.join();
}

// --- clients that go away ------------------------------------------------------------------------

class GoneClients : public ServerTest {
 protected:
  // A request at the model, which is held, and another behind it in the queue.
  void start_with_one_waiting(HttpClient (*connect)(const Server&)) {
    start();
    control_->hold();
    first_.emplace(client());
    ASSERT_TRUE(first_->send(request_));
    control_->wait_until_held(1);
    second_.emplace(connect(*server_));
    ASSERT_TRUE(second_->send(request_));
    while (server_->counters().total("requests") < 2) std::this_thread::yield();
    starts_ = control_->starts.load();
  }
  // The I/O thread read this client's request after all that had happened before.
  void expect_look_around() {
    HttpClient third = client();
    EXPECT_EQ(third.exchange(get_request("/v2/health/live")).status, 200);
  }
  void expect_cancelled(uint64_t requests) {
    expect_look_around();
    control_->release();
    EXPECT_EQ(first_->read().status, 200);
    expect_alive();
    EXPECT_EQ(server_->counters().total("cancelled"), requests);
    EXPECT_EQ(control_->starts.load() - starts_, 2 - requests) << "those that are answered";
  }

  const std::string request_ = binary_infer("plus_one", "x", floats({1, 2, 3, 4}));
  std::optional<HttpClient> first_;
  std::optional<HttpClient> second_;
  uint64_t starts_ = 0;
};

HttpClient over_tcp(const Server& server) { return HttpClient(server.http_address()); }
HttpClient over_unix(const Server& server) { return HttpClient::over_unix(server.unix_path()); }

// Was: the model ran for a client that was gone.
TEST_F(GoneClients, AResetCancelsARequestThatWaits) {
  start_with_one_waiting(&over_tcp);
  second_->reset();
  expect_cancelled(1);
}

TEST_F(GoneClients, AHangUpOfTheUnixSocketCancelsARequestThatWaits) {
  start_with_one_waiting(&over_unix);
  second_->close();
  expect_cancelled(1);
}

TEST_F(GoneClients, AHalfCloseCancelsNothingAndTheReplyIsSent) {
  start_with_one_waiting(&over_tcp);
  second_->shut_sending();
  expect_look_around();
  control_->release();
  EXPECT_EQ(second_->read().status, 200);
  EXPECT_EQ(first_->read().status, 200);
  EXPECT_EQ(server_->counters().total("cancelled"), 0u);
}

TEST_F(ServerTest, AFullQueueIsAnswered429WithRetryAfterAndNothingIsLost) {
  options_.engine.queue_capacity = 2;
  start();
  control_->hold();
  std::vector<HttpClient> clients;
  const std::string request = binary_infer("plus_one", "x", floats({1, 2, 3, 4}));
  clients.push_back(client());
  clients.back().send(request);
  control_->wait_until_held(1);  // the worker has this one, the queue is empty
  for (int i = 0; i < 5; ++i) {
    clients.push_back(client());
    clients.back().send(request);
  }
  // Of those five two fit into the queue; which ones is up to the order of arrival.
  std::vector<std::future<HttpReply>> replies;
  replies.reserve(clients.size());
  for (HttpClient& one : clients) {
    replies.push_back(std::async(std::launch::async, [&one] { return one.read(); }));
  }
  int refused = 0;
  while (server_->counters().total("responses_4xx") < 3) std::this_thread::yield();
  control_->release();
  for (auto& reply : replies) {
    const HttpReply got = reply.get();
    if (got.status == 429) {
      ++refused;
      EXPECT_THAT(got.head, HasSubstr("Retry-After: 1\r\n"));
      EXPECT_THAT(got.body, HasSubstr("the queue of model 'plus_one' is full"));
    } else {
      EXPECT_EQ(200, got.status);
    }
  }
  EXPECT_EQ(3, refused);
  expect_alive();
}

TEST_F(ServerTest, AnExpiredRequestIsAnswered504AndTheModelDoesNotRunIt) {
  start();
  control_->hold();
  HttpClient first = client();
  first.send(binary_infer("plus_one", "x", floats({1, 2, 3, 4})));
  control_->wait_until_held(1);
  const uint64_t starts = control_->starts.load();
  HttpClient late = client();
  late.send(post_request("/v2/models/plus_one/infer",
                         R"({"parameters":{"timeout":1},"inputs":[{"name":"x","datatype":"FP32",)"
                         R"("shape":[1,4],"data":[1,2,3,4]}]})"));
  // Once it is counted its first byte has been read, from which its deadline counts.
  while (server_->counters().total("requests") < 2) std::this_thread::yield();
  const uint64_t counted_ns = now_ns();
  while (now_ns() <= counted_ns + 1'000) std::this_thread::yield();
  control_->release();
  EXPECT_EQ(200, first.read().status);
  EXPECT_EQ(504, late.read().status);
  EXPECT_EQ(starts, control_->starts.load());
}

// For the parameter and for the default.
TEST_F(ServerTest, ADeadlineCountsFromTheFirstByteHoweverSlowlyTheRestComes) {
  options_.engine.default_timeout_us = 5'000;  // more than the request needs once it is all there
  start();
  const std::string tensor =
      R"("inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}])";
  for (const char* parameters : {R"("parameters":{"timeout":5000},)", ""}) {
    const std::string request =
        post_request("/v2/models/plus_one/infer", std::string("{") + parameters + tensor + "}");
    HttpClient slow = client();
    slow.send(request.substr(0, 1));
    // A client that came later is answered: the loop has turned since, and has read that byte.
    HttpClient other = client();
    EXPECT_EQ(200, other.exchange(get_request("/v2/health/live")).status);
    const uint64_t read_ns = now_ns();
    while (now_ns() <= read_ns + 5'000'000) std::this_thread::yield();
    slow.send(request.substr(1));
    const HttpReply reply = slow.read();
    EXPECT_EQ(504, reply.status) << parameters;
    EXPECT_THAT(reply.body, HasSubstr("us after its first byte"));
  }
  EXPECT_EQ(0u, control_->starts.load());
}

TEST_F(ServerTest, AFailingModelIsA500WithItsReasonAndTheServerLives) {
  repository_.add_model("bad");
  control_->model_that_fails = "bad";
  start();
  HttpClient http = client();
  const HttpReply reply = http.exchange(binary_infer("bad", "x", floats({1, 2, 3, 4})));
  EXPECT_EQ(500, reply.status);
  EXPECT_THAT(reply.body, HasSubstr("'bad' failed as the test wants"));
  expect_alive();
}

TEST_F(ServerTest, AModelThatFailsToLoadIs503WithItsReasonAndTheOthersServe) {
  repository_.add_model("broken");
  control_->models_that_fail_to_load.insert("broken");
  start();
  HttpClient http = client();
  EXPECT_EQ(503, http.exchange(get_request("/v2/models/broken/ready")).status);
  const HttpReply reply = http.exchange(binary_infer("broken", "x", floats({1, 2, 3, 4})));
  EXPECT_EQ(503, reply.status);
  EXPECT_THAT(reply.body, HasSubstr("fails to load, as the test wants"));
  expect_alive();
}

TEST_F(ServerTest, DrainAnswersRequestsInFlightAndClosesTheRest) {
  start();
  HttpClient idle = client();
  EXPECT_EQ(200, idle.exchange(get_request("/v2/health/ready")).status);
  control_->hold();
  HttpClient busy = client();
  busy.send(binary_infer("plus_one", "x", floats({1, 2, 3, 4})));
  control_->wait_until_held(1);
  std::thread drain([this] { server_->drain(); });
  EXPECT_TRUE(idle.at_end());  // so draining has begun
  control_->release();
  const HttpReply reply = busy.read();
  EXPECT_EQ(200, reply.status);
  EXPECT_THAT(reply.head, HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(busy.at_end());
  busy.close();
  drain.join();
}

TEST_F(ServerTest, DrainGivesUpOnAClientThatNeverFinishesItsRequest) {
  options_.drain_timeout_ns = 50'000'000;
  start();
  HttpClient slow = client();
  slow.send("POST /v2/models/plus_one/infer HTTP/1.1\r\nHost: t\r\nContent-Le");
  while (server_->counters().total("received_bytes") == 0) std::this_thread::yield();
  server_->drain();
  EXPECT_TRUE(slow.at_end());
}

TEST_F(ServerTest, AClientThatVanishesWhileItsRequestRunsHarmsNobody) {
  start();
  control_->hold();
  {
    HttpClient gone = client();
    gone.send(binary_infer("plus_one", "x", floats({1, 2, 3, 4})));
    control_->wait_until_held(1);
  }
  control_->release();
  expect_alive();
}

TEST_F(ServerTest, AClientThatHasClosedItsSendingSideStillGetsItsReply) {
  start();
  HttpClient http = client();
  http.send(binary_infer("plus_one", "x", floats({1, 2, 3, 4})));
  http.shut_sending();
  EXPECT_EQ(200, http.read().status);
  EXPECT_TRUE(http.at_end());
}

TEST_F(ServerTest, ASlowHeadIsAnswered408AndCounted) {
  options_.timeouts.head_ns = 30'000'000;
  start();
  HttpClient slow = client();
  slow.send("GET /v2/health/live HTTP/1.1\r\n");
  const HttpReply reply = slow.read();
  EXPECT_EQ(408, reply.status);
  EXPECT_TRUE(slow.at_end());
  EXPECT_EQ(1u, server_->counters().total("timeouts"));
  expect_alive();
}

TEST_F(ServerTest, ABodyThatStallsIsAnswered408) {
  options_.timeouts.body_period_ns = 30'000'000;
  start();
  HttpClient slow = client();
  const std::string request = binary_infer("plus_one", "x", floats({1, 2, 3, 4}));
  slow.send(request.substr(0, request.size() - 1));
  EXPECT_EQ(408, slow.read().status);
  expect_alive();
}

TEST_F(ServerTest, AClientThatDoesNotReadItsRepliesIsClosed) {
  options_.timeouts.write_stall_ns = 30'000'000;
  start();
  HttpClient deaf = client();
  // Replies that nobody reads fill the socket, until the server's write stalls.
  const std::string metadata = get_request("/v2/models/plus_one");
  std::string many;
  for (int i = 0; i < 1000; ++i) many += metadata;
  while (deaf.send(many)) {
  }
  EXPECT_GE(server_->counters().total("timeouts"), 1u);
  expect_alive();
}

TEST_F(ServerTest, MoreConnectionsThanContextsWaitTheirTurn) {
  options_.max_active_requests = 2;
  start();
  control_->hold();
  std::vector<HttpClient> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(client());
    clients.back().send(binary_infer("plus_one", "x", floats({1, 2, 3, 4})));
  }
  control_->wait_until_held(1);
  control_->release();
  for (HttpClient& one : clients) EXPECT_EQ(200, one.read().status);
}

TEST_F(ServerTest, AtTheConnectionLimitTheOldestIdleOneMakesRoom) {
  options_.max_connections = 2;
  start();
  HttpClient oldest = client();
  EXPECT_EQ(200, oldest.exchange(get_request("/v2/health/live")).status);
  HttpClient second = client();
  EXPECT_EQ(200, second.exchange(get_request("/v2/health/live")).status);
  HttpClient third = client();
  EXPECT_EQ(200, third.exchange(get_request("/v2/health/live")).status);
  EXPECT_TRUE(oldest.at_end());
  EXPECT_EQ(200, second.exchange(get_request("/v2/health/live")).status);
}

TEST_F(ServerTest, AtTheConnectionLimitWithAllBusyTheNewOneIsRefused) {
  options_.max_connections = 1;
  start();
  control_->hold();
  HttpClient busy = client();
  busy.send(binary_infer("plus_one", "x", floats({1, 2, 3, 4})));
  control_->wait_until_held(1);
  HttpClient refused = client();
  EXPECT_TRUE(refused.at_end());
  EXPECT_EQ(1u, server_->counters().total("connections_refused"));
  control_->release();
  EXPECT_EQ(200, busy.read().status);
}

TEST_F(ServerTest, RefusesABodyAboveTheLimitOnItsHeadAlone) {
  start();
  HttpClient http = client();
  http.send("POST /v2/models/plus_one/infer HTTP/1.1\r\nHost: t\r\nContent-Length: 65537\r\n\r\n");
  const HttpReply reply = http.read();
  EXPECT_EQ(413, reply.status);
  EXPECT_THAT(reply.body, HasSubstr("65537"));
  expect_alive();
}

TEST_F(ServerTest, AnHttp10ClientThatAsksToStayIsToldThatItMay) {
  start();
  HttpClient http = client();
  const std::string request =
      "GET /v2/health/live HTTP/1.0\r\nHost: t\r\nConnection: keep-alive\r\n\r\n";
  for (int i = 0; i < 2; ++i) {
    const HttpReply reply = http.exchange(request);
    EXPECT_EQ(200, reply.status);
    EXPECT_THAT(reply.head, HasSubstr("Connection: keep-alive\r\n"));
  }
}

TEST_F(ServerTest, RandomBytesNeverEndTheServer) {
  start();
  const auto seed = static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed() + 1);
  std::mt19937 random(seed);
  RecordProperty("seed", static_cast<int>(seed));
  const std::string good = binary_infer("plus_one", "x", floats({1, 2, 3, 4}));
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    for (int flips = 0; flips < 3; ++flips) {
      bad[random() % bad.size()] = static_cast<char>(random());
    }
    HttpClient http = client();
    http.send(bad);
    http.shut_sending();
    while (!http.at_end() && http.read().status != 0) {
    }
  }
  expect_alive();
}

}  // namespace
}  // namespace lumen::server
