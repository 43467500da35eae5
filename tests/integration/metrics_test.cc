// /metrics while the server has other things to do: a change of the configuration that compiles for
// long, many scrapes at once, scrapers that go away. With the fake backend, so that it runs under
// ASan and TSan too.
// Threads: clients. Memory: the heap. Errors: by gtest.
#include "support/fake_server.h"
#include "support/wrapping_backend.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lumen::server {
namespace {

const std::string kScrape = get_request("/metrics");

class MetricsTest : public FakeServer {
 protected:
  void SetUp() override {
    auto compile = [this](std::unique_ptr<models::Instance> instance) {
      compiling_.fetch_add(1);
      compiling_.notify_all();
      held_.wait(true);
      return instance;
    };
    start(std::make_unique<models::WrappingBackend>(models::make_fake_backend(control_), compile));
  }
  void release() {
    held_.store(false);
    held_.notify_all();
  }
  void TearDown() override { release(); }
  static void expect_metrics(const HttpReply& reply) {
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_NE(reply.head.find("text/plain; version=0.0.4"), std::string::npos) << reply.head;
    EXPECT_TRUE(reply.body.starts_with("# HELP lumen_requests_total"));
    EXPECT_TRUE(reply.body.ends_with("\n"));
    EXPECT_NE(reply.body.find("lumen_inference_total{model=\"plus_one\""), std::string::npos);
  }

  std::atomic<bool> held_{false};
  std::atomic<uint32_t> compiling_{0};
};

// The thread that changes the configuration is in create_instance() all the time.
TEST_F(MetricsTest, ScrapesAreAnsweredWhileAChangeOfTheConfigurationCompiles) {
  const uint32_t compiled = compiling_.load();
  held_.store(true);
  HttpClient changer = unix_client();
  ASSERT_TRUE(
      changer.send(post_request("/v2/lumen/engine", R"({"engine":{"queue_type":"spsc"}})")));
  compiling_.wait(compiled);
  HttpClient scraper = client();
  for (int i = 0; i < 3; ++i) expect_metrics(scraper.exchange(kScrape));
  // More at once than requests may be at work.
  std::vector<HttpClient> scrapers;
  for (int i = 0; i < 32; ++i) {
    scrapers.push_back(client());
    ASSERT_TRUE(scrapers.back().send(kScrape));
  }
  for (HttpClient& one : scrapers) expect_metrics(one.read());
  EXPECT_EQ(total("engine_swaps"), 0u) << "the change has not been made yet";
  release();
  EXPECT_EQ(changer.read().status, 200);
  EXPECT_EQ(total("engine_swaps"), 1u);
}

TEST_F(MetricsTest, AScrapeShowsTheRepliesBeforeIt) {
  HttpClient http = client();
  for (int i = 1; i <= 5; ++i) {
    EXPECT_EQ(http.exchange(binary_infer("plus_one", "x", std::string(16, '\0'))).status, 200);
    const HttpReply reply = http.exchange(kScrape);
    expect_metrics(reply);
    const std::string wanted = "lumen_inference_success_total{model=\"plus_one\",version=\"1\"} " +
                               std::to_string(i) + "\n";
    EXPECT_NE(reply.body.find(wanted), std::string::npos) << reply.body;
  }
}

TEST_F(MetricsTest, ScrapersThatGoAwayLeaveNothingBehind) {
  for (int i = 0; i < 50; ++i) {
    HttpClient gone = client();
    ASSERT_TRUE(gone.send(kScrape));
    gone.close();
  }
  HttpClient http = client();
  expect_metrics(http.exchange(kScrape));
  while (total("connections_open") > 1) std::this_thread::yield();
  EXPECT_GE(total("connections_accepted"), 51u);
  http.close();
  server_->drain();
  EXPECT_EQ(total("connections_open"), 0u);
}

// Two backends that can serve the model, of which the second is chosen since it is quicker.
class BackendChoiceTest : public FakeServer {
 protected:
  void SetUp() override {
    slow_->backend_name = "slow";
    slow_->cost_ns = [](uint64_t) -> uint64_t { return 300'000; };
    options_.backend_choices = "off";
    models::Backends backends;
    backends.add(models::make_fake_backend(slow_));
    backends.add(models::make_fake_backend(control_));
    start(std::move(backends));
  }
  std::shared_ptr<models::FakeControl> slow_ = std::make_shared<models::FakeControl>();
};

TEST_F(BackendChoiceTest, TheMetricsSayWhichBackendServesAndTheTimeOfEach) {
  const std::string text = get("/metrics").body;
  const std::string model = R"({model="plus_one",version="1",backend=)";
  EXPECT_NE(text.find("lumen_model_backend_info" + model + "\"fake\",precision=\"f32\"} 1\n"),
            text.npos)
      << text;
  EXPECT_EQ(text.find("lumen_model_backend_info" + model + "\"slow\""), text.npos);
  for (const char* rows : {"1", "16"}) {
    const std::string line =
        "lumen_model_backend_trial_seconds" + model + "\"slow\",rows=\"" + rows + "\"} ";
    const size_t at = text.find(line);
    ASSERT_NE(at, text.npos) << text;
    EXPECT_GE(std::stod(text.substr(at + line.size())), 300e-6);
  }
}

TEST_F(BackendChoiceTest, TheEnginesDocumentSaysWhichBackendServesAndCanBeSentBack) {
  HttpClient by_unix = unix_client();
  const HttpReply told = by_unix.exchange(get_request("/v2/lumen/engine"));
  ASSERT_EQ(told.status, 200) << told.body;
  EXPECT_NE(told.body.find(R"("models":[{"name":"plus_one","version":"1","backend":"fake",)"
                           R"("why":"faster: 1 row in )"),
            told.body.npos)
      << told.body;
  const HttpReply back = by_unix.exchange(post_request("/v2/lumen/engine", told.body));
  EXPECT_EQ(back.status, 200) << back.body;
  EXPECT_EQ(back.body, told.body);
}

}  // namespace
}  // namespace lumen::server
