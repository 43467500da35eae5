// The metrics as Prometheus' protobuf messages (io.prometheus.client.MetricFamily of
// prometheus/client_model, each behind its length), which alone carry native histograms.
// Threads: any. Memory: the heap. Errors: std::bad_alloc.
#include <lumen/telemetry/prometheus.h>
#include <lumen/telemetry/protobuf_message.h>

#include "telemetry/exposition.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <string>

namespace lumen::telemetry {
namespace {

using Message = ProtobufMessage;

// Field numbers of metrics.proto.
namespace field {
enum Family : uint32_t { kName = 1, kHelp = 2, kType = 3, kMetric = 4 };
enum Metric : uint32_t { kLabel = 1, kGauge = 2, kCounter = 3, kHistogram = 7 };
enum Value : uint32_t { kValue = 1 };  // of Gauge and Counter
enum Label : uint32_t { kLabelName = 1, kLabelValue = 2 };
enum HistogramField : uint32_t {
  kSampleCount = 1,
  kSampleSum = 2,
  kBucket = 3,
  kSchema = 5,
  kZeroThreshold = 6,
  kZeroCount = 7,
  kPositiveSpan = 12,
  kPositiveDelta = 13,
};
enum Bucket : uint32_t { kCumulativeCount = 1, kUpperBound = 2, kExemplar = 3 };
enum Exemplar : uint32_t { kExemplarLabel = 1, kExemplarValue = 2, kExemplarTime = 3 };
enum Time : uint32_t { kSeconds = 1, kNanos = 2 };
enum Span : uint32_t { kOffset = 1, kLength = 2 };
}  // namespace field

enum Type : uint64_t { kTypeCounter = 0, kTypeGauge = 1, kTypeHistogram = 4 };
constexpr double kNsPerSecond = 1e9;
constexpr uint64_t kNsPerSecondWhole = 1'000'000'000;

void label(Message& metric, std::string_view name, std::string_view value) {
  metric.message(field::kLabel,
                 Message().text(field::kLabelName, name).text(field::kLabelValue, value));
}

void model_labels(Message& metric, const PrometheusModel& model) {
  label(metric, "model", model.name);
  label(metric, "version", model.version);
}

// name{label="value"}: its only label.
void series_label(Message& metric, std::string_view series) {
  const size_t brace = series.find('{');
  if (brace == series.npos) return;
  const size_t equals = series.find("=\"", brace);
  label(metric, series.substr(brace + 1, equals - brace - 1),
        series.substr(equals + 2, series.size() - equals - 4));
}

// The messages of one family behind one another.
class Families {
 public:
  explicit Families(std::vector<char>& out) noexcept : out_(out) {}
  ~Families() = default;
  Families(const Families&) = delete;
  Families& operator=(const Families&) = delete;

  // Of a family that may be the last one's: its own is begun where it isn't.
  void add(std::string_view name, std::string_view help, Type type, const Message& metric) {
    if (name != name_) {
      end();
      name_ = name;
      family_ = Message();
      family_.text(field::kName, name).text(field::kHelp, help).varint(field::kType, type);
    }
    family_.message(field::kMetric, metric);
  }
  void end() {
    if (name_.empty()) return;
    const std::string length = Message().raw(family_.bytes().size()).bytes();
    out_.insert(out_.end(), length.begin(), length.end());
    out_.insert(out_.end(), family_.bytes().begin(), family_.bytes().end());
    name_ = {};
  }

 private:
  std::vector<char>& out_;
  std::string_view name_;
  Message family_;
};

void set_value(Message& metric, Type type, double value) {
  metric.message(type == kTypeCounter ? field::kCounter : field::kGauge,
                 Message().real(field::kValue, value));
}

Type type_of(CounterKind kind) noexcept {
  return kind == CounterKind::kCounter ? kTypeCounter : kTypeGauge;
}

void server_part(Families& out, const Counters& counters) {
  for (size_t i = 0; i < std::size(kServerCounters); ++i) {
    const CounterDescriptor& one = kServerCounters[i];
    if (one.series.empty()) continue;
    Message metric;
    series_label(metric, one.series);
    set_value(metric, type_of(one.kind), static_cast<double>(counters.total(ServerCounter(i))));
    out.add(one.series.substr(0, one.series.find('{')), one.help, type_of(one.kind), metric);
  }
}

void models_part(Families& out, const PrometheusInput& input) {
  for (size_t i = 0; i < std::size(kModelCounters); ++i) {
    const CounterDescriptor& one = kModelCounters[i];
    if (one.series.empty()) continue;
    for (const PrometheusModel& model : input.models) {
      if (model.index >= limits::kMaxModels) continue;
      Message metric;
      model_labels(metric, model);
      series_label(metric, one.series);
      const uint64_t value = input.counters.total(model.index, ModelCounter(i));
      set_value(metric, type_of(one.kind), static_cast<double>(value));
      out.add(one.series.substr(0, one.series.find('{')), one.help, type_of(one.kind), metric);
    }
  }
}

Message exemplar_of(const PrometheusExemplar& exemplar) {
  const std::array<char, 32> id = trace_id_text(exemplar.traceparent);
  const auto wall = static_cast<uint64_t>(exemplar.wall_ns);
  Message made;
  made.message(field::kExemplarLabel, Message()
                                          .text(field::kLabelName, "trace_id")
                                          .text(field::kLabelValue, {id.data(), id.size()}));
  made.real(field::kExemplarValue, static_cast<double>(exemplar.total_ns) / kNsPerSecond);
  made.message(field::kExemplarTime, Message()
                                         .varint(field::kSeconds, wall / kNsPerSecondWhole)
                                         .varint(field::kNanos, wall % kNsPerSecondWhole));
  return made;
}

// Native buckets of schema 3: eight to a power of two, bucket i from 2^((i-1)/8) to 2^(i/8) s, its
// end included. They are 9 % wide, so the histogram's own, of 1.6 %, fall into one each but for
// those at a bound.
constexpr int kSchema = 3;
constexpr int kLeastIndex = -240;  // 1 ns is in -239
constexpr int kMostIndex = 88;     // Histogram::kMaxValue is in 81
using NativeCounts = std::array<uint64_t, kMostIndex - kLeastIndex + 1>;
// Below it Prometheus' own clients count a value as zero: 2^-128.
constexpr double kZeroThreshold = 2.938735877055719e-39;

// The places in NativeCounts of the histogram's buckets; of 0 ns it has none.
const std::array<uint16_t, Histogram::kBuckets>& native_places() {
  static const std::array<uint16_t, Histogram::kBuckets> kPlaces = [] {
    std::array<uint16_t, Histogram::kBuckets> places{};
    for (size_t i = 1; i < places.size(); ++i) {
      const double middle = static_cast<double>(Histogram::lowest_of(i)) +
                            static_cast<double>(Histogram::width_of(i) - 1) / 2;
      const double index = std::ceil(std::ldexp(std::log2(middle / kNsPerSecond), kSchema));
      places[i] = static_cast<uint16_t>(static_cast<int>(index) - kLeastIndex);
    }
    return places;
  }();
  return kPlaces;
}

void add_native(Message& histogram, const FineCounts& fine) {
  NativeCounts counts{};
  const auto& places = native_places();
  for (size_t i = 1; i < fine.size(); ++i) counts[places[i]] += fine[i];
  histogram.zigzag(field::kSchema, kSchema).real(field::kZeroThreshold, kZeroThreshold);
  histogram.varint(field::kZeroCount, fine[0]);
  int64_t last = 0;
  int end = 0;  // of the span before: its offset is from 0
  const auto at = [&](int index) { return counts[static_cast<size_t>(index - kLeastIndex)]; };
  for (int index = kLeastIndex; index <= kMostIndex; ++index) {
    if (at(index) == 0) continue;
    const int first = index;
    for (; index <= kMostIndex && at(index) != 0; ++index) {
      const auto count = static_cast<int64_t>(at(index));
      histogram.zigzag(field::kPositiveDelta, count - last);
      last = count;
    }
    Message span;
    span.zigzag(field::kOffset, first - end);
    span.varint(field::kLength, static_cast<uint64_t>(index - first));
    histogram.message(field::kPositiveSpan, span);
    end = index;
  }
  // Without a span a scraper takes an empty histogram for a classic one.
  if (end == 0) {
    histogram.message(field::kPositiveSpan,
                      Message().zigzag(field::kOffset, 0).varint(field::kLength, 0));
  }
}

Message stage_metric(const PrometheusInput& input, const PrometheusModel& model, Stage stage) {
  const StageHistograms& stages = input.counters.stages();
  const FineCounts fine = fine_counts(stages, model.index, stage);
  const CoarseCounts coarse = coarse_counts(fine);
  Message histogram;
  uint64_t below = 0;
  for (size_t i = 0; i < coarse.size(); ++i) {
    below += coarse[i];
    const bool is_last = i == kPrometheusBoundsNs.size();
    Message bucket;
    bucket.varint(field::kCumulativeCount, below);
    bucket.real(field::kUpperBound,
                is_last ? HUGE_VAL : static_cast<double>(kPrometheusBoundsNs[i]) / kNsPerSecond);
    const PrometheusExemplar* const exemplar =
        stage == Stage::kTotal ? exemplar_in(input.exemplars, model.index, i) : nullptr;
    if (exemplar != nullptr) bucket.message(field::kExemplar, exemplar_of(*exemplar));
    histogram.message(field::kBucket, bucket);
  }
  histogram.varint(field::kSampleCount, below);
  const auto sum_ns = static_cast<double>(sum_of(stages, model.index, stage));
  histogram.real(field::kSampleSum, sum_ns / kNsPerSecond);
  add_native(histogram, fine);
  Message metric;
  model_labels(metric, model);
  label(metric, "stage", kStageNames[static_cast<size_t>(stage)]);
  metric.message(field::kHistogram, histogram);
  return metric;
}

void stages_part(Families& out, const PrometheusInput& input) {
  for (const PrometheusModel& model : input.models) {
    if (model.index >= input.counters.stages().models()) continue;
    for (size_t i = 0; i < kStageCount; ++i) {
      out.add(kStageFamily, kStageHelp, kTypeHistogram,
              stage_metric(input, model, static_cast<Stage>(i)));
    }
  }
}

void trace_part(Families& out, const TraceLogCounters& trace) {
  for (const TraceFigure& figure : kTraceFigures) {
    Message metric;
    set_value(metric, kTypeCounter, static_cast<double>(trace.*figure.value));
    out.add(figure.name, figure.help, kTypeCounter, metric);
  }
}

void figures_part(Families& out, std::span<const PrometheusFigure> figures) {
  for (const PrometheusFigure& figure : figures) {
    const Type type = figure.type == "counter" ? kTypeCounter : kTypeGauge;
    Message metric;
    for (const PrometheusLabel& one : figure.labels) label(metric, one.name, one.value);
    set_value(metric, type, figure.value);
    out.add(figure.name, figure.help, type, metric);
  }
}

}  // namespace

void write_prometheus_protobuf(const PrometheusInput& input, std::vector<char>& out) {
  Families families(out);
  server_part(families, input.counters);
  models_part(families, input);
  stages_part(families, input);
  if (input.trace.has_value()) trace_part(families, *input.trace);
  figures_part(families, input.figures);
  families.end();
}

}  // namespace lumen::telemetry
