// Requests of ensembles over the fake backend: order, side by side, faults, deadlines, clients that
// go, models that change meanwhile. Runs under ASan and TSan.
// Threads: the test's and the server's. Memory: the heap. Errors: by gtest.
#include "support/fake_server.h"
#include "support/observing_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace lumen::server {
namespace {

using models::QueueType;
using testing::ElementsAre;
using testing::HasSubstr;

// One row of four zeros.
const std::string& zeros() {
  static const std::string bytes(16, '\0');
  return bytes;
}

// Of an output of one row in a binary reply: its first number.
float number_in(const HttpReply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  if (reply.body.size() < 16) return -1;
  float number = 0;
  std::memcpy(&number, reply.body.data() + reply.body.size() - 16, sizeof(number));
  return number;
}

class Ensembles : public FakeServer, public testing::WithParamInterface<QueueType> {
 protected:
  void SetUp() override {
    for (const char* name : {"one", "ten", "hundred"}) repository_.add_model(name);
    control_->adds = {{"one", 1}, {"ten", 10}, {"hundred", 100}};
    options_.engine.queue_type = GetParam();
    options_.engine.thread_count = 2;
    write("chain", R"({"model": "one", "inputs": {"x": "a"}, "outputs": {"y": "b"}},
                      {"model": "ten", "inputs": {"x": "b"}, "outputs": {"y": "c"}},
                      {"model": "hundred", "inputs": {"x": "c"}, "outputs": {"y": "d"}})");
    // Two branches, and one more step behind the first.
    write("tree", R"({"model": "one", "inputs": {"x": "a"}, "outputs": {"y": "left"}},
                     {"model": "ten", "inputs": {"x": "a"}, "outputs": {"y": "right"}},
                     {"model": "hundred", "inputs": {"x": "left"}, "outputs": {"y": "leaf"}})");
  }
  void write(const std::string& name, const std::string& steps) {
    repository_.write(name + "/config.json", R"({"ensemble": {"steps": [)" + steps + "]}}");
  }
  [[nodiscard]] HttpReply ask(const std::string& model) const {
    return client().exchange(binary_infer(model, "a", zeros()));
  }
  [[nodiscard]] uint64_t runs_of(const std::string& model) const {
    return server_->models().find(model, "")->counters().total("execution");
  }
};

// Their steps can be held while the I/O thread works on.
class EnsemblesOnWorkers : public Ensembles {};

TEST_P(Ensembles, RunTheirStepsOneAfterTheOther) {
  start();
  for (int i = 0; i < 100; ++i) ASSERT_EQ(number_in(ask("chain")), 111);
  for (const char* name : {"chain", "one", "ten", "hundred"}) EXPECT_EQ(runs_of(name), 100u);
  EXPECT_EQ(total("requests"), 100u);
}

TEST_P(Ensembles, AStepReadsATensorWhereTheOneBeforeHasPutIt) {
  const auto observations = std::make_shared<models::Observations>();
  start(models::observe(models::make_fake_backend(control_), observations));
  const size_t before = observations->calls().size();  // measurements at the start
  ASSERT_EQ(number_in(ask("chain")), 111);
  const std::vector<models::Observations::Call> calls = observations->calls();
  ASSERT_EQ(calls.size(), before + 3);
  EXPECT_EQ(calls[before + 1].request_data, calls[before].made);
  EXPECT_EQ(calls[before + 2].request_data, calls[before + 1].made);
}

TEST_P(Ensembles, ARequestForOneOutputRunsOnlyTheStepsThatItNeeds) {
  start();
  const std::string json =
      R"({"inputs":[{"name":"a","datatype":"FP32","shape":[1,4],"data":[0,0,0,0]}],)"
      R"("outputs":[{"name":"right"}]})";
  const HttpReply reply = client().exchange(post_request("/v2/models/tree/infer", json));
  EXPECT_THAT(reply.body, HasSubstr(R"("name":"right")"));
  EXPECT_THAT(reply.body, HasSubstr("[10,10,10,10]"));
  EXPECT_EQ(runs_of("ten"), 1u);
  EXPECT_EQ(runs_of("one"), 0u);
  EXPECT_EQ(runs_of("hundred"), 0u);
}

TEST_P(EnsemblesOnWorkers, BranchesRunAtTheSameTime) {
  start();
  control_->hold();
  HttpReply reply;
  std::thread asking([&] { reply = ask("tree"); });
  control_->wait_until_held(2);  // both branches
  control_->release();
  asking.join();
  ASSERT_EQ(reply.status, 200) << reply.body;
  std::array<float, 8> numbers{};
  std::memcpy(numbers.data(), reply.body.data() + reply.body.size() - 32, 32);
  EXPECT_THAT(numbers, ElementsAre(10, 10, 10, 10, 101, 101, 101, 101));
}

TEST_P(Ensembles, AStepThatFailsIsTheRequestsErrorAndTheNextIsServed) {
  control_->value_that_fails = 11;  // in the input of the third step
  start();
  for (int i = 0; i < 10; ++i) {
    const HttpReply reply = ask("chain");
    EXPECT_EQ(reply.status, 500) << reply.body;
    EXPECT_THAT(reply.body, HasSubstr("hundred"));
  }
  EXPECT_EQ(number_in(client().exchange(binary_infer("one", "x", zeros()))), 1);
  const telemetry::ModelCounters third = server_->models().find("hundred", "")->counters();
  EXPECT_EQ(third.total("failure"), 10u);
}

TEST_P(Ensembles, ABranchThatFailsWaitsForTheOther) {
  control_->model_that_fails = "ten";
  start();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ask("tree").status, 500);
  EXPECT_EQ(number_in(client().exchange(binary_infer("one", "x", zeros()))), 1);
}

TEST_P(EnsemblesOnWorkers, AClientThatGoesEndsTheRequestBeforeItsNextStep) {
  start();
  control_->hold();
  {
    HttpClient http = client();
    http.send(binary_infer("chain", "a", zeros()));
    control_->wait_until_held(1);
    http.reset();
  }
  // The I/O thread that answers this has seen the reset.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(get("/v2/health/live").status, 200);
  control_->release();
  while (total("cancelled") == 0) std::this_thread::yield();
  EXPECT_EQ(runs_of("one"), 1u);
  EXPECT_EQ(runs_of("ten"), 0u);
  EXPECT_EQ(number_in(ask("chain")), 111);
}

// The first step is under way while the model of the second is loaded anew: the change waits.
TEST_P(EnsemblesOnWorkers, ARequestKeepsTheModelsThatItBeganWith) {
  start();
  control_->hold();
  HttpReply reply;
  std::thread asking([&] { reply = ask("chain"); });
  control_->wait_until_held(1);
  control_->let_add("ten", 50);
  repository_.write("ten/config.json", R"({"weight": 2})");
  Status reloaded;
  std::thread changing([&] { reloaded = server_->load_model("ten"); });
  // The ensemble for the new model is served, and the request holds the one before.
  control_->release();
  asking.join();
  changing.join();
  ASSERT_TRUE(reloaded.ok()) << reloaded.message();
  EXPECT_EQ(number_in(reply), 111);
  EXPECT_EQ(number_in(ask("chain")), 151);
}

TEST_P(Ensembles, TheirModelsChangeUnderLoadAndEachAnswerIsOfOneState) {
  write("twice", R"({"model": "ten", "inputs": {"x": "a"}, "outputs": {"y": "b"}},
                    {"model": "ten", "inputs": {"x": "b"}, "outputs": {"y": "c"}})");
  options_.io_thread_count = 2;
  start();
  std::atomic<bool> stop{false};
  std::vector<std::thread> load;
  load.reserve(3);
  for (int i = 0; i < 3; ++i) {
    load.emplace_back([&] {
      HttpClient http = client();
      while (!stop) {
        const float number = number_in(http.exchange(binary_infer("twice", "a", zeros())));
        EXPECT_TRUE(number == 20 || number == 100) << number;
      }
    });
  }
  for (int round = 0; round < 8; ++round) {
    control_->let_add("ten", round % 2 == 0 ? 50 : 10);
    repository_.write("ten/config.json", R"({"weight": )" + std::to_string(1 + round) + "}");
    const Status reloaded = server_->load_model("ten");
    ASSERT_TRUE(reloaded.ok()) << reloaded.message();
  }
  stop = true;
  for (std::thread& one : load) one.join();
  server_->drain();
  EXPECT_EQ(0u, total("responses_5xx"));
}

INSTANTIATE_TEST_SUITE_P(QueueTypes, Ensembles,
                         testing::Values(QueueType::kMpmc, QueueType::kBatched, QueueType::kInline,
                                         QueueType::kAuto),
                         [](const auto& one) { return std::string(name_of(one.param)); });

INSTANTIATE_TEST_SUITE_P(QueueTypes, EnsemblesOnWorkers,
                         testing::Values(QueueType::kMpmc, QueueType::kBatched),
                         [](const auto& one) { return std::string(name_of(one.param)); });

}  // namespace
}  // namespace lumen::server
