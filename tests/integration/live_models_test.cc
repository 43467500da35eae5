// Models that come and go while the server answers requests, with the CSV and the metrics read
// meanwhile. Runs under ASan and TSan. Threads: the test's and the server's. Memory: the heap.
// Errors: by gtest.
#include "support/fake_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace lumen::server {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kRounds = 40;

const std::string& four_zeros() {
  static const std::string bytes(16, '\0');
  return bytes;
}

class LiveModels : public FakeServer, public testing::WithParamInterface<models::QueueType> {
 protected:
  void SetUp() override {
    options_.engine.queue_type = GetParam();
    options_.engine.thread_count = 2;
    options_.io_thread_count = 2;
    options_.telemetry_csv_path = repository_.path() / "requests.csv";
    options_.unix_path = repository_.path() / "s.sock";
    options_.allows_recording = true;
    start();
  }
};

TEST_P(LiveModels, ComeAndGoUnderLoadAndNoRequestOfAnotherIsTouched) {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> answered{0};
  std::vector<std::thread> load;
  load.reserve(4);
  for (int i = 0; i < 2; ++i) {
    load.emplace_back([&] {
      HttpClient http = client();
      const std::string request = binary_infer("plus_one", "x", four_zeros());
      while (!stop) {
        EXPECT_EQ(200, http.exchange(request).status);
        ++answered;
      }
    });
  }
  // One that asks for a model that may be gone just then: it is answered all the same, by the model
  // or 404.
  load.emplace_back([&] {
    HttpClient http = client();
    const std::string request = binary_infer("comes", "x", four_zeros());
    while (!stop) {
      const int status = http.exchange(request).status;
      EXPECT_TRUE(status == 200 || status == 404) << status;
    }
  });
  load.emplace_back([&] {
    // One connection: with one for each request a fast machine had no port left for other tests.
    HttpClient http = client();
    while (!stop) EXPECT_EQ(200, http.exchange(get_request("/metrics")).status);
  });
  repository_.add_model("comes");
  for (int round = 0; round < kRounds; ++round) {
    const Status added = server_->add_model("comes", "");
    ASSERT_TRUE(added.ok()) << added.message();
    EXPECT_EQ(200, get("/v2/models/comes/ready").status);
    HttpClient http = client();
    EXPECT_EQ(200, http.exchange(binary_infer("comes", "x", four_zeros())).status);
    const Status removed = server_->remove_model("comes", "");
    ASSERT_TRUE(removed.ok()) << removed.message();
    const HttpReply gone = http.exchange(binary_infer("comes", "x", four_zeros()));
    EXPECT_EQ(404, gone.status);
    EXPECT_THAT(gone.body, HasSubstr("'comes' is not in the repository"));
    EXPECT_THAT(get("/metrics").body, Not(HasSubstr("model=\"comes\"")));
  }
  stop = true;
  for (std::thread& one : load) one.join();
  EXPECT_GT(answered, 0u);
  server_->drain();
  EXPECT_EQ(0u, total("responses_5xx"));
}

// Rows of a model that has left stay in the sample, and those of one that takes its place do not
// get in.
TEST_P(LiveModels, OneThatLeavesWhileItsRowsAreRecordedLeavesThemThere) {
  HttpClient control = HttpClient::over_unix(server_->unix_path());
  const auto ask = [&control](const std::string& body) {
    return control.exchange(post_request("/v2/lumen/recording", body)).body;
  };
  repository_.add_model("comes");
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(server_->add_model("comes", "").ok());
    const std::string begun = ask(R"({"action": "begin", "model": "comes", "rows": 4})");
    ASSERT_THAT(begun, HasSubstr("\"recording\":true"));
    HttpClient http = client();
    EXPECT_EQ(200, http.exchange(binary_infer("comes", "x", four_zeros())).status);
    ASSERT_TRUE(server_->remove_model("comes", "").ok());
    ASSERT_TRUE(server_->add_model("comes", "").ok());
    EXPECT_EQ(200, http.exchange(binary_infer("comes", "x", four_zeros())).status);
    EXPECT_THAT(ask(R"({"action": "end"})"), HasSubstr("\"seen\":1,\"kept\":1"));
    EXPECT_THAT(ask(R"({"action": "row", "number": 0})"), HasSubstr("\"name\":\"x\""));
    EXPECT_THAT(ask(R"({"action": "drop"})"), HasSubstr("\"recording\":false"));
    ASSERT_TRUE(server_->remove_model("comes", "").ok());
  }
}

TEST_P(LiveModels, OneThatTakesTheIndexOfAnotherHasItsOwnNameInTheCsvAndItsOwnCounts) {
  repository_.add_model("first");
  repository_.add_model("second");
  for (const char* name : {"first", "second"}) {
    const Status added = server_->add_model(name, "1");
    ASSERT_TRUE(added.ok()) << added.message();
    HttpClient http = client();
    EXPECT_EQ(200, http.exchange(binary_infer(name, "x", four_zeros())).status);
    EXPECT_THAT(get("/v2/models/" + std::string(name) + "/stats").body,
                HasSubstr("\"inference_count\":1,"));
    ASSERT_TRUE(server_->remove_model(name, "1").ok());
  }
  EXPECT_FALSE(server_->remove_model("second", "1").ok());
  EXPECT_FALSE(server_->add_model("nowhere", "").ok());
  EXPECT_FALSE(server_->add_model("plus_one", "1").ok()) << "it is there";
  server_->drain();
  std::stringstream csv;
  csv << std::ifstream(options_.telemetry_csv_path).rdbuf();
  EXPECT_THAT(csv.str(), HasSubstr("first"));
  EXPECT_THAT(csv.str(), HasSubstr("second"));
}

INSTANTIATE_TEST_SUITE_P(QueueTypes, LiveModels,
                         testing::Values(models::QueueType::kMpmc, models::QueueType::kSpsc,
                                         models::QueueType::kNaive, models::QueueType::kBatched,
                                         models::QueueType::kInline, models::QueueType::kAuto),
                         [](const testing::TestParamInfo<models::QueueType>& one) {
                           return std::string(models::name_of(one.param));
                         });

}  // namespace
}  // namespace lumen::server
