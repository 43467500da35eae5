// Renders the parts that reports share. Any thread; the heap.
#include <lumen/client/report_parts.h>

#include "client/text.h"

#include <lumen/telemetry/stages.h>

#include <nlohmann/json.hpp>

namespace lumen::client {

namespace {

using Json = nlohmann::ordered_json;
using telemetry::Histogram;
using telemetry::kStageNames;
using telemetry::Stage;

// From here on one more request would have waited for the client, not for the server.
constexpr double kBusyShare = 0.9;

}  // namespace

double rounded(double value) noexcept {
  return static_cast<double>(static_cast<int64_t>(value * 1000 + (value < 0 ? -0.5 : 0.5))) / 1000;
}

std::optional<double> server_total(const StageMeans& means) noexcept {
  return means.us[static_cast<size_t>(Stage::kTotal)];
}

const char* source_name(StageSums::Source source) noexcept {
  switch (source) {
    case StageSums::Source::kMetrics: return "/metrics";
    case StageSums::Source::kStatistics: return "statistics";
    case StageSums::Source::kNone: break;
  }
  return "none";
}

Json histogram_json(const Histogram& histogram) {
  const Histogram::Summary s = histogram.summary();
  return {{"count", s.count},
          {"mean", rounded(us(s.mean))},
          {"min", rounded(us(s.min))},
          {"p50", rounded(us(s.p50))},
          {"p90", rounded(us(s.p90))},
          {"p99", rounded(us(s.p99))},
          {"p999", rounded(us(s.p999))},
          {"max", rounded(us(s.max))}};
}

Json errors_json(const Tally& tally) {
  Json by_status = Json::object();
  for (size_t status = 0; status < kMaxStatus; ++status) {
    if (tally.by_status[status] != 0 && status != 200) {
      by_status[std::to_string(status)] = tally.by_status[status];
    }
  }
  Json failures = Json::object();
  for (size_t i = 0; i < kFailureNames.size(); ++i) {
    if (tally.failures[i] != 0) failures[std::string(kFailureNames[i])] = tally.failures[i];
  }
  return {{"count", tally.failed_count()},
          {"by_status", by_status},
          {"failures", failures},
          {"first", tally.first_error}};
}

Json server_json(const StageMeans& server, const Tally& tally) {
  if (server.source == StageSums::Source::kNone) return nullptr;
  Json stages = Json::object();
  for (size_t i = 0; i < kStageNames.size(); ++i) {
    if (server.us[i]) stages[std::string(kStageNames[i])] = rounded(*server.us[i]);
  }
  Json json = {
      {"source", source_name(server.source)}, {"requests", server.requests}, {"stages_us", stages}};
  if (const auto total = server_total(server)) {
    json["outside_us"] = rounded(us(tally.latency.mean()) - *total);
  }
  return json;
}

Json open_loop_json(double rate, const Tally& tally) {
  return {{"rate", rate},
          {"most_waiting", tally.most_waiting},
          {"unsent", tally.unsent},
          {"unanswered", tally.unanswered},
          {"send_lag_us", histogram_json(tally.send_lag)}};
}

std::string how_long_text(const LoadPlan& plan) {
  if (plan.requests != 0) {
    return text_of("%llu requests", static_cast<unsigned long long>(plan.requests));
  }
  return text_of("%.3g s after %.3g s of warm-up", static_cast<double>(plan.duration_ns) / 1e9,
                 static_cast<double>(plan.warm_up_ns) / 1e9);
}

bool is_client_bound(const LoadPlan& plan, const Tally& tally) noexcept {
  if (tally.seconds <= 0) return false;
  return plan.poll ? tally.fewest_empty_polls < 1 - kBusyShare : tally.busiest_cpu >= kBusyShare;
}

std::string bound_text(const LoadPlan& plan, const Tally& tally) {
  if (!is_client_bound(plan, tally)) return {};
  if (plan.poll) {
    return text_of(
        "         THE CLIENT IS THE BOTTLENECK: %.0f %% of its polls found work; "
        "add --threads\n",
        100 - 100 * tally.fewest_empty_polls);
  }
  return text_of(
      "         THE CLIENT IS THE BOTTLENECK: its busiest thread took %.0f %% of a CPU; "
      "add --threads\n",
      100 * tally.busiest_cpu);
}

std::string errors_text(const Tally& tally) {
  std::string text;
  const auto add = [&text](const std::string& what, uint64_t count) {
    if (count == 0) return;
    if (!text.empty()) text += ", ";
    text += what + " x " + std::to_string(count);
  };
  for (size_t status = 0; status < kMaxStatus; ++status) {
    if (status != 200) add(std::to_string(status), tally.by_status[status]);
  }
  for (size_t i = 0; i < kFailureNames.size(); ++i) {
    add(std::string(kFailureNames[i]), tally.failures[i]);
  }
  return text;
}

}  // namespace lumen::client
