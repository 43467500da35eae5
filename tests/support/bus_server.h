// BusServer: the fixture of tests that ask a whole server over the bus, with the fake backend.
// Threads: the test's; the server makes its own. Memory: the heap. Errors: failed expectations.
#pragma once

#include <lumen/base/clock.h>
#include <lumen/bus_client/infer_client.h>

#include "support/fake_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lumen::server {

using bus::Outcome;
using bus_client::InferClient;
using bus_client::Reply;
using bus_client::Sent;
using testing::ElementsAre;
using testing::HasSubstr;
using wire::BusRequest;
using wire::BusTensor;
using wire::BusVerb;

inline uint64_t patience() { return now_ns() + 60'000'000'000u; }

// A reply whose text outlives the client's memory for it.
struct Answer {
  int status = 0;
  std::string text;
  std::vector<BusTensor> outputs;  // without their names
  std::vector<std::string> names;
  std::string version;
};

class BusServer : public FakeServer, public testing::WithParamInterface<models::QueueType> {
 protected:
  BusServer() {
    options_.bus_path = (repository_.path() / "lumen.bus").string();
    options_.bus_area_bytes = 1 << 20;
    options_.max_active_requests = 512;
    options_.engine.queue_type = GetParam();
    options_.engine.thread_count = 1;
  }
  [[nodiscard]] InferClient connect() {
    auto client = InferClient::connect(options_.bus_path, patience());
    LUMEN_CHECK(client.ok());
    return std::move(*client);
  }
  // A row of four floats at `offset`, its reply's room 64 bytes behind it.
  static void put_row(InferClient& client, uint64_t offset, float first) {
    const std::array<float, 4> row{first, first + 1, first + 2, first + 3};
    std::memcpy(client.area().data() + offset, row.data(), sizeof(row));
  }
  static std::array<float, 4> row_at(InferClient& client, uint64_t offset) {
    std::array<float, 4> row{};
    std::memcpy(row.data(), client.area().data() + offset, sizeof(row));
    return row;
  }
  static BusTensor input_at(uint64_t offset, int64_t rows = 1) {
    BusTensor x{.name = "x", .type = ElementType::kFp32, .shape = {}, .offset = offset};
    LUMEN_CHECK(x.shape.append(rows) && x.shape.append(4));
    x.bytes = 16 * static_cast<uint64_t>(rows);
    return x;
  }
  static uint64_t send_row(InferClient& client, uint64_t offset, float first,
                           std::optional<uint64_t> timeout_us = std::nullopt) {
    put_row(client, offset, first);
    const BusTensor x = input_at(offset);
    const Sent sent = client.send({.model = "plus_one",
                                   .version = {},
                                   .timeout_us = timeout_us,
                                   .reply_offset = offset + 64,
                                   .reply_room = 64,
                                   .inputs = {&x, 1},
                                   .outputs = {}});
    EXPECT_EQ(sent.outcome, Outcome::kOk) << name_of(sent.outcome);
    return sent.id;
  }
  // Everything that is there, once something is.
  static size_t take(InferClient& client, std::map<uint64_t, Answer>& into) {
    const Outcome outcome = client.wait(patience());
    EXPECT_EQ(outcome, Outcome::kOk) << name_of(outcome);
    size_t taken = 0;
    while (const std::optional<Reply> reply = client.try_take()) {
      Answer answer{.status = reply->reply.status,
                    .text = std::string(reply->reply.text),
                    .outputs = {},
                    .names = {},
                    .version = std::string(reply->reply.version)};
      for (const BusTensor& output : reply->reply.outputs) {
        answer.names.emplace_back(output.name);
        answer.outputs.push_back(output);
        answer.outputs.back().name = {};
      }
      EXPECT_TRUE(into.emplace(reply->id, answer).second) << "answered twice";
      ++taken;
    }
    client.release();
    return taken;
  }
  static Answer answer_to(InferClient& client, const Sent& sent) {
    EXPECT_EQ(sent.outcome, Outcome::kOk) << name_of(sent.outcome);
    std::map<uint64_t, Answer> answers;
    while (sent.outcome == Outcome::kOk && !answers.contains(sent.id)) {
      if (take(client, answers) == 0) break;
    }
    return answers[sent.id];
  }
  static Answer ask_of(InferClient& client, const BusRequest& request,
                       BusVerb verb = BusVerb::kInfer) {
    return answer_to(client, client.send(request, verb));
  }
  // The server still serves this client.
  static void expect_alive(InferClient& client) {
    const uint64_t id = send_row(client, 8192, 5);
    const Answer answer = answer_to(client, {Outcome::kOk, id});
    EXPECT_EQ(answer.status, 200) << answer.text;
    EXPECT_THAT(row_at(client, 8192 + 64), ElementsAre(6, 7, 8, 9));
  }
  void wait_for(telemetry::ServerCounter counter, uint64_t value) {
    while (total(counter) != value) std::this_thread::yield();
  }
};

}  // namespace lumen::server
