// SharedRegions: the clients' regions of system shared memory: GET status, POST register and
// unregister, as Triton has them; each user's own alone. Requests find them in the catalog.
// Threads: the control plane, one. Memory: the heap, and the mappings. Errors: by the status of the
// job.
#pragma once

#include <lumen/server/server.h>
#include <lumen/service/catalog.h>
#include <lumen/service/job.h>

#include <cstdint>
#include <string>

namespace lumen::server {

class SharedRegions {
 public:
  SharedRegions(service::Catalog& catalog, Report report, const ServerOptions& options)
      : catalog_(catalog),
        report_(std::move(report)),
        key_prefix_(options.shm_key_prefix),
        user_bytes_(options.shm_user_bytes) {}

  void handle(service::Job& job);

 private:
  [[nodiscard]] Status tell(service::Job& job) const;
  [[nodiscard]] Status enter(const service::Job& job);
  [[nodiscard]] Status leave(const service::Job& job);

  service::Catalog& catalog_;
  const Report report_;
  const std::string key_prefix_;
  const uint64_t user_bytes_;
};

}  // namespace lumen::server
