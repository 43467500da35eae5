// What both forms of the metrics, text and protobuf, say: the figures of the trace log, and the
// stages' histograms gathered into buckets.
// Threads: any; the counters go on meanwhile. Memory: none. Errors: none.
#pragma once

#include <lumen/telemetry/prometheus.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lumen::telemetry {

inline constexpr std::string_view kStageFamily = "lumen_stage_duration_seconds";
inline constexpr std::string_view kStageHelp = "Time that requests spent in a stage.";

struct TraceFigure {
  std::string_view name;
  std::string_view help;
  uint64_t TraceLogCounters::* value;
};
inline constexpr std::array kTraceFigures = {
    TraceFigure{"lumen_trace_records_written_total", "Lines in the telemetry CSV.",
                &TraceLogCounters::written},
    TraceFigure{"lumen_trace_records_dropped_total",
                "Requests without a line in the telemetry CSV, because the disk didn't follow.",
                &TraceLogCounters::dropped},
    TraceFigure{"lumen_trace_traceparents_written_total",
                "Lines in the file of traceparents beside the telemetry CSV.",
                &TraceLogCounters::traceparents_written},
    TraceFigure{"lumen_trace_traceparents_dropped_total",
                "Requests with a traceparent without a line in that file, because the disk didn't "
                "follow.",
                &TraceLogCounters::traceparents_dropped},
    TraceFigure{"lumen_trace_write_errors_total", "Failed writes of the two files.",
                &TraceLogCounters::write_errors},
    TraceFigure{"lumen_trace_rotations_total", "Rotations of the two files.",
                &TraceLogCounters::rotations},
};

// A stage's counts of all shards by the histogram's own buckets, each read once.
using FineCounts = std::array<uint64_t, Histogram::kBuckets>;
// Empty shards are not looked at.
[[nodiscard]] FineCounts fine_counts(const StageHistograms& stages, size_t model,
                                     Stage stage) noexcept;

// The same under kPrometheusBoundsNs; the last is +Inf.
using CoarseCounts = std::array<uint64_t, kPrometheusBoundsNs.size() + 1>;
[[nodiscard]] CoarseCounts coarse_counts(const FineCounts& fine) noexcept;

// In ns.
[[nodiscard]] uint64_t sum_of(const StageHistograms& stages, size_t model, Stage stage) noexcept;

// The last that falls into a coarse bucket; nullptr: none does.
[[nodiscard]] const PrometheusExemplar* exemplar_in(std::span<const PrometheusExemplar> exemplars,
                                                    uint32_t model, size_t bucket) noexcept;

// In hexadecimal digits.
[[nodiscard]] std::array<char, 32> trace_id_text(const Traceparent& traceparent) noexcept;

}  // namespace lumen::telemetry
