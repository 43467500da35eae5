// ControlThread: does for connections what may lock, allocate and take long: telling and changing the
// engine's configuration. The I/O threads go on meanwhile.
// Threads: submit() from any I/O thread; everything else by the thread that owns it.
// Memory: the heap. Errors: by the status of the request that it is given.
#pragma once

#include "serve/request_context.h"

#include <lumen/engine/engine.h>
#include <lumen/net/loop.h>
#include <lumen/serve/server.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

namespace lumen::serve {

class ControlThread {
 public:
  // `options`: as the server was started with them.
  ControlThread(engine::Engine& engine, Report report, const ServerOptions& options);
  ~ControlThread() { join(); }
  ControlThread(const ControlThread&) = delete;
  ControlThread& operator=(const ControlThread&) = delete;

  // `body` lies in the context's memory; empty: only tell. The context goes back by IoThread::post(),
  // with infer.status and document set. `peer`: who asks, for the report.
  void submit(RequestContext& context, std::string_view body,
              std::optional<net::PeerCredentials> peer);
  // After the I/O threads have ended. Idempotent.
  void join();

 private:
  struct Job {
    RequestContext* context;
    std::string_view body;
    std::optional<net::PeerCredentials> peer;
  };
  void run();
  void handle(const Job& job);
  [[nodiscard]] Status change(const Job& job);

  engine::Engine& engine_;
  const Report report_;
  const ServerOptions& options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lumen::serve
