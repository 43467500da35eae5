// Parses Prometheus text leniently and works out stage means. Control plane; the heap.
#include <lumen/client/metrics_reader.h>

#include <lumen/client/fetch.h>
#include "client/bus_load.h"

#include <lumen/telemetry/stages.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

namespace lumen::client {

namespace {

using telemetry::kStageNames;
using telemetry::Stage;
static_assert(telemetry::kStageCount == std::tuple_size_v<decltype(StageSums::stages)>);

std::optional<double> parse_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || rest == text.data()) return std::nullopt;
  return value;
}

// `name="value"` pairs from the position after '{'; the position after '}' or nullopt.
struct Labels {
  std::vector<std::pair<std::string, std::string>> pairs;
  size_t end = 0;
};
std::optional<Labels> parse_labels(std::string_view line, size_t at) {
  Labels labels;
  while (at < line.size() && line[at] != '}') {
    if (line[at] == ',' || line[at] == ' ') {
      ++at;
      continue;
    }
    const size_t equals = line.find("=\"", at);
    if (equals == std::string_view::npos) return std::nullopt;
    std::string name(line.substr(at, equals - at));
    std::string value;
    for (at = equals + 2; at < line.size() && line[at] != '"'; ++at) {
      if (line[at] == '\\' && at + 1 < line.size()) {
        ++at;
        value += line[at] == 'n' ? '\n' : line[at];
      } else {
        value += line[at];
      }
    }
    if (at == line.size()) return std::nullopt;
    ++at;
    labels.pairs.emplace_back(std::move(name), std::move(value));
  }
  if (at >= line.size()) return std::nullopt;
  labels.end = at + 1;
  return labels;
}

void add(StageSums& sums, Stage stage, const nlohmann::json& statistics, const char* key) {
  const auto duration = statistics.find(key);
  if (duration == statistics.end() || !duration->is_object()) return;
  const auto count = duration->find("count");
  const auto ns = duration->find("ns");
  if (count == duration->end() || ns == duration->end()) return;
  if (!count->is_number() || !ns->is_number()) return;
  auto& sum = sums.stages[static_cast<size_t>(stage)];
  sum.present = true;
  sum.count += count->get<double>();
  sum.ns += ns->get<double>();
}

}  // namespace

std::optional<MetricsText::Sample> MetricsText::parse_line(std::string_view line) {
  const size_t name_end = line.find_first_of("{ \t");
  if (line.starts_with('#') || name_end == std::string_view::npos || name_end == 0) {
    return std::nullopt;
  }
  Sample sample;
  sample.name = line.substr(0, name_end);
  size_t at = name_end;
  if (line[at] == '{') {
    auto labels = parse_labels(line, at + 1);
    if (!labels) return std::nullopt;
    sample.labels = std::move(labels->pairs);
    at = labels->end;
  }
  at = line.find_first_not_of(" \t", at);
  if (at == std::string_view::npos) return std::nullopt;
  const auto value = parse_number(line.substr(at));
  if (!value) return std::nullopt;
  sample.value = *value;
  return sample;
}

MetricsText::MetricsText(std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (auto sample = parse_line(text.substr(0, end))) samples_.push_back(std::move(*sample));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

std::optional<double> MetricsText::sum(std::string_view name,
                                       const std::vector<Label>& labels) const {
  std::optional<double> total;
  for (const Sample& sample : samples_) {
    if (sample.name != name) continue;
    const bool fits = std::ranges::all_of(labels, [&](const Label& wanted) {
      return std::ranges::any_of(sample.labels, [&](const auto& label) {
        return label.first == wanted.first && label.second == wanted.second;
      });
    });
    if (fits) total = total.value_or(0) + sample.value;
  }
  return total;
}

std::optional<MetricsText> read_metrics(const Target& target) {
  const auto reply = fetch(target, "/metrics");
  if (!reply.ok() || reply->status != 200) return std::nullopt;
  return MetricsText(reply->body);
}

StageSums stage_sums_of_metrics(const MetricsText& metrics, std::string_view model) {
  StageSums sums;
  for (size_t i = 0; i < kStageNames.size(); ++i) {
    const std::vector<MetricsText::Label> labels = {{"model", model}, {"stage", kStageNames[i]}};
    const auto seconds = metrics.sum("lumen_stage_duration_seconds_sum", labels);
    const auto count = metrics.sum("lumen_stage_duration_seconds_count", labels);
    if (!seconds || !count) continue;
    sums.stages[i] = {true, *count, *seconds * 1e9};
    sums.source = StageSums::Source::kMetrics;
  }
  return sums;
}

StageSums stage_sums_of_statistics(std::string_view text) {
  StageSums sums;
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("model_stats")) return sums;
  for (const auto& model : json["model_stats"]) {
    const auto statistics = model.find("inference_stats");
    if (statistics == model.end() || !statistics->is_object()) continue;
    sums.source = StageSums::Source::kStatistics;
    add(sums, Stage::kQueue, *statistics, "queue");
    add(sums, Stage::kPreprocess, *statistics, "compute_input");
    add(sums, Stage::kInference, *statistics, "compute_infer");
    add(sums, Stage::kPostprocess, *statistics, "compute_output");
    add(sums, Stage::kTotal, *statistics, "success");
  }
  return sums;
}

std::optional<CacheSums> cache_sums_of_statistics(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("model_stats")) return std::nullopt;
  std::optional<CacheSums> sums;
  const auto add = [](const nlohmann::json& statistics, const char* key, double& sum) {
    const nlohmann::json::json_pointer count("/" + std::string(key) + "/count");
    if (!statistics.contains(count) || !statistics[count].is_number()) return false;
    sum += statistics[count].get<double>();
    return true;
  };
  for (const auto& model : json["model_stats"]) {
    const auto statistics = model.find("inference_stats");
    if (statistics == model.end() || !statistics->is_object()) continue;
    CacheSums all = sums.value_or(CacheSums{});
    if (add(*statistics, "cache_hit", all.hits) && add(*statistics, "cache_miss", all.misses)) {
      sums = all;
    }
  }
  return sums;
}

namespace {

// The protocol's statistics of a model, wherever they are asked for; empty: there are none.
std::string statistics_text(const Target& target, std::string_view model) {
  if (target.is_bus()) {
    auto document = fetch_over_bus(target, wire::BusVerb::kStatistics, std::string(model), {});
    return document.ok() ? std::move(*document) : std::string();
  }
  auto reply = fetch(target, "/v2/models/" + std::string(model) + "/stats");
  return reply.ok() && reply->status == 200 ? std::move(reply->body) : std::string();
}

}  // namespace

std::optional<CacheSums> read_cache_sums(const Target& target, std::string_view model) {
  return cache_sums_of_statistics(statistics_text(target, model));
}

StageSums read_stage_sums(const Target& target, std::string_view model) {
  const auto metrics = target.is_bus() ? std::nullopt : read_metrics(target);
  if (metrics) {
    const StageSums sums = stage_sums_of_metrics(*metrics, model);
    if (sums.source != StageSums::Source::kNone) return sums;
  }
  return stage_sums_of_statistics(statistics_text(target, model));
}

StageMeans stage_means(const StageSums& before, const StageSums& after) {
  StageMeans means;
  for (size_t i = 0; i < after.stages.size(); ++i) {
    if (!after.stages[i].present) continue;
    // A stage that was not there before began at zero: its first request came in between.
    const double count = after.stages[i].count - before.stages[i].count;
    const double ns = after.stages[i].ns - before.stages[i].ns;
    if (count <= 0) continue;
    means.source = after.source;
    means.us[i] = ns / count / 1000;
  }
  const auto total = static_cast<size_t>(Stage::kTotal);
  if (before.source != StageSums::Source::kNone && after.source != before.source) return {};
  means.requests = after.stages[total].count - before.stages[total].count;
  return means;
}

}  // namespace lumen::client
