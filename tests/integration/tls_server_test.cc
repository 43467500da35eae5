// Connections of TLS from several threads, while the certificate is read anew: for ThreadSanitizer
// and AddressSanitizer, with a backend that has no library.
#include <lumen/server/server.h>

#include "support/certificate_file.h"
#include "support/fake_backend.h"
#include "support/http_client.h"
#include "support/temp_repository.h"
#include "support/tls_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lumen::server {
namespace {

TEST(TlsServer, ConnectionsComeAndGoWhileTheCertificateIsReadAnew) {
  constexpr int kClients = 6;
  constexpr int kConnections = 12;
  models::TempRepository models;
  models.add_model("m");
  ServerOptions options;
  options.http_address = "127.0.0.1:0";
  options.unix_path = models.path() / "s.sock";
  options.model_repository = models.path();
  options.io_thread_count = 2;
  options.max_active_requests = 16;
  options.max_connections = 32;
  const models::TempRepository files;
  options.tls_cert = files.path() / "server.pem";
  test::write_certificate(options.tls_cert);
  auto started =
      Server::start(options, models::make_fake_backend(std::make_shared<models::FakeControl>()));
  ASSERT_TRUE(started.ok()) << started.status().message();
  const std::unique_ptr<Server> server = std::move(*started);
  const std::string small = binary_infer("m", "x", std::string(16, '\0'));
  const std::string large = binary_infer("m", "x", std::string(400'000, '\0'), 25'000);

  std::atomic<int> wrong{0};
  std::vector<std::thread> clients;
  clients.reserve(kClients);
  for (int number = 0; number < kClients; ++number) {
    clients.emplace_back([&] {
      for (int i = 0; i < kConnections; ++i) {
        TlsClient client(server->http_address());
        if (!client.connect()) ++wrong;
        for (const std::string& request : {small, large, small}) {
          if (client.exchange(request) != 200) ++wrong;
        }
      }
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(server->reload_tls().ok());
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(0, wrong.load());
  EXPECT_EQ(uint64_t{kClients} * kConnections, server->counters().total("tls_handshakes"));
}

}  // namespace
}  // namespace lumen::server
