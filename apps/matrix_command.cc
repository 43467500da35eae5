// The body of `lumen matrix`: goes through the combinations round by round, so that a slow minute
// of the machine hits all alike. Threads and memory: as matrix_command.h says.
#include "matrix_command.h"

#include <lumen/client/matrix_report.h>
#include <lumen/client/measure.h>
#include <lumen/client/stop_flag.h>

#include <lumen/base/nearest_name.h>
#include <lumen/engine/engine_config.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace {

using lumen::Status;
namespace client = lumen::client;

struct MatrixArguments {
  client::MatrixPlan plan;
  bool json = false;
};

int fail(std::string_view text) {
  std::fprintf(stderr, "lumen matrix: %.*s\n", static_cast<int>(text.size()), text.data());
  return 1;
}

// A name of `valid`, or CLI11's message with the nearest one.
std::string check_name(const std::string& name, std::span<const std::string_view> valid) {
  if (std::ranges::find(valid, name) != valid.end()) return {};
  std::string text = "'" + name + "' is none of";
  for (const std::string_view one : valid) text += " " + std::string(one);
  const std::string_view near = lumen::nearest_name(name, valid);
  return near.empty() ? text : text + "; did you mean '" + std::string(near) + "'?";
}

bool is_stopped() noexcept {
  // relaxed: nothing else is read because of it.
  return lumen::client::stop_flag.load(std::memory_order_relaxed);
}

std::vector<client::MatrixRow> make_rows(const client::MatrixPlan& plan) {
  std::vector<client::MatrixRow> rows;
  for (const std::string& queue : plan.queue_types) {
    for (const std::string& allocator : plan.allocator_types)
      rows.push_back({queue, allocator, {}});
  }
  return rows;
}

// False: no other combination could do better.
bool run_row(const client::MatrixPlan& plan, client::MatrixRow& row, uint32_t round) {
  const std::string name = row.queue_type + " x " + row.allocator_type;
  auto values =
      client::measure(plan, row.queue_type, row.allocator_type, round, lumen::client::stop_flag);
  if (values.ok()) {
    row.rounds.push_back(*values);
    std::fprintf(stderr, "round %u of %u: %s: %.0f requests/s\n", round, plan.rounds, name.c_str(),
                 (*values)[client::Value::kPerSecond].value_or(0));
    return true;
  }
  const Status status = values.status();
  row.error = status.message();
  std::fprintf(stderr, "round %u of %u: %s: failed: %s\n", round, plan.rounds, name.c_str(),
               row.error.c_str());
  return status.code() != lumen::Code::kNotFound;
}

Status write_csv(const client::MatrixPlan& plan, const std::vector<client::MatrixRow>& rows) {
  const auto file = std::filesystem::absolute(plan.out) / "macro" / (plan.model + ".csv");
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  std::ofstream stream(file);
  stream << client::to_csv(rows);
  stream.close();
  if (stream) return {};
  return Status::error(lumen::Code::kInternal, "%s: can't be written", file.c_str());
}

int run_matrix(const MatrixArguments& arguments) {
  lumen::client::install_stop_flag();
  client::MatrixPlan plan = arguments.plan;
  // Resolved, so that `ps` shows servers and not "exe".
  std::error_code error;
  plan.executable = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return fail("/proc/self/exe can't be read: " + error.message());
  std::vector<client::MatrixRow> rows = make_rows(plan);
  for (uint32_t round = 1; round <= plan.rounds; ++round) {
    for (client::MatrixRow& row : rows) {
      if (is_stopped()) break;
      // One that failed is not tried again: its row is the error.
      if (row.error.empty() && !run_row(plan, row, round)) return fail(row.error);
    }
  }
  bool all_good = true;
  for (client::MatrixRow& row : rows) {
    if (row.rounds.empty() && row.error.empty()) row.error = "stopped";
    row.values = client::medians(row.rounds);
    all_good = all_good && row.error.empty();
  }
  if (arguments.json) {
    std::printf("%s\n", client::to_json(plan, rows).dump(1).c_str());
  } else {
    std::fputs(client::to_markdown(rows).c_str(), stdout);
  }
  if (const Status status = write_csv(plan, rows); !status.ok()) return fail(status.message());
  return all_good ? 0 : 1;
}

void add_server_options(CLI::App& command, MatrixArguments& arguments) {
  const auto pass_on = [&command, &arguments](const char* flag, const char* help) {
    return command.add_option_function<std::string>(
        flag,
        [&arguments, flag](const std::string& value) {
          auto& words = arguments.plan.server_arguments;
          words.insert(words.end(), {flag, value});
        },
        help);
  };
  const CLI::TypeValidator<uint32_t> whole_number("a whole number");
  pass_on("--backend", "passed on to every server; default: the server's");
  pass_on("--batch-size", "passed on to every server; default: the server's")->check(whole_number);
  pass_on("--thread-count", "passed on to every server; default: the server's")
      ->check(whole_number);
  pass_on("--io-threads", "passed on to every server; default: the server's")->check(whole_number);
  pass_on("--max-queue-delay-us", "passed on to every server; default: the server's")
      ->check(whole_number);
}

void add_options(CLI::App& command, MatrixArguments& arguments) {
  client::MatrixPlan& plan = arguments.plan;
  const auto& queues = lumen::models::kQueueTypeNames;
  const auto& allocators = lumen::models::kAllocatorTypeNames;
  plan.queue_types.assign(queues.begin(), queues.end());
  plan.allocator_types.assign(allocators.begin(), allocators.end());
  command.add_option("--model", plan.model, "name of the model")->required();
  command.add_option("--model-repository", plan.model_repository,
                     "directory of the models; default: models");
  command.add_option("--requests", plan.requests, "requests measured for each row; default 800")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 32));
  command
      .add_option("--clients", plan.clients, "connections that send at the same time; default 4")
      ->check(CLI::Range(1, 10'000));
  command
      .add_option("--rounds", plan.rounds,
                  "rounds over all rows, of which the medians are shown; default 1")
      ->check(CLI::Range(1, 1'000));
  command.add_option("--out", plan.out,
                     "folder for the CSV files, in macro/ and micro/; default: results");
  command.add_option("--queue-types", plan.queue_types, "by commas; default: all")
      ->delimiter(',')
      ->check([&queues](const std::string& name) { return check_name(name, queues); });
  command.add_option("--allocator-types", plan.allocator_types, "by commas; default: all")
      ->delimiter(',')
      ->check([&allocators](const std::string& name) { return check_name(name, allocators); });
  command.add_flag("--poll", plan.poll,
                   "the client polls instead of sleeping; it then takes a whole core");
  command.add_flag("--json", arguments.json,
                   "write one JSON object to stdout instead of a Markdown table");
}

}  // namespace

void add_matrix_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("matrix", "measure every queue type with every allocator");
  auto arguments = std::make_shared<MatrixArguments>();
  add_options(*command, *arguments);
  add_server_options(*command, *arguments);
  command->callback([arguments, &exit_status] { exit_status = run_matrix(*arguments); });
}
