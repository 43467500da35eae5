// MetricsThread: answers GET /metrics, away from the I/O threads and from changes of the
// configuration, which may compile for seconds. The text is rendered once for all scrapes that
// wait and want the same format.
// Threads: submit() from any I/O thread, lock-free; everything else by the thread that owns it.
// Memory: the heap, for one text; each scrape's copy comes from its job's memory, whose owner
// bounds how many can wait. Errors: by the status of the job.
#pragma once

#include <lumen/answers/response_cache.h>
#include <lumen/otlp/span_exporter.h>
#include <lumen/sequences/sequences.h>
#include <lumen/service/catalog.h>
#include <lumen/service/job.h>
#include <lumen/telemetry/counters.h>
#include <lumen/telemetry/prometheus.h>
#include <lumen/telemetry/trace_log.h>

#include <lumen/base/job_stack.h>
#include "server/nvidia_figures.h"

#include <array>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

namespace lumen::server {

class MetricsThread final : public service::JobThread {
 public:
  // `trace_log`, `spans`: nullptr where there are none.
  MetricsThread(const service::Catalog& catalog, const telemetry::Counters& counters,
                const answers::ResponseCache& cache, const sequences::Sequences& sequences,
                const telemetry::TraceLog* trace_log, const otlp::SpanExporter* spans);
  ~MetricsThread() { join(); }
  MetricsThread(const MetricsThread&) = delete;
  MetricsThread& operator=(const MetricsThread&) = delete;

  void submit(service::Job& job) noexcept override { jobs_.push(job); }
  // After the I/O threads have ended. Idempotent.
  void join();

 private:
  void run();
  void answer(service::Job* first);
  // The metrics in each format that one of the jobs wants, by MetricsFormat.
  using Texts = std::array<std::vector<char>, 3>;
  void render(telemetry::MetricsFormat format, std::vector<char>& text);

  const service::Catalog& catalog_;
  const telemetry::Counters& counters_;
  const answers::ResponseCache& cache_;
  const sequences::Sequences& sequences_;
  const telemetry::TraceLog* trace_log_;
  const otlp::SpanExporter* spans_;
  std::optional<NvidiaFigures> nvidia_;  // from the first scrape on
  Texts texts_;
  JobStack<service::Job> jobs_;
  std::thread thread_;
};

}  // namespace lumen::server
