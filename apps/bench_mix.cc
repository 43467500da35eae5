// `lumen bench URL --mix A:0.9,B:0.1`: several models of one server at once. Main thread, starts
// load threads; the heap; errors as bench_command.h says.
#include <lumen/client/load_run.h>
#include <lumen/client/mix_report.h>
#include <lumen/client/mix_spec.h>
#include <lumen/client/report_parts.h>
#include <lumen/client/stop_flag.h>
#include "bench_arguments.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

using lumen::Result;
using lumen::Status;
namespace client = lumen::client;

// Options that would say the same of all models, which hardly any user means.
Status check_options(const BenchArguments& arguments) {
  const char* option = nullptr;
  if (!arguments.model.empty()) option = "--model";
  if (!arguments.version.empty()) option = "--model-version";
  if (!arguments.inputs.empty()) option = "--input";
  if (arguments.repeat_ratio >= 0) option = "--repeat-ratio";
  if (arguments.sequence_length != 0) option = "--sequence-length";
  if (arguments.requests != 0) option = "--requests";
  if (arguments.csv) option = "--csv";
  if (option == nullptr) return {};
  return Status::error(lumen::Code::kInvalidArgument,
                       "%s: is for one model; wanted --mix without it", option);
}

Result<client::MixHead> prepare(const BenchArguments& arguments, const client::MixSpec& spec) {
  client::MixHead head;
  head.is_shared = spec.is_shared;
  for (const client::MixModel& model : spec.models) {
    auto made = make_plan(arguments, model.name, model.rate);
    if (!made.ok()) return made.status();
    if (made->plan.target.is_bus()) {
      return Status::error(lumen::Code::kUnsupported,
                           "%s: there is no --mix over the bus; wanted http://HOST:PORT or "
                           "unix:/PATH",
                           arguments.url.c_str());
    }
    head.targets.push_back({model, std::move(made->inputs_text), std::move(made->plan)});
  }
  return head;
}

std::vector<client::StageSums> read_all(const client::MixHead& head) {
  std::vector<client::StageSums> sums;
  sums.reserve(head.targets.size());
  for (const client::MixTarget& target : head.targets) {
    sums.push_back(client::read_stage_sums(target.plan.target, target.model.name));
  }
  return sums;
}

client::MixRow run_row(const client::MixHead& head, uint32_t clients) {
  client::MixRow row;
  row.clients = clients;
  std::vector<client::StageSums> before;
  row.result = client::run_loads(client::mix_plans(head.targets, head.is_shared, clients),
                                 client::stop_flag, [&] { before = read_all(head); });
  const std::vector<client::StageSums> after = read_all(head);
  for (size_t i = 0; i < after.size(); ++i) {
    row.server.push_back(client::stage_means(before[i], after[i]));
  }
  return row;
}

// Of each row, whether every model was answered at least once.
bool was_answered(const client::MixRow& row) {
  for (const auto& part : row.result.parts) {
    if (part->ok_count() == 0) return false;
  }
  return true;
}

}  // namespace

int run_bench_mix(const BenchArguments& arguments) {
  Status status = check_options(arguments);
  auto spec = client::parse_mix(arguments.mix, arguments.clients, arguments.rate);
  if (status.ok() && !spec.ok()) status = spec.status();
  if (!status.ok()) {
    fail_bench(status);
    return 2;
  }
  auto head = prepare(arguments, *spec);
  if (!head.ok()) return fail_bench(head.status());
  if (!arguments.json) std::fputs(client::head_text(*head).c_str(), stdout);
  std::vector<client::MixRow> rows;
  bool all_answered = true;
  for (const uint32_t clients : spec->rows) {
    // relaxed: nothing else is read because of it.
    if (client::stop_flag.load(std::memory_order_relaxed)) break;
    rows.push_back(run_row(*head, clients));
    if (!arguments.json) std::fputs(client::row_text(*head, rows.back()).c_str(), stdout);
    std::fflush(stdout);
    all_answered = all_answered && was_answered(rows.back());
  }
  if (arguments.json) std::printf("%s\n", client::to_json(*head, rows).dump(1).c_str());
  if (all_answered && !rows.empty()) return 0;
  std::fprintf(stderr, "lumen bench: not every model had a request answered well\n");
  return 1;
}
