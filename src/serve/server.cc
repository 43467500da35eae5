// Start and drain: the wiring of repository, engine and I/O threads. Control thread only.
#include <lumen/serve/server.h>

#include "serve/documents.h"
#include "serve/io_thread.h"

#include <lumen/base/cpu.h>
#include <lumen/net/socket.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

namespace lumen::serve {
namespace {

class RunningServer final : public Server {
 public:
  explicit RunningServer(const ServerOptions& options) : options_(options) {}
  ~RunningServer() override { drain(); }

  Status start(std::unique_ptr<engine::Backend> backend);

  const std::string& http_address() const noexcept override { return http_address_; }
  const engine::ModelRepository& models() const noexcept override { return *repository_; }
  const telemetry::Counters& counters() const noexcept override { return *counters_; }
  void drain() noexcept override;

 private:
  // In order of construction: each may point to those above it.
  ServerOptions options_;
  std::string http_address_;
  std::unique_ptr<telemetry::Counters> counters_ = std::make_unique<telemetry::Counters>();
  std::unique_ptr<engine::ModelRepository> repository_;
  std::unique_ptr<Documents> documents_;
  std::unique_ptr<engine::Engine> engine_;
  std::vector<std::unique_ptr<IoThread>> io_threads_;
  std::vector<std::thread> threads_;
};

Status RunningServer::start(std::unique_ptr<engine::Backend> backend) {
  LUMEN_RETURN_IF_ERROR(validate_options(options_));
  // Sockets first: a port that is taken should not cost the loading of every model.
  Result<net::TcpAddress> address = net::parse_tcp_address(options_.http_address);
  if (!address.ok()) return address.status();
  std::vector<net::TcpListener> listeners;
  for (uint32_t i = 0; i < options_.io_thread_count; ++i) {
    Result<net::TcpListener> listener = net::listen_tcp(*address, options_.io_thread_count > 1);
    if (!listener.ok()) return listener.status();
    address->port = listener->address.port;
    listeners.push_back(std::move(*listener));
  }
  http_address_ = listeners.front().address.text();

  auto repository =
      engine::ModelRepository::open(options_.model_repository, std::move(backend), *counters_);
  if (!repository.ok()) return repository.status();
  repository_ = std::move(*repository);
  engine::EngineOptions engine_options;
  engine_options.engine.thread_count = options_.engine.thread_count;
  engine_options.engine.queue_capacity = options_.engine.queue_capacity;
  engine_options.server_counters = &counters_->server;
  auto engine = engine::Engine::create(engine_options, *repository_);
  if (!engine.ok()) return engine.status();
  engine_ = std::move(*engine);
  documents_ = std::make_unique<Documents>(*repository_);

  const Services services{options_, *repository_, *documents_, *engine_, counters_->server};
  for (net::TcpListener& listener : listeners) {
    auto io = IoThread::create(services, std::move(listener));
    if (!io.ok()) return io.status();
    io_threads_.push_back(std::move(*io));
  }
  for (auto& io : io_threads_) {
    threads_.emplace_back([&io, index = threads_.size()] {
      name_this_thread("lumen-io" + std::to_string(index));
      io->run();
    });
  }
  return {};
}

void RunningServer::drain() noexcept {
  for (auto& io : io_threads_) io->request_drain();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  // The I/O threads have answered everything they submitted, so the engine is empty by now.
  if (engine_ != nullptr) engine_->drain();
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options,
                                              std::unique_ptr<engine::Backend> backend) {
  // A client that closes early must be an error code, not the end of the process.
  (void)std::signal(SIGPIPE, SIG_IGN);
  auto server = std::make_unique<RunningServer>(options);
  LUMEN_RETURN_IF_ERROR(server->start(std::move(backend)));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace lumen::serve
