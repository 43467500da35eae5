// FakeServer: the fixture of tests that talk to a whole server over the fake backend, whose
// repository holds the model "plus_one". A test adds models and changes options before start().
// Threads: the test's; the server makes its own. Memory: the heap. Errors: failed expectations.
#pragma once

#include <lumen/server/server.h>

#include "support/fake_backend.h"
#include "support/http_client.h"
#include "support/temp_repository.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace lumen::server {

class FakeServer : public testing::Test {
 protected:
  FakeServer() {
    repository_.add_model("plus_one");
    options_.http_address = "127.0.0.1:0";
    options_.unix_path = (repository_.path() / "lumen.sock").string();
    options_.model_repository = repository_.path();
    options_.max_connections = 64;
    options_.max_active_requests = 16;
    options_.max_body_bytes = 64 * 1024;
    // Tests hold the fake model, which a worker may wait for and an I/O thread may not.
    options_.engine.queue_type = models::QueueType::kMpmc;
  }
  void TearDown() override { control_->release(); }

  void start(models::Backends backends) {
    server_ = nullptr;  // one before it ends first
    auto server = Server::start(options_, std::move(backends));
    // An assertion would end this function alone, and the test would go on without a server.
    if (!server.ok()) throw std::runtime_error(server.status().c_message());
    server_ = std::move(*server);
  }
  void start() { start(models::make_fake_backend(control_)); }

  [[nodiscard]] HttpClient client() const { return HttpClient(server_->http_address()); }
  [[nodiscard]] HttpClient unix_client() const {
    return HttpClient::over_unix(server_->unix_path());
  }
  [[nodiscard]] HttpReply get(const std::string& path) const {
    return client().exchange(get_request(path));
  }
  [[nodiscard]] uint64_t total(telemetry::ServerCounter counter) const {
    return server_->counters().total(counter);
  }

  models::TempRepository repository_;
  std::shared_ptr<models::FakeControl> control_ = std::make_shared<models::FakeControl>();
  ServerOptions options_;
  std::unique_ptr<Server> server_;
};

}  // namespace lumen::server
