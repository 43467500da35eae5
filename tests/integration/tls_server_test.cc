// Connections of TLS from several threads, while the certificate is read anew: for ThreadSanitizer
// and AddressSanitizer, with a backend that has no library.
#include <lumen/client/load_run.h>
#include <lumen/server/server.h>

#include "support/certificate_file.h"
#include "support/fake_backend.h"
#include "support/http_client.h"
#include "support/temp_repository.h"
#include "support/tls_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lumen::server {
namespace {

class TlsServer : public testing::Test {
 protected:
  TlsServer() {
    models_.add_model("m");
    ServerOptions options;
    options.http_address = "127.0.0.1:0";
    options.unix_path = models_.path() / "s.sock";
    options.model_repository = models_.path();
    options.io_thread_count = 2;
    options.max_active_requests = 16;
    options.max_connections = 32;
    options.tls_cert = files_.path() / "server.pem";
    test::write_certificate(options.tls_cert);
    auto started =
        Server::start(options, models::make_fake_backend(std::make_shared<models::FakeControl>()));
    if (!started.ok()) throw std::runtime_error(started.status().c_message());
    server_ = std::move(*started);
  }

  models::TempRepository models_;
  models::TempRepository files_;
  std::unique_ptr<Server> server_;
};

const std::string small = binary_infer("m", "x", std::string(16, '\0'));
const std::string large = binary_infer("m", "x", std::string(400'000, '\0'), 25'000);

TEST_F(TlsServer, ConnectionsComeAndGoWhileTheCertificateIsReadAnew) {
  constexpr int kClients = 6;
  constexpr int kConnections = 12;
  std::atomic<int> wrong{0};
  std::vector<std::thread> clients;
  clients.reserve(kClients);
  for (int number = 0; number < kClients; ++number) {
    clients.emplace_back([&] {
      for (int i = 0; i < kConnections; ++i) {
        TlsClient client(server_->http_address());
        if (!client.connect()) ++wrong;
        for (const std::string& request : {small, large, small}) {
          if (client.exchange(request) != 200) ++wrong;
        }
      }
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(server_->reload_tls().ok());
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(0, wrong.load());
  EXPECT_EQ(uint64_t{kClients} * kConnections, server_->counters().total("tls_handshakes"));
}

// The client of `lumen bench`: its threads share what OpenSSL keeps of a target.
TEST_F(TlsServer, ALoadOfSeveralThreadsIsAnswered) {
  for (const bool new_connection : {false, true}) {
    auto target = client::parse_target("https://" + server_->http_address());
    ASSERT_TRUE(target.ok());
    ASSERT_TRUE(client::set_tls(*target, {.ca = "none"}).ok());
    client::LoadPlan plan;
    plan.target = *target;
    plan.request = large;
    plan.clients = 6;
    plan.threads = 3;
    plan.requests = 60;
    plan.warm_up_requests = 0;
    plan.new_connection = new_connection;
    const std::atomic<bool> stop{false};
    const auto tally = client::run_load(plan, stop);
    EXPECT_EQ(tally->ok_count(), 60u) << tally->first_error;
    EXPECT_EQ(tally->failed_count(), 0u) << tally->first_error;
    EXPECT_EQ(tally->shortest_reply, tally->longest_reply);
    EXPECT_GT(tally->shortest_reply, 400'000u);
  }
}

}  // namespace
}  // namespace lumen::server
