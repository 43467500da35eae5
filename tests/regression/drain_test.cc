// Regressions of starting and draining a whole server, over the fake backend.
// Threads: the test's; the server makes its own. Memory: the heap. Errors: failed expectations.
#include "support/fake_server.h"

#include <gtest/gtest.h>

#include <string>

namespace lumen::server {
namespace {

using Drain = FakeServer;

// A drain asked for between the I/O thread's look at the flag and its sleep found nobody to wake,
// and the loop slept on it: a hang about once in 60 starts. A hang here is the test's time limit.
// 200 starts would have met it in 97 of 100 runs; each costs 0.1 s.
TEST_F(Drain, EndsAServerThatHasOnlyJustStarted) {
  for (int i = 0; i < 200; ++i) {
    start();
    server_->drain();
  }
}

// Was: with `inline` and a backend that answers later, the reply could be out and the I/O thread
// gone before the backend's callback had ended, and the drain waited for that thread. By chance
// here; step by step in inline_test.cc.
TEST_F(Drain, EndsAServerRightAfterAReplyOfABackendThatAnswersLater) {
  options_.engine.queue_type = models::QueueType::kInline;
  control_->asynchronous = true;
  for (int i = 0; i < 80; ++i) {
    start();
    HttpClient http = client();
    EXPECT_EQ(200, http.exchange(binary_infer("plus_one", "x", std::string(16, '\0'))).status);
    http.close();
    server_->drain();
  }
}

}  // namespace
}  // namespace lumen::server
