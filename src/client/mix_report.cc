// Renders results of a mix. One thread; the heap.
#include <lumen/client/mix_report.h>

#include <lumen/client/report_parts.h>
#include "client/text.h"

#include <lumen/telemetry/stages.h>

#include <nlohmann/json.hpp>

#include <algorithm>

namespace lumen::client {

namespace {

using Json = nlohmann::ordered_json;
using telemetry::kStageNames;

const LoadPlan& plan_of(const MixHead& head) noexcept { return head.targets.front().plan; }

const char* loop_name(const MixModel& model) noexcept { return model.rate > 0 ? "open" : "closed"; }

// Of all models: "mixed" where some have one and some the other.
std::string loop_name(const MixHead& head) {
  const auto is_open = [](const MixTarget& target) { return target.model.rate > 0; };
  if (std::ranges::all_of(head.targets, is_open)) return "open";
  return std::ranges::any_of(head.targets, is_open) ? "mixed" : "closed";
}

std::string names_text(const MixHead& head) {
  std::string names;
  for (const MixTarget& target : head.targets) {
    if (!names.empty()) names += '+';
    names += target.model.name;
  }
  return names;
}

uint32_t all_clients(const MixHead& head, uint32_t clients) noexcept {
  if (head.is_shared) return clients;
  uint32_t sum = 0;
  for (const MixTarget& target : head.targets) sum += clients_of(target.model, clients);
  return sum;
}

std::string target_text(const MixHead& head, const MixTarget& target) {
  const MixModel& model = target.model;
  std::string loop = "closed loop";
  if (head.is_shared) loop = text_of("weight %g", model.weight);
  if (model.rate > 0) loop = text_of("open loop, %.6g requests/s", model.rate);
  return "  " + model.name + ": " + target.inputs + ", " +
         std::to_string(target.plan.request.size()) + " bytes a request, " + loop + "\n";
}

std::string clients_text(const MixHead& head, const MixModel& model, uint32_t clients) {
  return head.is_shared ? "" : std::to_string(clients_of(model, clients));
}

std::string line_text(const std::string& name, const std::string& clients, const Tally& tally) {
  const auto s = tally.latency.summary();
  const std::string errors = errors_text(tally);
  std::string text =
      text_of("%-20s %7s %12.1f %11llu %10.1f %10.1f %10.1f %10.1f %10.1f %8llu  ", name.c_str(),
              clients.c_str(), tally.per_second, static_cast<unsigned long long>(tally.ok_count()),
              us(s.mean), us(s.p50), us(s.p99), us(s.p999), us(s.max),
              static_cast<unsigned long long>(refused_count(tally)));
  text += (errors.empty() ? "none" : errors) + "\n";
  if (!errors.empty()) text += "         first error: " + tally.first_error + "\n";
  return text;
}

std::string open_loop_text(const MixModel& model, const Tally& tally) {
  if (model.rate <= 0 || tally.unsent + tally.unanswered == 0) return {};
  return text_of(
      "         %s: %llu requests were due and never left, %llu had no reply at the end: they "
      "count "
      "with the time they had waited; the server does not keep this rate\n",
      model.name.c_str(), static_cast<unsigned long long>(tally.unsent),
      static_cast<unsigned long long>(tally.unanswered));
}

std::string server_text(const MixModel& model, const StageMeans& means) {
  if (!server_total(means)) return {};
  std::string text =
      text_of("         server (%s), %s, mean µs:", source_name(means.source), model.name.c_str());
  for (size_t i = 0; i < kStageNames.size(); ++i) {
    if (means.us[i]) {
      text += text_of(" %s %.1f", std::string(kStageNames[i]).c_str(), *means.us[i]);
    }
  }
  return text + "\n";
}

Json counts_json(const Tally& tally) {
  return {{"seconds", rounded(tally.seconds)},
          {"requests", tally.ok_count()},
          {"per_second", rounded(tally.per_second)},
          {"latency_us", histogram_json(tally.latency)},
          {"refused", refused_count(tally)},
          {"errors", errors_json(tally)},
          {"connect_us", histogram_json(tally.connect)},
          {"bytes_sent", tally.bytes_sent},
          {"bytes_received", tally.bytes_received}};
}

Json model_json(const MixHead& head, const MixRow& row, size_t at) {
  const MixModel& model = head.targets[at].model;
  const Tally& tally = *row.result.parts[at];
  Json json = {{"loop", loop_name(model)}};
  if (!head.is_shared) json["clients"] = clients_of(model, row.clients);
  json.update(counts_json(tally));
  json["server"] = server_json(row.server[at], tally);
  if (model.rate > 0) json["open_loop"] = open_loop_json(model.rate, tally);
  return json;
}

Json row_json(const MixHead& head, const MixRow& row) {
  const Tally& all = *row.result.all;
  Json json = {{"clients", all_clients(head, row.clients)}};
  json.update(counts_json(all));
  json["client_cpu"] = rounded(all.busiest_cpu);
  json["client_bound"] = is_client_bound(plan_of(head), all);
  json["server"] = nullptr;
  Json models = Json::object();
  for (size_t i = 0; i < head.targets.size(); ++i) {
    models[head.targets[i].model.name] = model_json(head, row, i);
  }
  json["models"] = std::move(models);
  return json;
}

}  // namespace

uint64_t refused_count(const Tally& tally) noexcept {
  return tally.by_status[429] + tally.by_status[503];
}

std::string head_text(const MixHead& head) {
  const LoadPlan& plan = plan_of(head);
  std::string text = names_text(head) + " at " + plan.target.url + ": ";
  if (head.is_shared) text += "closed loop, each client chooses by weight";
  if (!head.is_shared) text += "each model has clients of its own";
  text += text_of(", %u thread%s%s, ", plan.threads, plan.threads == 1 ? "" : "s",
                  plan.poll ? ", polling" : "");
  text += how_long_text(plan) + (plan.new_connection ? ", a new connection a request" : "");
  text += plan.obey_retry_after ? ", obeying Retry-After\n" : "\n";
  for (const MixTarget& target : head.targets) text += target_text(head, target);
  return text + text_of("\n%-20s %7s %12s %11s %10s %10s %10s %10s %10s %8s  %s\n", "model",
                        "clients", "requests/s", "requests", "mean µs", "p50", "p99", "p99.9",
                        "max", "refused", "errors");
}

std::string row_text(const MixHead& head, const MixRow& row) {
  std::string lines;
  std::string more;
  for (size_t i = 0; i < head.targets.size(); ++i) {
    const MixModel& model = head.targets[i].model;
    const Tally& tally = *row.result.parts[i];
    lines += line_text(model.name, clients_text(head, model, row.clients), tally);
    more += open_loop_text(model, tally) + server_text(model, row.server[i]);
  }
  const Tally& all = *row.result.all;
  lines += line_text("all", std::to_string(all_clients(head, row.clients)), all);
  return lines + more + bound_text(plan_of(head), all);
}

Json to_json(const MixHead& head, const std::vector<MixRow>& rows) {
  const LoadPlan& plan = plan_of(head);
  Json mix = Json::object();
  for (const MixTarget& target : head.targets) {
    Json one = {{"inputs", target.inputs}, {"request_bytes", target.plan.request.size()}};
    if (head.is_shared) one["weight"] = target.model.weight;
    mix[target.model.name] = std::move(one);
  }
  Json json = {{"model", names_text(head)},
               {"mix", std::move(mix)},
               {"url", plan.target.url},
               {"loop", loop_name(head)},
               {"threads", plan.threads},
               {"new_connection", plan.new_connection},
               {"obey_retry_after", plan.obey_retry_after},
               {"poll", plan.poll},
               {"rows", Json::array()}};
  for (const MixRow& row : rows) json["rows"].push_back(row_json(head, row));
  return json;
}

}  // namespace lumen::client
