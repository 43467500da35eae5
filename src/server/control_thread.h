// ControlThread: does work for clients that may lock, allocate and take long: telling and changing
// the engine's configuration, recordings. The I/O threads go on meanwhile.
// Threads: submit() from any I/O thread; everything else by the thread that owns it.
// Memory: the heap. Errors: by the status of the job.
#pragma once

#include "server/recordings.h"

#include <lumen/engine/engine.h>
#include <lumen/server/server.h>
#include <lumen/service/catalog.h>
#include <lumen/service/job.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace lumen::server {

class ControlThread final : public service::JobThread {
 public:
  // `options`: as the server was started with them. `sampler`: as Recordings says.
  ControlThread(engine::Engine& engine, const service::Catalog& catalog,
                service::RowSampler* sampler, const Report& report, const ServerOptions& options);
  ~ControlThread() { join(); }
  ControlThread(const ControlThread&) = delete;
  ControlThread& operator=(const ControlThread&) = delete;

  void submit(service::Job& job) noexcept override;
  // After the I/O threads have ended. Idempotent.
  void join();

 private:
  void run();
  // Until there is a job, or none comes any more; meanwhile recordings expire.
  void wait(std::unique_lock<std::mutex>& lock);
  void handle(service::Job& job);
  void handle_engine(service::Job& job);
  // Writes the answer: the engine's configuration and which backend serves each model.
  void tell(service::Job& job);
  [[nodiscard]] Status change(const service::Job& job);

  engine::Engine& engine_;
  const service::Catalog& catalog_;
  const Report report_;
  const ServerOptions& options_;
  Recordings recordings_;  // the thread's own
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<service::Job*> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lumen::server
