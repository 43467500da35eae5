// ModelLoader: models that come and go: load and unload calls, and the poll of the repository.
// Threads: its JobQueue's. Memory: the heap. Errors: by the status of the job; those of the poll go
// to the log.
#pragma once

#include "server/call_files.h"
#include "server/job_queue.h"

#include <lumen/models/model_repository.h>
#include <lumen/server/server.h>
#include <lumen/service/catalog.h>
#include <lumen/service/job.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lumen::server {

class ModelLoader final : public JobHandler {
 public:
  ModelLoader(service::Catalog& catalog, models::ModelRepository& repository, Report report,
              const ServerOptions& options);

  void handle(service::Job& job) override;
  [[nodiscard]] uint64_t next_ns() const override { return next_look_ns_; }
  void on_time() override;

 private:
  // By name: the files of all its versions.
  using Stamps = std::map<std::string, std::string>;

  [[nodiscard]] Status change(const service::Job& job);
  // Loads the model from the repository, or from `files`. These take the place of those from an
  // earlier call once all of its versions are loaded.
  [[nodiscard]] Status reload(const std::string& name, const std::string* config,
                              std::unique_ptr<CallFiles> files);
  using Versions = std::vector<models::ModelRepository::OnDisk>;
  // Whether one of them is served as it was then.
  [[nodiscard]] bool is_served(const Versions& versions) const;
  [[nodiscard]] Status unload(const std::string& name);
  [[nodiscard]] Result<Stamps> look() const;
  void load(const std::string& name);

  service::Catalog& catalog_;
  models::ModelRepository& repository_;
  const Report report_;
  const ModelControl control_;
  const bool takes_files_;
  const uint64_t interval_ns_;
  uint64_t next_look_ns_ = UINT64_MAX;
  Stamps seen_;          // at the last look
  Stamps taken_;         // that are served, or were refused
  std::string problem_;  // of the last look
  // The files of a model that came with load calls.
  struct Kept {
    std::unique_ptr<CallFiles> counted;  // that a load without files would end; nullptr: none
    // Of calls that failed for one version, and whose other versions are served.
    std::vector<std::pair<std::unique_ptr<CallFiles>, Versions>> in_use;
  };
  std::map<std::string, Kept> files_;  // by model
};

}  // namespace lumen::server
