// Renders results. One thread; the heap.
#include <lumen/client/bench_report.h>

#include <lumen/client/report_parts.h>
#include "client/text.h"

#include <lumen/telemetry/stages.h>

#include <nlohmann/json.hpp>

namespace lumen::client {

namespace {

using Json = nlohmann::ordered_json;
using telemetry::kStageNames;

std::string connect_text(const BenchHead& head, const Tally& tally) {
  const auto s = tally.connect.summary();
  if (s.count == 0) return {};
  return text_of("         connecting: mean %.1f, p99 %.1f µs (%llu connection%s%s)\n", us(s.mean),
                 us(s.p99), static_cast<unsigned long long>(s.count), s.count == 1 ? "" : "s",
                 head.plan.new_connection ? ", in the latency" : ", not in the latency");
}

// Of a client that polls it would be the whole of its time.
double cpu_us_per_request(const BenchHead& head, const Tally& tally) noexcept {
  const auto count = static_cast<double>(tally.ok_count() + tally.failed_count());
  return head.plan.poll || count <= 0 ? 0 : tally.cpu_seconds * 1e6 / count;
}

std::string server_text(const BenchHead& head, const BenchRow& row) {
  const auto total = server_total(row.server);
  if (row.server.source == StageSums::Source::kNone || !total) return {};
  std::string text = text_of("         server (%s), mean µs:", source_name(row.server.source));
  for (size_t i = 0; i < kStageNames.size(); ++i) {
    if (row.server.us[i]) {
      text += text_of(" %s %.1f", std::string(kStageNames[i]).c_str(), *row.server.us[i]);
    }
  }
  const double mean = us(row.tally->latency.mean());
  const double cpu_us = cpu_us_per_request(head, *row.tally);
  std::string more = cpu_us > 0 ? text_of(", which used %.1f µs of CPU a request", cpu_us) : "";
  if (head.plan.is_open_loop()) more += "; and waiting for a free connection";
  if (head.plan.new_connection) more += "; and connecting";
  return text +
         text_of(
             "\n         %.1f µs here = %.1f in the server + %.1f outside it (kernel, network, "
             "wake-ups, this client%s)\n",
             mean, *total, mean - *total, more.c_str());
}

std::string open_loop_text(const Tally& tally) {
  std::string text = text_of(
      "         open loop: at most %llu waited for a connection; the client itself was late by "
      "%.1f µs (p99 %.1f), which is in the latency; --poll shortens it\n",
      static_cast<unsigned long long>(tally.most_waiting), us(tally.send_lag.mean()),
      us(tally.send_lag.percentile(99)));
  if (tally.unsent + tally.unanswered > 0) {
    text += text_of(
        "         %llu requests were due and never left, %llu had no reply at the end: "
        "they count with the time they had waited; the server does not keep this rate\n",
        static_cast<unsigned long long>(tally.unsent),
        static_cast<unsigned long long>(tally.unanswered));
  }
  return text;
}

double hit_share(const CacheSums& cache) noexcept {
  const double all = cache.hits + cache.misses;
  return all > 0 ? cache.hits / all : 0;
}

std::string cache_text(const BenchHead& head, const BenchRow& row) {
  if (!head.plan.variants) return {};
  if (!row.cache || row.cache->hits + row.cache->misses == 0) {
    return "         response cache: the server counted neither hits nor misses; is it on for this "
           "model?\n";
  }
  return text_of("         response cache: %.0f hits, %.0f misses by the server's count: %.1f %%\n",
                 row.cache->hits, row.cache->misses, 100 * hit_share(*row.cache));
}

Json row_json(const BenchHead& head, const BenchRow& row) {
  const Tally& tally = *row.tally;
  Json json = {{"clients", row.clients},
               {"seconds", rounded(tally.seconds)},
               {"requests", tally.ok_count()},
               {"per_second", rounded(tally.per_second)},
               {"latency_us", histogram_json(tally.latency)},
               {"errors", errors_json(tally)},
               {"connect_us", histogram_json(tally.connect)},
               {"bytes_sent", tally.bytes_sent},
               {"bytes_received", tally.bytes_received},
               {"client_cpu", rounded(tally.busiest_cpu)},
               {"client_cpu_us_per_request", rounded(cpu_us_per_request(head, tally))},
               {"client_bound", is_client_bound(head.plan, tally)},
               {"server", server_json(row.server, tally)}};
  if (head.plan.variants && row.cache) {
    json["cache"] = {{"hits", row.cache->hits},
                     {"misses", row.cache->misses},
                     {"hit_share", rounded(hit_share(*row.cache))}};
  }
  if (head.plan.is_open_loop()) {
    json["open_loop"] = open_loop_json(head.plan.rate, tally);
  }
  return json;
}

}  // namespace

std::string head_text(const BenchHead& head) {
  const LoadPlan& plan = head.plan;
  const std::string loop =
      plan.is_open_loop() ? text_of("open loop, %.6g requests/s", plan.rate) : "closed loop";
  return head.model + " at " + plan.target.url + ", " + head.inputs +
         text_of(": %zu bytes a request\n", plan.request.size()) + loop +
         text_of(", %u thread%s%s, ", plan.threads, plan.threads == 1 ? "" : "s",
                 plan.poll ? ", polling" : "") +
         how_long_text(plan) + (plan.new_connection ? ", a new connection a request" : "") +
         (plan.variants ? text_of(", %.3g %% of the inputs repeated", 100 * plan.repeat_ratio)
                        : std::string()) +
         (plan.obey_retry_after ? ", obeying Retry-After\n\n" : "\n\n") +
         text_of("%7s %12s %11s %10s %10s %10s %10s %10s  %s\n", "clients", "requests/s", "mean µs",
                 "p50", "p90", "p99", "p99.9", "max", "errors");
}

std::string row_text(const BenchHead& head, const BenchRow& row) {
  const Tally& tally = *row.tally;
  const auto s = tally.latency.summary();
  const std::string errors = errors_text(tally);
  std::string text = text_of("%7u %12.1f %10.1f %10.1f %10.1f %10.1f %10.1f %10.1f  ", row.clients,
                             tally.per_second, us(s.mean), us(s.p50), us(s.p90), us(s.p99),
                             us(s.p999), us(s.max)) +
                     (errors.empty() ? "none" : errors) + "\n";
  if (!errors.empty()) text += "         first error: " + tally.first_error + "\n";
  text += text_of("         %.3f MB sent, %.3f MB received\n",
                  static_cast<double>(tally.bytes_sent) / 1e6,
                  static_cast<double>(tally.bytes_received) / 1e6);
  text += connect_text(head, tally);
  if (head.plan.is_open_loop()) text += open_loop_text(tally);
  return text + cache_text(head, row) + server_text(head, row) + bound_text(head.plan, tally);
}

std::string csv_head() {
  std::string text =
      "model,url,clients,threads,rate,new_connection,seconds,requests,errors,per_second,mean_us,"
      "p50_us,p90_us,p99_us,p999_us,max_us,connections,connect_mean_us,connect_p99_us,bytes_sent,"
      "bytes_received,client_cpu,client_bound";
  for (const std::string_view stage : kStageNames) text += ",server_" + std::string(stage) + "_us";
  return text + ",repeat_ratio,cache_hits,cache_misses\n";
}

std::string csv_row(const BenchHead& head, const BenchRow& row) {
  const Tally& tally = *row.tally;
  const auto s = tally.latency.summary();
  const auto c = tally.connect.summary();
  std::string text =
      head.model + "," + head.plan.target.url +
      text_of(",%u,%u,%.6g,%d,%.3f,%llu,%llu,%.2f", row.clients, head.plan.threads, head.plan.rate,
              head.plan.new_connection ? 1 : 0, tally.seconds,
              static_cast<unsigned long long>(tally.ok_count()),
              static_cast<unsigned long long>(tally.failed_count()), tally.per_second);
  text += text_of(",%.3f,%.3f,%.3f,%.3f,%.3f,%.3f", us(s.mean), us(s.p50), us(s.p90), us(s.p99),
                  us(s.p999), us(s.max));
  text += text_of(",%llu,%.3f,%.3f,%llu,%llu,%.3f,%d", static_cast<unsigned long long>(c.count),
                  us(c.mean), us(c.p99), static_cast<unsigned long long>(tally.bytes_sent),
                  static_cast<unsigned long long>(tally.bytes_received), tally.busiest_cpu,
                  is_client_bound(head.plan, tally) ? 1 : 0);
  for (const auto& stage : row.server.us) text += stage ? text_of(",%.3f", *stage) : ",";
  text += head.plan.variants ? text_of(",%.6g", head.plan.repeat_ratio) : ",";
  text += row.cache ? text_of(",%.0f,%.0f", row.cache->hits, row.cache->misses) : ",,";
  return text + "\n";
}

Json to_json(const BenchHead& head, const std::vector<BenchRow>& rows) {
  const LoadPlan& plan = head.plan;
  Json json = {{"model", head.model},
               {"url", plan.target.url},
               {"inputs", head.inputs},
               {"request_bytes", plan.request.size()},
               {"loop", plan.is_open_loop() ? "open" : "closed"},
               {"threads", plan.threads},
               {"new_connection", plan.new_connection},
               {"obey_retry_after", plan.obey_retry_after},
               {"poll", plan.poll},
               {"repeat_ratio", plan.variants ? Json(plan.repeat_ratio) : Json(nullptr)},
               {"rows", Json::array()}};
  for (const BenchRow& row : rows) json["rows"].push_back(row_json(head, row));
  return json;
}

}  // namespace lumen::client
