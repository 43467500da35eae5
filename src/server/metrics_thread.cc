// See the header for threads, memory and errors.
#include "server/metrics_thread.h"

#include <lumen/base/cpu.h>
#include <lumen/telemetry/prometheus.h>

#include "server/exemplars.h"
#include "server/model_figures.h"
#include "server/triton_figures.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace lumen::server {
namespace {

// In the order of telemetry::MetricsFormat.
constexpr std::array kContentTypes = {telemetry::kPrometheusContentType,
                                      telemetry::kOpenMetricsContentType,
                                      telemetry::kMetricsProtobufContentType};

telemetry::MetricsFormat format_of(const service::Job& job) noexcept {
  using telemetry::MetricsFormat;
  if (job.text == service::kMetricsProtobuf) return MetricsFormat::kProtobuf;
  return job.text == service::kOpenMetrics ? MetricsFormat::kOpenMetrics
                                           : MetricsFormat::kPrometheus;
}

std::array<telemetry::PrometheusFigure, 4> span_figures(const otlp::SpanExporter& spans) {
  const otlp::SpanExporterCounters counters = spans.counters();
  const auto figure = [](std::string_view name, std::string_view help, uint64_t value) {
    return telemetry::PrometheusFigure{name, help, "counter", static_cast<double>(value)};
  };
  return {
      figure("lumen_otlp_records_exported_total",
             "Requests, and steps of ensembles, whose spans the collector has taken.",
             counters.exported),
      figure("lumen_otlp_records_dropped_total",
             "Requests and steps without spans, because the collector did not follow.",
             counters.dropped),
      figure("lumen_otlp_failures_total", "Attempts to send spans that failed.", counters.failures),
      figure("lumen_otlp_spans_rejected_total",
             "Spans that the collector refused of messages that it took.",
             counters.rejected_spans)};
}

}  // namespace

MetricsThread::MetricsThread(const service::Catalog& catalog, const telemetry::Counters& counters,
                             const answers::ResponseCache& cache,
                             const sequences::Sequences& sequences,
                             const telemetry::TraceLog* trace_log, const otlp::SpanExporter* spans)
    : catalog_(catalog),
      counters_(counters),
      cache_(cache),
      sequences_(sequences),
      trace_log_(trace_log),
      spans_(spans),
      thread_([this] { run(); }) {}

void MetricsThread::join() {
  jobs_.stop();
  if (thread_.joinable()) thread_.join();
}

void MetricsThread::run() {
  name_this_thread("lumen-metrics");
  while (service::Job* const first = jobs_.take_all()) answer(first);
}

void MetricsThread::answer(service::Job* first) {
  using telemetry::MetricsFormat;
  Status status;
  for (std::vector<char>& text : texts_) text.clear();
  for (service::Job* job = first; job != nullptr;) {
    service::Job* const next = job->next;
    const MetricsFormat format = format_of(*job);
    std::vector<char>& text = texts_[static_cast<size_t>(format)];
    try {
      if (text.empty() && status.ok()) render(format, text);
    } catch (const std::bad_alloc&) {
      status = Status::error(Code::kUnavailable, "the server has no memory left for its metrics");
    }
    job->content_type = kContentTypes[static_cast<size_t>(format)];
    job->status = status;
    if (status.ok()) job->answer({text.data(), text.size()});
    job->owner->on_done(*job);
    job = next;
  }
}

void MetricsThread::render(telemetry::MetricsFormat format, std::vector<char>& text) {
  std::vector<telemetry::PrometheusModel> listed;
  // Kept while it is rendered: so long no other model gets the index of one that goes.
  const std::shared_ptr<const service::CatalogSnapshot> catalog = catalog_.snapshot();
  for (const service::CatalogModel& entry : catalog->models) {
    const models::ModelMetadata& metadata = entry.model->metadata();
    listed.push_back({metadata.name, metadata.version, entry.model->index()});
  }
  const ModelFigures figures(*catalog, cache_, sequences_);
  const TritonFigures tritons(*catalog);
  if (!nvidia_) nvidia_.emplace();
  std::vector<telemetry::PrometheusFigure> all(figures.figures().begin(), figures.figures().end());
  std::ranges::copy(tritons.figures(), std::back_inserter(all));
  std::ranges::copy(nvidia_->read(), std::back_inserter(all));
  if (spans_ != nullptr) std::ranges::copy(span_figures(*spans_), std::back_inserter(all));
  telemetry::PrometheusInput input{.counters = counters_, .models = listed, .figures = all};
  if (trace_log_ != nullptr) input.trace = trace_log_->counters();
  input.format = format;
  std::vector<telemetry::PrometheusExemplar> exemplars;
  if (format != telemetry::MetricsFormat::kPrometheus) {
    exemplars = recent_exemplars(counters_, *catalog);
    input.exemplars = exemplars;
  }
  if (format == telemetry::MetricsFormat::kProtobuf) {
    return telemetry::write_prometheus_protobuf(input, text);
  }
  text.resize(telemetry::prometheus_size_bound(input));
  text.resize(telemetry::write_prometheus(input, text).value_or(0));
}

}  // namespace lumen::server
