// prometheus: Lumen's counters as Prometheus' text format 0.0.4, as OpenMetrics 1.0 with exemplars,
// or as Prometheus' protobuf messages with native histograms too. docs/formats/metrics.md lists
// them.
// Threads: any; reads counters that others go on writing. Memory: none for the texts, which are
// written into the caller's; the heap for the messages.
// Errors: nullopt when the text doesn't fit; prometheus_size_bound() tells a size that always fits.
#pragma once

#include <lumen/base/traceparent.h>
#include <lumen/telemetry/counters.h>
#include <lumen/telemetry/trace_log.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lumen::telemetry {

inline constexpr std::string_view kPrometheusContentType =
    "text/plain; version=0.0.4; charset=utf-8";
inline constexpr std::string_view kOpenMetricsContentType =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

inline constexpr std::string_view kMetricsProtobufContentType =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

enum class MetricsFormat : uint8_t { kPrometheus, kOpenMetrics, kProtobuf };

// Upper bounds of the buckets of lumen_stage_duration_seconds: 1, 2.5, 5 a decade; +Inf follows.
inline constexpr std::array<uint64_t, 22> kPrometheusBoundsNs = {
    1'000,         2'500,         5'000,         10'000,        25'000,      50'000,
    100'000,       250'000,       500'000,       1'000'000,     2'500'000,   5'000'000,
    10'000'000,    25'000'000,    50'000'000,    100'000'000,   250'000'000, 500'000'000,
    1'000'000'000, 2'500'000'000, 5'000'000'000, 10'000'000'000};

struct PrometheusModel {
  std::string_view name;
  std::string_view version;
  uint32_t index = 0;  // by which Counters know it
};

struct PrometheusLabel {
  std::string_view name;
  std::string_view value;
};

// A figure of the caller's own. Those of one name stand one behind the other; the first one's help
// and type count.
struct PrometheusFigure {
  std::string_view name;  // [a-zA-Z_:][a-zA-Z0-9_:]*
  std::string_view help;
  std::string_view type;  // "gauge" or "counter"
  double value = 0;
  std::span<const PrometheusLabel> labels = {};
};

// A request whose client has told its trace: for the bucket of `total` that it falls into.
struct PrometheusExemplar {
  uint32_t model = 0;  // its index
  uint64_t total_ns = 0;
  int64_t wall_ns = 0;  // since the epoch, when it was received
  Traceparent traceparent{};
};

struct PrometheusInput {
  const Counters& counters;
  std::span<const PrometheusModel> models = {};
  std::optional<TraceLogCounters> trace = std::nullopt;
  std::span<const PrometheusFigure> figures = {};
  MetricsFormat format = MetricsFormat::kPrometheus;  // of the texts
  // With kOpenMetrics and in messages; of those of one bucket the last.
  std::span<const PrometheusExemplar> exemplars = {};
};

// How many bytes of `out` were written. Well-formed at any moment: a histogram's _count is the sum
// of the buckets that were read, also while others record; _sum may be that of a moment later.
[[nodiscard]] std::optional<size_t> write_prometheus(const PrometheusInput& input,
                                                     std::span<char> out) noexcept;

// Behind the content of `out`, the messages of the families, each behind its length. Well-formed at
// any moment, too.
void write_prometheus_protobuf(const PrometheusInput& input, std::vector<char>& out);

// For any values: it holds for these models and figures with these labels.
[[nodiscard]] size_t prometheus_size_bound(const PrometheusInput& input) noexcept;

}  // namespace lumen::telemetry
