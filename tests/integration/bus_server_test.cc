// Inference over the bus, from a client's area through the server's rings to a model and back, with
// the fake backend: answers, refusals, clients that go, hostile ones. Runs under ASan and TSan.
#include <lumen/service/dispatcher.h>

#include "support/bus_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace lumen::server {
namespace {

TEST_P(BusServer, AnswersWhereTheClientWantsIt) {
  start();
  InferClient client = connect();
  const uint64_t id = send_row(client, 128, 1);
  const Answer answer = answer_to(client, {Outcome::kOk, id});
  EXPECT_EQ(answer.status, 200) << answer.text;
  EXPECT_EQ(answer.version, "1");
  EXPECT_THAT(answer.names, ElementsAre("y"));
  ASSERT_EQ(answer.outputs.size(), 1u);
  EXPECT_EQ(answer.outputs[0].offset, 192u);
  EXPECT_EQ(answer.outputs[0].bytes, 16u);
  EXPECT_EQ(answer.outputs[0].type, ElementType::kFp32);
  EXPECT_THAT(answer.outputs[0].shape.dimensions(), ElementsAre(1, 4));
  EXPECT_THAT(row_at(client, 192), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(total("responses_2xx"), 1u);
  EXPECT_EQ(total("requests"), 1u);
}

TEST_P(BusServer, KeepsManyRequestsOfOneClientInFlight) {
  start();
  InferClient client = connect();
  constexpr uint64_t kCount = 256;
  for (int round = 0; round < 20; ++round) {
    std::map<uint64_t, uint64_t> offsets;
    for (uint64_t i = 0; i < kCount; ++i) {
      offsets[send_row(client, i * 128, static_cast<float>(i))] = i * 128;
    }
    std::map<uint64_t, Answer> answers;
    while (answers.size() < kCount && take(client, answers) > 0) {
    }
    ASSERT_EQ(answers.size(), kCount);
    for (const auto& [id, offset] : offsets) {
      ASSERT_EQ(answers[id].status, 200) << answers[id].text;
      const uint64_t number = offset / 128;
      const auto value = static_cast<float>(number);
      ASSERT_EQ(row_at(client, offset + 64)[3], value + 4);
    }
  }
}

TEST_P(BusServer, TellsTheSameAsHttp) {
  start();
  InferClient client = connect();
  const BusRequest of_model{.model = "plus_one"};
  EXPECT_EQ(answer_to(client, client.ask(BusVerb::kServerMetadata)).text, get("/v2").body);
  EXPECT_EQ(answer_to(client, client.ask(BusVerb::kServerReady)).text,
            get("/v2/health/ready").body);
  EXPECT_EQ(ask_of(client, of_model, BusVerb::kModelMetadata).text,
            get("/v2/models/plus_one").body);
  EXPECT_EQ(ask_of(client, of_model, BusVerb::kModelReady).text,
            get("/v2/models/plus_one/ready").body);
  expect_alive(client);
  EXPECT_EQ(ask_of(client, of_model, BusVerb::kStatistics).text,
            get("/v2/models/plus_one/stats").body);
  EXPECT_EQ(ask_of(client, {}, BusVerb::kStatistics).text, get("/v2/models/stats").body);
  EXPECT_EQ(ask_of(client, {.model = "none"}, BusVerb::kModelMetadata).status, 404);
  EXPECT_EQ(ask_of(client, of_model, static_cast<BusVerb>(99)).status, 501);
}

TEST_P(BusServer, RefusesAsHttpDoesWithTheSameWords) {
  start();
  InferClient client = connect();
  BusTensor x = input_at(0);
  BusRequest request{.model = "plus_one", .reply_offset = 4096, .reply_room = 64};
  request.inputs = {&x, 1};
  const std::string good_row(16, '\0');
  const auto http_says = [&](const std::string& text) {
    return this->client().exchange(text).body;
  };
  request.model = "none";
  Answer answer = ask_of(client, request);
  EXPECT_EQ(answer.status, 404);
  EXPECT_THAT(http_says(binary_infer("none", "x", good_row)), HasSubstr(answer.text));
  request.model = "plus_one";
  x.name = "z";
  answer = ask_of(client, request);
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(http_says(binary_infer("plus_one", "z", good_row)), HasSubstr(answer.text));
  request.inputs = {};
  EXPECT_THAT(ask_of(client, request).text, HasSubstr("input 'x' of model 'plus_one' is missing"));
  x = input_at(0);
  x.bytes = 12;
  request.inputs = {&x, 1};
  EXPECT_EQ(ask_of(client, request).status, 400);
  const std::string_view wrong = "w";
  x = input_at(0);
  request.outputs = {&wrong, 1};
  EXPECT_THAT(ask_of(client, request).text, HasSubstr("no output 'w'"));
  request.outputs = {};
  x = input_at(0, 8192);
  answer = ask_of(client, request);
  EXPECT_EQ(answer.status, 413);
  EXPECT_THAT(answer.text, HasSubstr("131072 bytes are above the limit of 65536"));
  expect_alive(client);
}

TEST_P(BusServer, PlacesOutsideOfTheAreaAreRefusedWithTheNumbers) {
  start();
  InferClient client = connect();
  constexpr uint64_t kArea = 1 << 20;
  for (const uint64_t offset : {kArea, kArea - 8, UINT64_MAX, UINT64_MAX - 15}) {
    const BusTensor x = input_at(offset);
    const Answer answer = ask_of(
        client, {.model = "plus_one", .reply_offset = 0, .reply_room = 64, .inputs = {&x, 1}});
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.text, HasSubstr("are not within the 1048576 bytes of the area")) << offset;
  }
  const BusTensor x = input_at(0);
  const Answer answer = ask_of(client, {.model = "plus_one",
                                        .reply_offset = kArea - 32,
                                        .reply_room = UINT64_MAX - 64,
                                        .inputs = {&x, 1}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.text, HasSubstr("room for outputs"));
  expect_alive(client);
}

TEST_P(BusServer, OutputsThatDoNotFitTheirRoomAreRefusedWithBothNumbers) {
  start();
  InferClient client = connect();
  const BusTensor x = input_at(0, 4);
  const Answer answer = ask_of(
      client, {.model = "plus_one", .reply_offset = 4096, .reply_room = 63, .inputs = {&x, 1}});
  EXPECT_EQ(answer.status, 413);
  EXPECT_THAT(answer.text, HasSubstr("need 64 bytes"));
  EXPECT_THAT(answer.text, HasSubstr("room for 63"));
  expect_alive(client);
}

// Was: kernels wrote to addresses that no element of theirs may have.
TEST_P(BusServer, ARoomThatIsNotAlignedIsRefused) {
  start();
  InferClient client = connect();
  const BusTensor x = input_at(0, 4);
  for (const uint64_t offset : {4097u, 4100u, 4128u}) {
    const Answer answer = ask_of(
        client, {.model = "plus_one", .reply_offset = offset, .reply_room = 64, .inputs = {&x, 1}});
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.text, HasSubstr("a multiple of 64"));
  }
  expect_alive(client);
}

TEST_P(BusServer, AFrameThatIsNoRequestIsRefusedAndTheNextIsServed) {
  start();
  InferClient client = connect();
  bus::Publisher& ring = *client.connection().publisher;
  const std::vector<std::byte> rubbish(600'000, std::byte{0xff});
  ASSERT_EQ(ring.send(std::span(rubbish).first(100), 1, 7), Outcome::kOk);
  ASSERT_EQ(ring.send({}, 1, 8), Outcome::kOk);
  ASSERT_EQ(ring.send(rubbish, 1, 9), Outcome::kOk);
  std::map<uint64_t, Answer> answers;
  while (answers.size() < 3 && take(client, answers) > 0) {
  }
  EXPECT_EQ(answers[7].status, 400);
  EXPECT_EQ(answers[8].status, 400);
  EXPECT_EQ(answers[9].status, 413);
  expect_alive(client);
}

TEST_P(BusServer, ModelsComeAndGoBetweenTwoRequests) {
  repository_.add_model("plus_one", "2");
  start();
  InferClient client = connect();
  const auto version_now = [&] {
    return answer_to(client, {Outcome::kOk, send_row(client, 0, 1)}).version;
  };
  EXPECT_EQ(version_now(), "2");
  ASSERT_TRUE(server_->remove_model("plus_one", "2").ok());
  EXPECT_EQ(version_now(), "1");
  ASSERT_TRUE(server_->add_model("plus_one", "2").ok());
  EXPECT_EQ(version_now(), "2");
}

TEST_P(BusServer, AClientThatTakesNoRepliesHoldsUpNobodyElse) {
  start();
  InferClient greedy = connect();
  // A refusal takes 256 bytes of the ring of replies, which has a MiB; the rest waits among
  // requests.
  const std::string no_model(128, 'm');
  constexpr size_t kMany = 6000;
  for (size_t sent = 0; sent < kMany;) {
    const Outcome outcome = greedy.send({.model = no_model}).outcome;
    if (outcome == Outcome::kOk) ++sent;
    if (outcome != Outcome::kOk || sent % 64 == 0) greedy.flush();
  }
  greedy.flush();
  InferClient other = connect();
  for (int i = 0; i < 50; ++i) expect_alive(other);
  // Once it takes some, the rest is answered.
  std::map<uint64_t, Answer> answers;
  while (answers.size() < kMany && take(greedy, answers) > 0) {
  }
  EXPECT_EQ(answers.size(), kMany);
  for (const auto& [id, answer] : answers) EXPECT_EQ(answer.status, 404);
}

TEST_P(BusServer, AtDrainAnIdleConnectionEndsAtOnce) {
  options_.drain_timeout_ns = uint64_t{3600} * 1'000'000'000;  // not by this
  start();
  InferClient client = connect();
  expect_alive(client);
  std::thread drain([&] { server_->drain(); });
  while (client.state() == Outcome::kOk) std::this_thread::yield();
  drain.join();
  EXPECT_EQ(client.state(), Outcome::kClosed);
  EXPECT_EQ(total("connections_open"), 0u);
}

TEST_P(BusServer, AClientThatWritesImpossibleValuesIsLeftAndOthersAreServed) {
  start();
  InferClient other = connect();
  InferClient hostile = connect();
  // Its own file, mapped with the first place of the payload behind the page.
  bus::Publisher& ring = *hostile.connection().publisher;
  std::byte* const payload = ring.try_reserve(64).bytes.data();
  auto& page = *reinterpret_cast<bus::PublisherPage*>(payload - ring.geometry().payload_offset());
  expect_alive(hostile);
  page.tail_frames.store(uint64_t{1} << 40, std::memory_order_seq_cst);
  while (hostile.state() == Outcome::kOk) {
    expect_alive(other);
    std::this_thread::yield();
  }
  EXPECT_EQ(hostile.state(), Outcome::kInvalid);
  expect_alive(other);
  wait_for("connections_open", 1);
}

TEST_P(BusServer, TheEngineIsChangedBetweenTwoRequests) {
  start();
  InferClient client = connect();
  for (const auto type : {models::QueueType::kInline, models::QueueType::kSpsc,
                          models::QueueType::kBatched, models::QueueType::kMpmc}) {
    engine::EngineConfig config = server_->engine_config();
    config.queue_type = type;
    ASSERT_TRUE(server_->reconfigure(config).ok());
    expect_alive(client);
  }
}

// Keeps the lane that each request has taken.
class KeepingLanes final : public service::Step {
 public:
  service::StepOutcome before(service::Call&) noexcept override {
    return service::StepOutcome::kNext;
  }
  void after(service::Call& call) noexcept override { lanes_.push_back(call.infer.queue_type); }

  // Once the server has drained: until then, the thread that completes a request writes here.
  [[nodiscard]] const std::vector<models::QueueType>& lanes() const { return lanes_; }

 private:
  std::vector<models::QueueType> lanes_;
};

TEST_P(BusServer, EachInferenceHasItsLineInTheCsv) {
  options_.telemetry_csv_path = repository_.path() / "requests.csv";
  KeepingLanes step;
  options_.steps = {&step};
  start();
  InferClient client = connect();
  expect_alive(client);
  const BusTensor rows = input_at(0, 2);
  EXPECT_EQ(ask_of(client, {.model = "plus_one", .reply_room = 64, .inputs = {&rows, 1}}).status,
            200);
  BusTensor unknown = input_at(0);
  unknown.name = "z";
  EXPECT_EQ(ask_of(client, {.model = "plus_one", .reply_room = 64, .inputs = {&unknown, 1}}).status,
            400);
  EXPECT_EQ(ask_of(client, {.model = "none"}).status, 404);
  server_->drain();
  std::ifstream file(options_.telemetry_csv_path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 4u) << "the head, and a line for each request to a model that there is";
  ASSERT_EQ(step.lanes().size(), 2u);
  if (GetParam() != models::QueueType::kAuto) {
    EXPECT_THAT(step.lanes(), testing::Each(GetParam()));
  }
  const auto end_of = [](int count, int status, models::QueueType lane) {
    return "," + std::to_string(count) + "," + std::to_string(status) + ",,bus," +
           std::string(name_of(lane));
  };
  EXPECT_THAT(lines[1], testing::AllOf(HasSubstr(",plus_one," + std::string(name_of(GetParam()))),
                                       testing::EndsWith(end_of(1, 200, step.lanes()[0]))));
  EXPECT_THAT(lines[2], testing::EndsWith(end_of(2, 200, step.lanes()[1])));
  // No step sees a refused request. With `auto`, a busy machine may have shown meanwhile that a run
  // costs more than a worker's wake-up: the lane would have been either.
  models::QueueType refused = GetParam();
  if (refused == models::QueueType::kAuto) {
    refused = lines[3].ends_with("mpmc") ? models::QueueType::kMpmc : models::QueueType::kInline;
  }
  EXPECT_THAT(lines[3], testing::EndsWith(end_of(0, 400, refused)));
  server_ = nullptr;  // before the step
}

// Answers a call instead of the engine, from memory of its own.
class Answering final : public service::Step {
 public:
  service::StepOutcome before(service::Call& call) noexcept override {
    call.infer.outputs = call.scratch->allocate_array<TensorView>(1);
    call.infer.outputs[0] = call.infer.inputs[0];
    call.infer.outputs[0].data = reinterpret_cast<std::byte*>(row_.data());
    return service::StepOutcome::kDone;
  }

 private:
  std::array<float, 4> row_{9, 8, 7, 6};
};

TEST_P(BusServer, AnAnswerOfAStepIsPutWhereTheClientWantsIt) {
  Answering step;
  options_.steps = {&step};
  start();
  InferClient client = connect();
  EXPECT_EQ(answer_to(client, {Outcome::kOk, send_row(client, 0, 1)}).status, 200);
  EXPECT_THAT(row_at(client, 64), ElementsAre(9, 8, 7, 6));
  const BusTensor x = input_at(0);
  EXPECT_THAT(ask_of(client, {.model = "plus_one", .reply_room = 15, .inputs = {&x, 1}}).text,
              HasSubstr("need 16 bytes and more, but the request has named room for 15"));
  server_ = nullptr;  // before the step
}

INSTANTIATE_TEST_SUITE_P(QueueTypes, BusServer,
                         testing::Values(models::QueueType::kMpmc, models::QueueType::kBatched,
                                         models::QueueType::kInline, models::QueueType::kAuto),
                         [](const auto& one) { return std::string(name_of(one.param)); });

// --- the requests of one turn are one call of the model
// ---------------------------------------------

class InlineBusServer : public BusServer {};

TEST_P(InlineBusServer, RequestsThatComeTogetherAreRunTogether) {
  constexpr uint64_t kCount = 64;
  options_.engine.batch_size = kCount;
  control_->cost_ns = [](uint64_t) { return uint64_t{50'000}; };  // for any rows
  start();
  InferClient client = connect();
  const telemetry::ModelCounters counters = server_->models().find("plus_one", "")->counters();
  std::map<uint64_t, Answer> answers;
  for (uint64_t i = 0; i < kCount; ++i) (void)send_row(client, i * 128, static_cast<float>(i));
  while (answers.size() < kCount && take(client, answers) > 0) {
  }
  EXPECT_EQ(counters.total("inference"), kCount);
  // Usually 1. A look at one connection ends after 200 us, so a slow build needs more.
  EXPECT_LE(counters.total("execution"), kCount / 4);
  for (uint64_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(row_at(client, i * 128 + 64)[0], static_cast<float>(i) + 1);
  }
}

// The I/O thread went on to take requests while its own runs took longer than these came.
TEST_P(InlineBusServer, RequestsThatTheThreadHasNoRoomForWaitInTheRing) {
  constexpr uint64_t kCount = 128;
  options_.engine.queue_capacity = 16;
  options_.engine.batch_size = 1;
  control_->cost_ns = [](uint64_t) { return uint64_t{300'000}; };
  start();
  InferClient client = connect();
  std::map<uint64_t, Answer> answers;
  for (uint64_t i = 0; i < kCount; ++i) (void)send_row(client, i * 128, static_cast<float>(i));
  while (answers.size() < kCount && take(client, answers) > 0) {
  }
  ASSERT_EQ(answers.size(), kCount);
  for (const auto& [id, answer] : answers) ASSERT_EQ(answer.status, 200) << answer.text;
}

INSTANTIATE_TEST_SUITE_P(QueueTypes, InlineBusServer, testing::Values(models::QueueType::kInline),
                         [](const auto& one) { return std::string(name_of(one.param)); });

}  // namespace
}  // namespace lumen::server
