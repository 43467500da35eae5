// Control: the work for clients that may lock and allocate, but does not load models: telling and
// changing settings, recordings, shared memory, the index of the repository. The I/O threads go on
// meanwhile.
// Threads: its JobQueue's. Memory: the heap. Errors: by the status of the job.
#pragma once

#include "server/job_queue.h"
#include "server/log_settings.h"
#include "server/recordings.h"
#include "server/shared_regions.h"

#include <lumen/engine/engine.h>
#include <lumen/server/server.h>
#include <lumen/service/catalog.h>
#include <lumen/service/job.h>

namespace lumen::server {

class Control final : public JobHandler {
 public:
  // `options`: as the server was started with them. `sampler`: as Recordings says.
  Control(engine::Engine& engine, service::Catalog& catalog,
          const models::ModelRepository& repository, service::RowSampler* sampler, LogSettings& log,
          const ServerOptions& options);

  void handle(service::Job& job) override;
  [[nodiscard]] uint64_t next_ns() const override { return recordings_.expires_ns(); }
  void on_time() override { recordings_.expire(); }

 private:
  void handle_engine(service::Job& job);
  // Writes the answer: the engine's configuration and which backend serves each model.
  void tell(service::Job& job);
  [[nodiscard]] Status change(const service::Job& job);
  [[nodiscard]] Status tell_of_models(service::Job& job) const;

  engine::Engine& engine_;
  const service::Catalog& catalog_;
  const models::ModelRepository& repository_;
  LogSettings& log_;
  const Report report_;
  const ServerOptions& options_;
  Recordings recordings_;
  SharedRegions regions_;
};

}  // namespace lumen::server
