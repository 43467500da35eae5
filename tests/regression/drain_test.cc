// Regressions of starting and draining a whole server, over the fake backend.
// Threads: the test's; the server makes its own. Memory: the heap. Errors: failed expectations.
#include <lumen/serve/server.h>

#include "support/fake_backend.h"
#include "support/http_client.h"
#include "support/temp_repository.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace lumen::serve {
namespace {

// A drain asked for between the I/O thread's look at the flag and its sleep found nobody to wake,
// and the loop slept on it: a hang about once in 60 starts. A hang here is the test's time limit.
TEST(Drain, EndsAServerThatHasOnlyJustStarted) {
  const engine::TempRepository repository;
  repository.add_model("m");
  ServerOptions options;
  options.http_address = "127.0.0.1:0";
  options.model_repository = repository.path();
  options.max_connections = 4;
  options.max_active_requests = 4;
  for (int i = 0; i < 500; ++i) {
    auto control = std::make_shared<engine::FakeControl>();
    auto server = Server::start(options, engine::make_fake_backend(control));
    ASSERT_TRUE(server.ok()) << server.status().message();
    (*server)->drain();
  }
}

// Was: with `inline` and a backend that answers later, the reply could be out and the I/O thread gone
// before the backend's callback had ended, and the drain waited for that thread. By chance here; step by
// step in inline_test.cc.
TEST(Drain, EndsAServerRightAfterAReplyOfABackendThatAnswersLater) {
  const engine::TempRepository repository;
  repository.add_model("m");
  ServerOptions options;
  options.http_address = "127.0.0.1:0";
  options.unix_path = "off";
  options.model_repository = repository.path();
  options.max_connections = 4;
  options.max_active_requests = 4;
  options.engine.queue_type = engine::QueueType::kInline;
  for (int i = 0; i < 200; ++i) {
    auto control = std::make_shared<engine::FakeControl>();
    control->asynchronous = true;
    auto server = Server::start(options, engine::make_fake_backend(control));
    ASSERT_TRUE(server.ok()) << server.status().message();
    HttpClient http((*server)->http_address());
    EXPECT_EQ(200, http.exchange(binary_infer("m", "x", std::string(16, '\0'))).status);
    http.close();
    (*server)->drain();
  }
}

}  // namespace
}  // namespace lumen::serve
