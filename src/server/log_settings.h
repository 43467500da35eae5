// LogSettings: GET and POST /v2/logging, and the server's messages, switched by them. A setting
// that the server can't have is refused, not kept.
// Threads: handle() on the control plane; the Report that it makes by any. Memory: the heap.
// Errors: by the status of the job.
//
// Also the answer to /v2/trace/setting: the server writes no trace in Triton's form.
#pragma once

#include <lumen/server/server.h>
#include <lumen/service/catalog.h>
#include <lumen/service/job.h>

#include <atomic>

namespace lumen::server {

class LogSettings {
 public:
  explicit LogSettings(Report report) : report_(std::move(report)) {}
  LogSettings(const LogSettings&) = delete;
  LogSettings& operator=(const LogSettings&) = delete;

  // Passes on messages of a kind that is switched on. It uses this object.
  [[nodiscard]] Report report();
  void handle(service::Job& job);

 private:
  [[nodiscard]] bool has(LogLevel level) const noexcept;

  const Report report_;
  // relaxed wherever they are used: they order nothing
  std::atomic<bool> info_{true};
  std::atomic<bool> warning_{true};
  std::atomic<bool> error_{true};
};

void answer_trace(const service::CatalogSnapshot& catalog, service::Job& job);

}  // namespace lumen::server
