// Rendering of the exposition: one walk over all figures, which writes or only adds up the space.
// Threads: any. Memory: none. Errors: nullopt.
#include <lumen/telemetry/prometheus.h>

#include "telemetry/exposition.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>

namespace lumen::telemetry {
namespace {

constexpr size_t kMostNumberBytes = 32;  // 20 digits, or a double at its longest (24), or +Inf
constexpr uint64_t kNsPerSecond = 1'000'000'000;

// As Prometheus writes them itself, so that no two spellings of a bound make two series.
constexpr std::array<std::string_view, kPrometheusBoundsNs.size()> kBoundTexts = {
    "1e-06",  "2.5e-06", "5e-06",  "1e-05", "2.5e-05", "5e-05", "0.0001", "0.00025",
    "0.0005", "0.001",   "0.0025", "0.005", "0.01",    "0.025", "0.05",   "0.1",
    "0.25",   "0.5",     "1",      "2.5",   "5",       "10"};
// OpenMetrics writes whole bounds as floats, too.
constexpr std::string_view kWholeBound = ".0";

// Text into memory, or only its length: numbers then count as their longest.
class Sink {
 public:
  explicit Sink(MetricsFormat format) noexcept : format_(format), measures_(true) {}
  Sink(MetricsFormat format, std::span<char> out) noexcept : format_(format), out_(out) {}

  Sink& operator<<(std::string_view text) noexcept {
    if (!measures_ && size_ <= out_.size() && text.size() <= out_.size() - size_) {
      std::memcpy(out_.data() + size_, text.data(), text.size());
    } else if (!measures_) {
      overflown_ = true;
    }
    size_ += text.size();
    return *this;
  }
  // A figure that has to be added up first, which measuring does not need.
  template <typename Sum>
  Sink& sum(Sum&& sum) noexcept {
    return *this << (measures_ ? uint64_t{0} : sum());
  }
  Sink& operator<<(uint64_t value) noexcept {
    std::array<char, kMostNumberBytes> text;
    return number(text, std::to_chars(text.data(), text.data() + text.size(), value).ptr);
  }
  Sink& operator<<(double value) noexcept {
    if (std::isnan(value)) return *this << "NaN";
    if (std::isinf(value)) return *this << (value > 0 ? "+Inf" : "-Inf");
    std::array<char, kMostNumberBytes> text;
    return number(text, std::to_chars(text.data(), text.data() + text.size(), value).ptr);
  }
  // Exact to the nanosecond, which a double isn't after 100 days.
  Sink& seconds(uint64_t ns) noexcept {
    std::array<char, kMostNumberBytes> text;
    char* at = std::to_chars(text.data(), text.data() + 20, ns / kNsPerSecond).ptr;
    *at++ = '.';
    uint64_t rest = ns % kNsPerSecond;
    for (int i = 8; i >= 0; --i, rest /= 10) at[i] = static_cast<char>('0' + rest % 10);
    return number(text, at + 9);
  }
  Sink& escaped(std::string_view text, bool is_label) noexcept {
    for (const char& c : text) {
      if (c == '\\') {
        *this << "\\\\";
      } else if (c == '\n') {
        *this << "\\n";
      } else if (c == '"' && is_label) {
        *this << "\\\"";
      } else {
        *this << std::string_view(&c, 1);
      }
    }
    return *this;
  }

  [[nodiscard]] bool is_open_metrics() const noexcept {
    return format_ == MetricsFormat::kOpenMetrics;
  }
  [[nodiscard]] bool measures() const noexcept { return measures_; }
  [[nodiscard]] size_t size() const noexcept { return size_; }
  [[nodiscard]] bool overflown() const noexcept { return overflown_; }

 private:
  Sink& number(const std::array<char, kMostNumberBytes>& text, const char* end) noexcept {
    if (measures_) {
      size_ += kMostNumberBytes;
      return *this;
    }
    return *this << std::string_view(text.data(), static_cast<size_t>(end - text.data()));
  }

  const MetricsFormat format_;
  std::span<char> out_;
  size_t size_ = 0;
  bool measures_ = false;
  bool overflown_ = false;
};

constexpr std::string_view kCounter = "counter";

// In OpenMetrics a counter's samples are its family's name with "_total". Triton's counters have no
// such end, and keep their names: their type is unknown there.
void family(Sink& out, std::string_view name, std::string_view help, std::string_view type) {
  constexpr std::string_view kTotal = "_total";
  if (out.is_open_metrics() && type == kCounter) {
    if (name.ends_with(kTotal)) {
      name.remove_suffix(kTotal.size());
    } else {
      type = "unknown";
    }
  }
  out << "# HELP " << name << " ";
  out.escaped(help, out.is_open_metrics()) << "\n# TYPE " << name << " " << type << "\n";
}

void plain(Sink& out, std::string_view name, std::string_view help, std::string_view type,
           uint64_t value) {
  family(out, name, help, type);
  out << name << " " << value << "\n";
}

void model_labels(Sink& out, const PrometheusModel& model) {
  out << "{model=\"";
  out.escaped(model.name, true) << "\",version=\"";
  out.escaped(model.version, true) << "\"";
}

constexpr std::string_view type_of(CounterKind kind) {
  return kind == CounterKind::kCounter ? kCounter : "gauge";
}

void server_part(Sink& out, const Counters& counters) {
  std::string_view last;
  for (size_t i = 0; i < std::size(kServerCounters); ++i) {
    const CounterDescriptor& one = kServerCounters[i];
    if (one.series.empty()) continue;
    const std::string_view name = one.series.substr(0, one.series.find('{'));
    if (name != last) family(out, name, one.help, type_of(one.kind));
    last = name;
    (out << one.series << " ").sum([&] { return counters.total(ServerCounter(i)); }) << "\n";
  }
}

// One figure of every model: a family's lines must stand together.
void models_part(Sink& out, const PrometheusInput& input) {
  std::string_view last;
  for (size_t i = 0; i < std::size(kModelCounters); ++i) {
    const CounterDescriptor& one = kModelCounters[i];
    if (one.series.empty()) continue;
    // name{label="value"}: its own label goes behind the model's.
    const size_t brace = std::min(one.series.find('{'), one.series.size());
    const std::string_view name = one.series.substr(0, brace);
    const std::string_view label = one.series.substr(brace);
    if (name != last) family(out, name, one.help, type_of(one.kind));
    last = name;
    for (const PrometheusModel& model : input.models) {
      if (model.index >= limits::kMaxModels) continue;
      out << name;
      model_labels(out, model);
      if (!label.empty()) out << "," << label.substr(1, label.size() - 2);
      (out << "} ").sum([&] { return input.counters.total(model.index, ModelCounter(i)); }) << "\n";
    }
  }
}

void write_exemplar(Sink& out, const PrometheusExemplar& exemplar) {
  const std::array<char, 32> id = trace_id_text(exemplar.traceparent);
  out << " # {trace_id=\"" << std::string_view(id.data(), id.size()) << "\"} ";
  out.seconds(exemplar.total_ns) << " ";
  out.seconds(static_cast<uint64_t>(exemplar.wall_ns));
}

// Room for one in each bucket is reckoned with: which of them have one only writing sees.
void exemplar_of(Sink& out, std::span<const PrometheusExemplar> exemplars, uint32_t model,
                 size_t bucket) {
  if (out.measures()) return write_exemplar(out, {});
  const PrometheusExemplar* const one = exemplar_in(exemplars, model, bucket);
  if (one != nullptr) write_exemplar(out, *one);
}

void stage_lines(Sink& out, const PrometheusInput& input, const PrometheusModel& model,
                 Stage stage) {
  const StageHistograms& stages = input.counters.stages();
  const auto labels = [&](std::string_view suffix) {
    out << kStageFamily << suffix;
    model_labels(out, model);
    out << ",stage=\"" << kStageNames[static_cast<size_t>(stage)] << "\"";
  };
  const CoarseCounts counts =
      out.measures() ? CoarseCounts{} : coarse_counts(fine_counts(stages, model.index, stage));
  uint64_t below = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    below += counts[i];
    labels("_bucket");
    const std::string_view bound = i < kBoundTexts.size() ? kBoundTexts[i] : "+Inf";
    const bool is_whole = bound.find_first_not_of("0123456789") == bound.npos;
    out << ",le=\"" << bound << (out.is_open_metrics() && is_whole ? kWholeBound : "") << "\"} "
        << below;
    if (out.is_open_metrics() && stage == Stage::kTotal) {
      exemplar_of(out, input.exemplars, model.index, i);
    }
    out << "\n";
  }
  labels("_sum");
  (out << "} ").seconds(sum_of(stages, model.index, stage)) << "\n";
  labels("_count");
  out << "} " << below << "\n";
}

void stages_part(Sink& out, const PrometheusInput& input) {
  const StageHistograms& stages = input.counters.stages();
  family(out, kStageFamily, kStageHelp, "histogram");
  for (const PrometheusModel& model : input.models) {
    if (model.index >= stages.models()) continue;
    for (size_t i = 0; i < kStageCount; ++i) {
      stage_lines(out, input, model, static_cast<Stage>(i));
    }
  }
}

void trace_part(Sink& out, const TraceLogCounters& trace) {
  for (const TraceFigure& figure : kTraceFigures) {
    plain(out, figure.name, figure.help, kCounter, trace.*figure.value);
  }
}

void figures_part(Sink& out, std::span<const PrometheusFigure> figures) {
  std::string_view last;
  for (const PrometheusFigure& figure : figures) {
    if (figure.name != last) family(out, figure.name, figure.help, figure.type);
    last = figure.name;
    out << figure.name;
    for (const PrometheusLabel& label : figure.labels) {
      out << (&label == figure.labels.data() ? "{" : ",") << label.name << "=\"";
      out.escaped(label.value, true) << "\"";
    }
    out << (figure.labels.empty() ? " " : "} ") << figure.value << "\n";
  }
}

void render(Sink& out, const PrometheusInput& input) {
  server_part(out, input.counters);
  models_part(out, input);
  stages_part(out, input);
  if (input.trace.has_value()) trace_part(out, *input.trace);
  figures_part(out, input.figures);
  if (out.is_open_metrics()) out << "# EOF\n";
}

}  // namespace

std::optional<size_t> write_prometheus(const PrometheusInput& input, std::span<char> out) noexcept {
  Sink sink(input.format, out);
  render(sink, input);
  if (sink.overflown()) return std::nullopt;
  return sink.size();
}

size_t prometheus_size_bound(const PrometheusInput& input) noexcept {
  Sink sink(input.format);
  render(sink, input);
  return sink.size();
}

}  // namespace lumen::telemetry
