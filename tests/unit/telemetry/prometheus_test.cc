// The exposition, read back by a parser that is stricter than Prometheus' own.
// Threads: one, and one that counts meanwhile. Memory: strings. Errors: by gtest.
#include <lumen/telemetry/prometheus.h>

#include <gtest/gtest.h>

#include <atomic>
#include <charconv>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace lumen::telemetry {
namespace {

struct Sample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};
struct Family {
  std::string help, type;
  std::vector<Sample> samples;
};
using Families = std::map<std::string, Family>;

bool is_name(std::string_view text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  return text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
         std::string_view::npos;
}

// `name{label="value",…} number`: false at the first character that doesn't belong.
bool parse_sample(std::string_view line, Sample& sample) {
  size_t at = line.find_first_of("{ ");
  if (at == std::string_view::npos || !is_name(line.substr(0, at))) return false;
  sample.name = line.substr(0, at);
  if (line[at] == '{') {
    do {
      const size_t equals = line.find("=\"", ++at);
      if (equals == std::string_view::npos || !is_name(line.substr(at, equals - at))) return false;
      const std::string label(line.substr(at, equals - at));
      std::string value;
      for (at = equals + 2; at < line.size() && line[at] != '"'; ++at) {
        if (line[at] == '\\') {
          if (++at == line.size()) return false;
          if (line[at] != '\\' && line[at] != '"' && line[at] != 'n') return false;
          value += line[at] == 'n' ? '\n' : line[at];
        } else {
          value += line[at];
        }
      }
      ++at;
      if (!sample.labels.emplace(label, value).second || at >= line.size()) return false;
    } while (line[at] == ',');
    if (line[at] != '}') return false;
    ++at;
  }
  if (at == line.size() || line[at] != ' ') return false;
  const std::string_view number = line.substr(at + 1);
  if (number == "+Inf" || number == "NaN") return true;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), sample.value);
  return error == std::errc() && end == number.data() + number.size();
}

// Each family once, HELP, TYPE and then all its samples; no series twice; a line feed at the end.
Families parse(std::string_view text) {
  Families families;
  std::set<std::string> series;
  std::string current;
  EXPECT_TRUE(text.ends_with('\n'));
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    if (line.starts_with("# HELP ")) {
      const std::string_view rest = line.substr(7);
      current = rest.substr(0, rest.find(' '));
      EXPECT_TRUE(families.emplace(current, Family{}).second) << current << " stands twice";
      families[current].help = rest.substr(current.size() + 1);
    } else if (line.starts_with("# TYPE ")) {
      EXPECT_TRUE(line.substr(7).starts_with(current + " ")) << line;
      families[current].type = line.substr(8 + current.size());
    } else {
      Sample sample;
      EXPECT_TRUE(parse_sample(line, sample)) << line;
      EXPECT_TRUE(series.emplace(line.substr(0, line.rfind(' '))).second) << line;
      std::string base = sample.name;
      if (families[current].type == "histogram") {
        for (const std::string_view suffix : {"_bucket", "_sum", "_count"}) {
          if (base == current + std::string(suffix)) base = current;
        }
      }
      EXPECT_EQ(base, current) << line;
      families[current].samples.push_back(std::move(sample));
    }
  }
  return families;
}

std::string text_of(const PrometheusInput& input) {
  std::string text(prometheus_size_bound(input), '\0');
  const std::optional<size_t> size = write_prometheus(input, text);
  EXPECT_TRUE(size.has_value());
  text.resize(size.value_or(0));
  return text;
}

double value_of(const Families& families, const std::string& name,
                const std::map<std::string, std::string>& labels = {}) {
  for (const auto& [family, content] : families) {
    for (const Sample& sample : content.samples) {
      if (sample.name == name && sample.labels == labels) return sample.value;
    }
  }
  ADD_FAILURE() << name << " isn't there";
  return -1;
}

class Prometheus : public ::testing::Test {
 protected:
  const std::unique_ptr<Counters> counters_ = std::make_unique<Counters>();
  CounterWriter writer_{*counters_};
  const std::vector<PrometheusModel> models_ = {{"mlp", "1", 0}, {"squeezenet", "12", 1}};
};

TEST_F(Prometheus, EachFigureOfTheServerStandsUnderItsName) {
  // Each of these names is a promise to users that have drawn it.
  struct Figure {
    ServerCounter counter;
    const char* name;
  };
  const std::vector<Figure> figures = {
      {"requests", "lumen_requests_total"},
      {"connections_open", "lumen_connections_open"},
      {"connections_accepted", "lumen_connections_accepted_total"},
      {"connections_refused", "lumen_connections_refused_total"},
      {"tls_handshakes", "lumen_tls_handshakes_total"},
      {"tls_handshakes_failed", "lumen_tls_handshakes_failed_total"},
      {"tls_sessions_resumed", "lumen_tls_sessions_resumed_total"},
      {"received_bytes", "lumen_received_bytes_total"},
      {"received_direct_bytes", "lumen_received_direct_bytes_total"},
      {"sent_bytes", "lumen_sent_bytes_total"},
      {"timeouts", "lumen_timeouts_total"},
      {"loop_wakeups", "lumen_loop_wakeups_total"},
      {"loop_system_calls", "lumen_loop_system_calls_total"},
      {"worker_parks", "lumen_worker_parks_total"},
      {"request_heap_calls", "lumen_request_heap_calls_total"},
      {"request_arena_bytes", "lumen_request_arena_bytes_total"},
      {"engine_swaps", "lumen_engine_swaps_total"},
      {"cancelled", "lumen_cancelled_total"},
      {"memory_bound_bytes", "lumen_memory_bound_bytes"},
      {"memory_reserved_bytes", "lumen_memory_reserved_bytes"},
      {"memory_waiting", "lumen_memory_waiting_requests"},
      {"memory_refused", "lumen_memory_refused_total"},
      {"replies_compressed", "lumen_replies_compressed_total"},
      {"replies_compressed_saved_bytes", "lumen_replies_compressed_saved_bytes_total"}};
  uint64_t next = 1;
  for (const auto& [counter, name] : figures) writer_.add(counter, next++);
  writer_.add("responses_2xx", 100);
  writer_.add("responses_4xx", 200);
  writer_.add("responses_5xx", 300);
  const Families families = parse(text_of({.counters = *counters_}));
  next = 1;
  for (const auto& [counter, name] : figures) EXPECT_EQ(value_of(families, name), next++) << name;
  EXPECT_EQ(value_of(families, "lumen_responses_total", {{"class", "2xx"}}), 100);
  EXPECT_EQ(value_of(families, "lumen_responses_total", {{"class", "4xx"}}), 200);
  EXPECT_EQ(value_of(families, "lumen_responses_total", {{"class", "5xx"}}), 300);
}

TEST_F(Prometheus, CountersEndInTotalAndGaugesDoNot) {
  const Families families =
      parse(text_of({.counters = *counters_, .models = models_, .trace = TraceLogCounters{}}));
  for (const auto& [name, family] : families) {
    EXPECT_EQ(name.ends_with("_total"), family.type == "counter") << name;
    EXPECT_FALSE(family.help.empty()) << name;
    EXPECT_TRUE(name.starts_with("lumen_")) << name;
  }
}

TEST_F(Prometheus, EachModelHasItsOwnSeries) {
  writer_.add(0, "inference", 80);
  writer_.add(0, "execution", 10);
  writer_.add(1, "inference", 7);
  writer_.add(1, "success", 6);
  writer_.add(1, "failure", 1);
  writer_.set_gauge(1, "instances", 3);
  writer_.set_gauge(1, "instance_bytes", 4096);
  const Families families = parse(text_of({.counters = *counters_, .models = models_}));
  const std::map<std::string, std::string> mlp = {{"model", "mlp"}, {"version", "1"}};
  const std::map<std::string, std::string> net = {{"model", "squeezenet"}, {"version", "12"}};
  EXPECT_EQ(value_of(families, "lumen_inference_total", mlp), 80);
  EXPECT_EQ(value_of(families, "lumen_execution_total", mlp), 10);
  EXPECT_EQ(value_of(families, "lumen_inference_total", net), 7);
  EXPECT_EQ(value_of(families, "lumen_inference_success_total", net), 6);
  EXPECT_EQ(value_of(families, "lumen_inference_failure_total", net), 1);
  EXPECT_EQ(value_of(families, "lumen_model_instances", net), 3);
  EXPECT_EQ(value_of(families, "lumen_model_instance_bytes", net), 4096);
  EXPECT_EQ(value_of(families, "lumen_model_instances", mlp), 0);
}

TEST_F(Prometheus, BucketsOfAStageAddUpToItsCountAndHoldAllBelowThem) {
  Counters counters(Mapping::create(Counters::bytes_for(2)).value(), {.shards = 2});
  StageHistograms& stages = counters.stages();
  // One value within each bucket, in both shards, and one above the last bound.
  for (const uint64_t bound : kPrometheusBoundsNs) {
    RequestRecord record;
    record.model = 1;
    record.stage_ns[static_cast<size_t>(Stage::kQueue)] = bound - bound / 10;
    stages.record(record, 0);
    stages.record(record, 1);
  }
  RequestRecord record;
  record.model = 1;
  record.stage_ns[static_cast<size_t>(Stage::kQueue)] = 11'000'000'000;
  stages.record(record, 1);

  const Families families = parse(text_of({.counters = counters, .models = models_}));
  const Family& family = families.at("lumen_stage_duration_seconds");
  EXPECT_EQ(family.type, "histogram");
  size_t buckets = 0;
  double last_bound = 0;
  for (const Sample& sample : family.samples) {
    if (sample.labels.at("model") != "squeezenet" || sample.labels.at("stage") != "queue") continue;
    if (!sample.name.ends_with("_bucket")) continue;
    if (buckets == kPrometheusBoundsNs.size()) {
      EXPECT_EQ(sample.labels.at("le"), "+Inf");
      EXPECT_EQ(sample.value, 2 * kPrometheusBoundsNs.size() + 1);
    } else {
      const double bound = std::stod(sample.labels.at("le"));
      EXPECT_DOUBLE_EQ(bound, static_cast<double>(kPrometheusBoundsNs[buckets]) / 1e9);
      EXPECT_GT(bound, last_bound);
      EXPECT_EQ(sample.value, 2 * (buckets + 1));
      last_bound = bound;
    }
    ++buckets;
  }
  EXPECT_EQ(buckets, kPrometheusBoundsNs.size() + 1);
  const std::map<std::string, std::string> labels = {
      {"model", "squeezenet"}, {"version", "12"}, {"stage", "queue"}};
  EXPECT_EQ(value_of(families, "lumen_stage_duration_seconds_count", labels), 45);
  uint64_t sum = 11'000'000'000;
  for (const uint64_t bound : kPrometheusBoundsNs) sum += 2 * (bound - bound / 10);
  EXPECT_DOUBLE_EQ(value_of(families, "lumen_stage_duration_seconds_sum", labels),
                   static_cast<double>(sum) / 1e9);
}

TEST_F(Prometheus, EveryStageOfEveryModelIsThereFromTheStart) {
  const Families families = parse(text_of({.counters = *counters_, .models = models_}));
  for (const PrometheusModel& model : models_) {
    for (const std::string_view stage : kStageNames) {
      EXPECT_EQ(value_of(families, "lumen_stage_duration_seconds_count",
                         {{"model", std::string(model.name)},
                          {"version", std::string(model.version)},
                          {"stage", std::string(stage)}}),
                0);
    }
  }
}

TEST_F(Prometheus, LabelsAndHelpAreEscaped) {
  const std::vector<PrometheusModel> models = {{"a\"b\\c\nd", "1", 0}};
  const std::vector<PrometheusLabel> labels = {{"kind", "x\"\\\n"}, {"of", "y"}};
  const std::vector<PrometheusFigure> figures = {
      {"lumen_odd", "back\\slash\nand \"quotes\"", "gauge", 1.5, labels}};
  const Families families =
      parse(text_of({.counters = *counters_, .models = models, .figures = figures}));
  EXPECT_EQ(
      value_of(families, "lumen_inference_total", {{"model", "a\"b\\c\nd"}, {"version", "1"}}), 0);
  EXPECT_EQ(families.at("lumen_odd").help, "back\\\\slash\\nand \"quotes\"");
  EXPECT_EQ(value_of(families, "lumen_odd", {{"kind", "x\"\\\n"}, {"of", "y"}}), 1.5);
}

TEST_F(Prometheus, FiguresOfTheCallerWithOneNameAreOneFamily) {
  const std::vector<PrometheusLabel> mpmc = {{"queue_type", "mpmc"}};
  const std::vector<PrometheusLabel> spsc = {{"queue_type", "spsc"}};
  const std::vector<PrometheusFigure> figures = {
      {"lumen_workers", "Worker threads.", "gauge", 2},
      {"lumen_engine_info", "The engine's configuration.", "gauge", 1, mpmc},
      {"lumen_engine_info", "", "", 0, spsc},
      {"lumen_ratio", "A fraction.", "gauge", 1e-9}};
  const Families families = parse(text_of({.counters = *counters_, .figures = figures}));
  EXPECT_EQ(value_of(families, "lumen_workers"), 2);
  EXPECT_EQ(value_of(families, "lumen_engine_info", {{"queue_type", "mpmc"}}), 1);
  EXPECT_EQ(value_of(families, "lumen_engine_info", {{"queue_type", "spsc"}}), 0);
  EXPECT_EQ(families.at("lumen_engine_info").help, "The engine's configuration.");
  EXPECT_EQ(value_of(families, "lumen_ratio"), 1e-9);
}

TEST_F(Prometheus, TheTraceLogIsThereOnlyWhereThereIsOne) {
  EXPECT_EQ(text_of({.counters = *counters_}).find("lumen_trace"), std::string::npos);
  const Families families =
      parse(text_of({.counters = *counters_, .trace = TraceLogCounters{10, 3, 2, 1, 99, 7, 5}}));
  EXPECT_EQ(value_of(families, "lumen_trace_records_written_total"), 10);
  EXPECT_EQ(value_of(families, "lumen_trace_records_dropped_total"), 3);
  EXPECT_EQ(value_of(families, "lumen_trace_traceparents_written_total"), 7);
  EXPECT_EQ(value_of(families, "lumen_trace_traceparents_dropped_total"), 5);
  EXPECT_EQ(value_of(families, "lumen_trace_write_errors_total"), 2);
  EXPECT_EQ(value_of(families, "lumen_trace_rotations_total"), 1);
}

TEST_F(Prometheus, TextThatDoesNotFitIsRefusedAtEverySize) {
  const PrometheusInput input{.counters = *counters_, .models = models_};
  const std::string whole = text_of(input);
  std::string room(whole.size() + 1, '#');
  for (size_t size = 0; size < whole.size(); size += size < 200 ? 1 : 97) {
    ASSERT_FALSE(write_prometheus(input, std::span(room).first(size)).has_value()) << size;
    ASSERT_EQ(room[size], '#') << size;
  }
  EXPECT_FALSE(write_prometheus(input, std::span(room).first(whole.size() - 1)).has_value());
  EXPECT_EQ(write_prometheus(input, std::span(room).first(whole.size())), whole.size());
}

TEST_F(Prometheus, TheBoundHoldsForTheLargestNumbers) {
  const PrometheusInput empty{
      .counters = *counters_, .models = models_, .trace = TraceLogCounters{}};
  const size_t bound = prometheus_size_bound(empty);
  writer_.add("requests", UINT64_MAX);
  writer_.add(0, "inference", UINT64_MAX);
  RequestRecord record;
  record.stage_ns.fill(UINT64_MAX - 1);
  counters_->stages().record(record);
  EXPECT_LE(text_of({.counters = *counters_,
                     .models = models_,
                     .trace = TraceLogCounters{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, 0}})
                .size(),
            bound);
}

TEST_F(Prometheus, AHistogramIsConsistentWhileOthersRecord) {
  std::atomic<bool> stop{false};
  std::thread recorder([&] {
    RequestRecord record;
    for (uint64_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      record.stage_ns.fill(i * 7919 % 20'000'000'000);
      counters_->stages().record(record);
    }
  });
  const std::vector<PrometheusModel> models = {{"mlp", "1", 0}};
  for (int round = 0; round < 20; ++round) {
    const Families families = parse(text_of({.counters = *counters_, .models = models}));
    std::map<std::string, double> last;
    for (const Sample& sample : families.at("lumen_stage_duration_seconds").samples) {
      double& before = last[sample.labels.at("stage")];
      if (sample.name.ends_with("_bucket")) {
        EXPECT_GE(sample.value, before);
        before = sample.value;
      } else if (sample.name.ends_with("_count")) {
        EXPECT_EQ(sample.value, before);
      }
    }
  }
  stop.store(true, std::memory_order_relaxed);
  recorder.join();
}

}  // namespace
}  // namespace lumen::telemetry
