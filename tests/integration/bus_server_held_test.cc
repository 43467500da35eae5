// Inference over the bus while a worker is held in the middle of a run: clients that go, drain,
// cancel, deadlines, a full queue. Runs under ASan and TSan.
#include "support/bus_server.h"

#include "transports/shm/bus_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <thread>

namespace lumen::server {
namespace {

class HeldBusServer : public BusServer {};

TEST_P(HeldBusServer, AClientThatGoesCancelsItsRequestsAndItsMemoryStaysUntilTheyAreBack) {
  start();
  control_->hold();
  {
    InferClient client = connect();
    for (int i = 0; i < 8; ++i) (void)send_row(client, static_cast<uint64_t>(i) * 128, 1);
    client.flush();
    control_->wait_until_held(1);
    wait_for("requests", 8);
  }
  InferClient other = connect();
  while (answer_to(other, other.ask(BusVerb::kServerReady)).status != 200) {
  }
  control_->release();
  wait_for("cancelled", 7);
  wait_for("connections_open", 1);
  expect_alive(other);
}

TEST_P(HeldBusServer, AtDrainRequestsInFlightAreAnsweredAndNewOnesRefused) {
  options_.drain_timeout_ns = uint64_t{3600} * 1'000'000'000;
  start();
  control_->hold();
  InferClient client = connect();
  const uint64_t first = send_row(client, 0, 1);
  client.flush();
  control_->wait_until_held(1);
  std::thread drain([&] { server_->drain(); });
  Answer ready;
  while ((ready = answer_to(client, client.ask(BusVerb::kServerReady))).status == 200) {
  }
  EXPECT_EQ(ready.status, 503);
  EXPECT_THAT(answer_to(client, {Outcome::kOk, send_row(client, 128, 1)}).text,
              HasSubstr("shutting down"));
  control_->release();
  EXPECT_EQ(answer_to(client, {Outcome::kOk, first}).status, 200);
  EXPECT_THAT(row_at(client, 64), ElementsAre(2, 3, 4, 5));
  drain.join();
  EXPECT_EQ(client.state(), Outcome::kClosed);
}

TEST_P(HeldBusServer, OneRequestIsCancelledAndAnsweredSo) {
  start();
  control_->hold();
  InferClient client = connect();
  const uint64_t first = send_row(client, 0, 1);
  client.flush();
  control_->wait_until_held(1);
  const uint64_t second = send_row(client, 128, 1);
  const uint64_t third = send_row(client, 256, 1);
  client.flush();
  ASSERT_EQ(client.cancel(second), Outcome::kOk);
  // The server's frames after the cancel.
  std::map<uint64_t, Answer> answers;
  const Sent ready = client.ask(BusVerb::kServerReady);
  while (!answers.contains(ready.id) && take(client, answers) > 0) {
  }
  control_->release();
  while (answers.size() < 4 && take(client, answers) > 0) {
  }
  EXPECT_EQ(answers[first].status, 200);
  EXPECT_EQ(answers[second].status, 499);
  EXPECT_EQ(answers[third].status, 200);
}

TEST_P(HeldBusServer, ADeadlineThatPassesInTheQueueIsAnswered504) {
  start();
  control_->hold();
  InferClient client = connect();
  const uint64_t first = send_row(client, 0, 1, 0);
  client.flush();
  control_->wait_until_held(1);
  const uint64_t late = send_row(client, 128, 1, 1);
  client.flush();
  wait_for("requests", 2);
  const uint64_t then = now_ns() + 2'000'000;
  while (now_ns() < then) std::this_thread::yield();
  control_->release();
  std::map<uint64_t, Answer> answers;
  while (answers.size() < 2 && take(client, answers) > 0) {
  }
  EXPECT_EQ(answers[first].status, 200);
  EXPECT_EQ(answers[late].status, 504);
  EXPECT_THAT(answers[late].text, HasSubstr("request expired"));
}

TEST_P(HeldBusServer, OneRequestTooManyIsRefusedWith429) {
  options_.engine.queue_capacity = 4;
  start();
  control_->hold();
  InferClient client = connect();
  (void)send_row(client, 0, 1);
  client.flush();
  control_->wait_until_held(1);
  for (uint64_t i = 1; i < 12; ++i) (void)send_row(client, i * 128, 1);
  std::map<uint64_t, Answer> answers;
  while (answers.size() < 7 && take(client, answers) > 0) {
  }
  for (const auto& [id, answer] : answers) EXPECT_EQ(answer.status, 429);
  EXPECT_THAT(answers.begin()->second.text, HasSubstr("the queue of model 'plus_one' is full"));
  control_->release();
  while (answers.size() < 12 && take(client, answers) > 0) {
  }
}

TEST_P(HeldBusServer, WithoutPlaceForAnotherRequestItIsRefused) {
  options_.max_active_requests = 4;
  start();
  control_->hold();
  InferClient client = connect();
  for (uint64_t i = 0; i < 6; ++i) (void)send_row(client, i * 128, 1);
  std::map<uint64_t, Answer> answers;
  while (answers.size() < 2 && take(client, answers) > 0) {
  }
  for (const auto& [id, answer] : answers) {
    EXPECT_EQ(answer.status, 429);
    EXPECT_THAT(answer.text, HasSubstr("max_active_requests"));
  }
  EXPECT_EQ(total("memory_refused"), 2u);
  control_->release();
  while (answers.size() < 6 && take(client, answers) > 0) {
  }
  EXPECT_EQ(total("responses_2xx"), 4u);
}

TEST_P(HeldBusServer, ABudgetThatCanNotBeKeptRefuses) {
  options_.engine.latency_budget_us = 1;
  start();
  control_->hold();
  InferClient client = connect();
  const uint64_t ahead = send_row(client, 0, 1);
  client.flush();
  control_->wait_until_held(1);
  const Answer answer = answer_to(client, {Outcome::kOk, send_row(client, 128, 1)});
  EXPECT_EQ(answer.status, 429);
  EXPECT_THAT(answer.text, HasSubstr("latency budget"));
  control_->release();
  EXPECT_EQ(answer_to(client, {Outcome::kOk, ahead}).status, 200);
}

// The server takes 256 requests a look. Was: where the last of them took the last room for replies,
// the thread went to sleep without having told the client that it wants room, and slept on when the
// client made some.
TEST_P(HeldBusServer, AClientThatMakesRoomForRepliesWakesTheServerAfterAnyLastLook) {
  constexpr uint64_t kRequestsPerLook = 256;
  start();
  control_->hold();  // a request in flight: the I/O thread sleeps at once, without polling
  InferClient client = connect();
  const size_t document_bytes = answer_to(client, client.ask(BusVerb::kServerMetadata)).text.size();
  const uint64_t held = send_row(client, 0, 1);
  client.flush();
  control_->wait_until_held(1);
  // A look ends where neither the held request's reply nor a refusal would find room.
  const uint64_t reply_bytes =
      bus::payload_bytes(wire::frame_bytes(wire::BusReply{.status = 200,
                                                          .version = {},
                                                          .outputs = {},
                                                          .text = std::string(document_bytes, ' ')})
                             .value());
  const uint64_t capacity = client.connection().subscriber->geometry().capacity;
  const uint64_t fitting = (capacity - 2 * shm::kRefusalBytes) / reply_bytes + 1;
  const uint64_t before = fitting % kRequestsPerLook;
  for (uint64_t i = 0; i < before; ++i) (void)client.ask(BusVerb::kServerMetadata);
  client.flush();
  wait_for("requests", 2 + before);
  constexpr uint64_t kBeyond = 10;
  for (uint64_t i = before; i < fitting + kBeyond; ++i) {
    ASSERT_EQ(client.ask(BusVerb::kServerMetadata).outcome, Outcome::kOk);
  }
  client.flush();
  wait_for("requests", 2 + fitting);
  std::map<uint64_t, Answer> answers;
  while (answers.size() < fitting + kBeyond && take(client, answers) > 0) {
  }
  EXPECT_EQ(answers.size(), fitting + kBeyond);
  control_->release();
  while (!answers.contains(held) && take(client, answers) > 0) {
  }
}

INSTANTIATE_TEST_SUITE_P(QueueTypes, HeldBusServer, testing::Values(models::QueueType::kMpmc),
                         [](const auto& one) { return std::string(name_of(one.param)); });

}  // namespace
}  // namespace lumen::server
