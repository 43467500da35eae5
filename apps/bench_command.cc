// The body of `lumen bench`: reads the model's metadata, builds one request, runs the load for each
// number of clients. Threads and memory: as bench_command.h says.
#include "bench_command.h"

#include "bench_shared_buffer.h"
#include "load/bench_report.h"
#include "load/load_run.h"
#include "load/model_info.h"
#include "load/stop_flag.h"

#include <lumen/base/nearest_name.h>

#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace {

using lumen::Result;
using lumen::Status;
namespace load = lumen::load;

struct BenchArguments {
  std::string url;
  std::string model;
  std::string version;
  std::vector<uint32_t> clients = {1, 4, 16};
  uint32_t threads = 1;
  double duration_s = 5;
  double warm_up_s = 0.5;
  double rate = 0;
  double timeout_s = 20;
  double repeat_ratio = -1;  // below 0: all requests are the same
  uint64_t requests = 0;
  uint64_t seed = 1;
  uint32_t in_flight = 1;
  std::vector<std::string> inputs;  // FILE or NAME=FILE
  bool new_connection = false;
  bool obey_retry_after = false;
  bool poll = false;
  bool json = false;
  bool csv = false;
};

int fail(const Status& status) {
  const auto text = status.message();
  std::fprintf(stderr, "lumen bench: %.*s\n", static_cast<int>(text.size()), text.data());
  return 1;
}

uint64_t to_ns(double seconds) noexcept { return static_cast<uint64_t>(seconds * 1e9); }

// A file for a model with one input needs no name.
Result<std::vector<load::InputTensor>> make_inputs(const load::ModelInfo& model,
                                                   const BenchArguments& arguments) {
  std::vector<load::InputTensor> inputs;
  inputs.reserve(model.inputs.size());
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    inputs.push_back(load::random_input(model.inputs[i], arguments.seed + i));
  }
  for (const std::string& word : arguments.inputs) {
    const size_t equals = word.find('=');
    const bool named = equals != std::string::npos;
    if (!named && model.inputs.size() != 1) {
      return Status::error(lumen::Code::kInvalidArgument,
                           "--input %s: the model has %zu inputs; wanted NAME=FILE", word.c_str(),
                           model.inputs.size());
    }
    const std::string name = named ? word.substr(0, equals) : model.inputs[0].name;
    const auto found = std::ranges::find(model.inputs, name, &load::TensorInfo::name);
    if (found == model.inputs.end()) {
      return Status::error(lumen::Code::kNotFound, "--input %s: the model has no input '%s'",
                           word.c_str(), name.c_str());
    }
    const std::string path = named ? word.substr(equals + 1) : word;
    auto file = load::read_npy(path);
    if (!file.ok()) return file.status();
    auto input = load::input_of_file(*found, std::move(*file), path);
    if (!input.ok()) return input.status();
    inputs[static_cast<size_t>(found - model.inputs.begin())] = std::move(*input);
  }
  return inputs;
}

// One request before all others: a refusal is told once, and at once.
Status probe(load::LoadPlan plan) {
  plan.clients = plan.threads = 1;
  plan.requests = 1;
  plan.warm_up_requests = 0;
  plan.rate = 0;
  plan.in_flight = 1;
  plan.poll = false;
  const auto tally = load::run_load(plan, load::stop_flag);
  // relaxed: nothing else is read because of it.
  if (tally->ok_count() == 1 || load::stop_flag.load(std::memory_order_relaxed)) return {};
  return Status::error(lumen::Code::kUnavailable, "%s: a first request failed (%s): %s",
                       plan.target.url.c_str(), load::errors_text(*tally).c_str(),
                       tally->first_error.c_str());
}

Result<load::BenchHead> prepare(const BenchArguments& arguments) {
  auto target = load::parse_target(arguments.url);
  if (!target.ok()) return target.status();
  auto model = load::read_model_info(*target, arguments.model, arguments.version);
  if (!model.ok()) return model.status();
  auto inputs = make_inputs(*model, arguments);
  if (!inputs.ok()) return inputs.status();
  if (target->is_bus() &&
      (arguments.rate > 0 || arguments.new_connection || arguments.obey_retry_after)) {
    return Status::error(lumen::Code::kUnsupported,
                         "%s: over the bus there is a closed loop on kept connections alone; leave "
                         "--rate, --new-connection and --obey-retry-after out",
                         arguments.url.c_str());
  }
  if (!target->is_bus() && arguments.in_flight != 1) {
    return Status::error(lumen::Code::kUnsupported,
                         "--in-flight %u: over HTTP a client has one request in flight; wanted "
                         "bus:/PATH, or more --clients",
                         arguments.in_flight);
  }
  load::BenchHead head;
  head.model = arguments.model;
  for (const load::InputTensor& input : *inputs) {
    if (!head.inputs.empty()) head.inputs += ", ";
    head.inputs += input.name + " " + load::type_text(input.type, input.shape);
  }
  load::LoadPlan& plan = head.plan;
  const auto use =
      arguments.new_connection ? load::ConnectionUse::kOneRequest : load::ConnectionUse::kKept;
  plan.request = load::build_request(*target, *model, *inputs, {}, use);
  plan.model = arguments.model;
  plan.version = arguments.version;
  plan.inputs = std::move(*inputs);
  plan.in_flight = arguments.in_flight;
  if (arguments.repeat_ratio >= 0) {
    auto variants = load::InputVariants::create(plan.inputs);
    if (!variants.ok()) return variants.status();
    plan.variants = *variants;
    plan.repeat_ratio = arguments.repeat_ratio;
  }
  plan.target = std::move(*target);
  plan.threads = arguments.threads;
  plan.warm_up_ns = to_ns(arguments.warm_up_s);
  plan.duration_ns = to_ns(arguments.duration_s);
  plan.requests = arguments.requests;
  plan.rate = arguments.rate;
  plan.new_connection = arguments.new_connection;
  plan.obey_retry_after = arguments.obey_retry_after;
  plan.poll = arguments.poll;
  plan.timeout_ns = to_ns(arguments.timeout_s);
  LUMEN_RETURN_IF_ERROR(probe(plan));
  return head;
}

// Each client is a descriptor; the soft limit is often 1,024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

load::BenchRow run_row(const load::BenchHead& head, uint32_t clients) {
  load::LoadPlan plan = head.plan;
  plan.clients = clients;
  plan.warm_up_requests = uint64_t{clients} * plan.in_flight;
  load::BenchRow row;
  row.clients = clients;
  load::StageSums before;
  std::optional<load::CacheSums> cache_before;
  row.tally = load::run_load(plan, load::stop_flag, [&] {
    before = load::read_stage_sums(plan.target, head.model);
    if (plan.variants) cache_before = load::read_cache_sums(plan.target, head.model);
  });
  row.server = load::stage_means(before, load::read_stage_sums(plan.target, head.model));
  if (!cache_before) return row;
  row.cache = load::read_cache_sums(plan.target, head.model);
  if (!row.cache) return row;
  row.cache->hits -= cache_before->hits;
  row.cache->misses -= cache_before->misses;
  return row;
}

int run_bench_url(const BenchArguments& arguments) {
  load::install_stop_flag();
  raise_descriptor_limit();
  auto head = prepare(arguments);
  if (!head.ok()) return fail(head.status());
  const bool is_table = !arguments.json && !arguments.csv;
  if (is_table) std::fputs(load::head_text(*head).c_str(), stdout);
  if (arguments.csv) std::fputs(load::csv_head().c_str(), stdout);
  std::vector<load::BenchRow> rows;
  bool all_answered = true;
  for (const uint32_t clients : arguments.clients) {
    // relaxed: nothing else is read because of it.
    if (load::stop_flag.load(std::memory_order_relaxed)) break;
    rows.push_back(run_row(*head, clients));
    if (is_table) std::fputs(load::row_text(*head, rows.back()).c_str(), stdout);
    if (arguments.csv) std::fputs(load::csv_row(*head, rows.back()).c_str(), stdout);
    std::fflush(stdout);
    if (rows.back().tally->ok_count() == 0) all_answered = false;
  }
  if (arguments.json) std::printf("%s\n", load::to_json(*head, rows).dump(1).c_str());
  if (all_answered && !rows.empty()) return 0;
  // relaxed: nothing else is read because of it.
  if (load::stop_flag.load(std::memory_order_relaxed)) {
    std::fprintf(stderr, "lumen bench: stopped before a reply was counted\n");
    return 1;
  }
  const std::string errors = rows.empty() ? "" : load::errors_text(*rows.back().tally);
  std::fprintf(stderr, "lumen bench: no request was answered well%s%s\n",
               errors.empty() ? "" : ": ", errors.c_str());
  return 1;
}

// What was neither a bench's name nor a URL was most likely meant as the former.
int refuse_word(const std::string& word) {
  constexpr std::string_view kBenches[] = {"shared-buffer"};
  const std::string near(lumen::nearest_name(word, kBenches));
  std::fprintf(stderr,
               "lumen bench: '%s' is no bench (shared-buffer) and no URL (http://HOST:PORT, "
               "unix:/PATH, bus:/PATH)%s%s%s\n",
               word.c_str(), near.empty() ? "" : "; did you mean '", near.c_str(),
               near.empty() ? "" : "'?");
  return 2;
}

int run_bench(const BenchArguments& arguments) {
  if (arguments.url.empty()) {
    std::fprintf(stderr,
                 "lumen bench: wanted a URL (http://HOST:PORT, unix:/PATH, bus:/PATH) or a bench "
                 "(shared-buffer)\n");
    return 2;
  }
  if (!load::looks_like_url(arguments.url)) return refuse_word(arguments.url);
  if (arguments.model.empty()) {
    std::fprintf(stderr, "lumen bench: wanted --model NAME\n");
    return 2;
  }
  return run_bench_url(arguments);
}

void add_options(CLI::App& bench, BenchArguments& arguments) {
  bench.add_option("url", arguments.url,
                   "http://HOST:PORT, unix:/PATH, http+unix://%2FPATH or bus:/PATH");
  bench.add_option("--model", arguments.model, "name of the model");
  bench.add_option("--model-version", arguments.version,
                   "version of the model; default: the server's choice");
  bench
      .add_option("--clients", arguments.clients,
                  "numbers of clients, one table row for each; default 1,4,16")
      ->delimiter(',')
      ->check(CLI::Range(1, 10'000));
  bench
      .add_option("--in-flight", arguments.in_flight,
                  "requests of each client at once, over the bus; default 1")
      ->check(CLI::Range(1, 4096));
  bench.add_option("--threads", arguments.threads, "threads that the clients share; default 1")
      ->check(CLI::Range(1, 256));
  bench
      .add_option("--duration", arguments.duration_s,
                  "seconds that each row is measured; default 5")
      ->check(CLI::Range(0.001, 86'400.0));
  bench
      .add_option("--warm-up", arguments.warm_up_s,
                  "seconds of load before each measurement; default 0.5")
      ->check(CLI::Range(0.0, 3'600.0));
  bench
      .add_option("--requests", arguments.requests,
                  "measure each row for this many requests instead of --duration")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40));
  auto* rate = bench
                   .add_option("--rate", arguments.rate,
                               "open loop: requests a second of all clients together; latency "
                               "counts from when each was due")
                   ->check(CLI::Range(0.001, 1e8));
  bench
      .add_option("--timeout", arguments.timeout_s,
                  "seconds after which a request counts as failed; default 20")
      ->check(CLI::Range(0.001, 3'600.0));
  bench.add_option("--input", arguments.inputs,
                   "FILE.npy or NAME=FILE.npy; default: random values");
  bench.add_option("--seed", arguments.seed, "seed of the random values; default 1");
  bench
      .add_option(
          "--repeat-ratio", arguments.repeat_ratio,
          "which share of the requests repeats an earlier input, the rest being fresh ones: "
          "shows a response cache; default: all requests are the same")
      ->check(CLI::Range(0.0, 1.0));
  bench.add_flag("--new-connection", arguments.new_connection,
                 "open a new connection for each request");
  bench
      .add_flag("--obey-retry-after", arguments.obey_retry_after,
                "a client that is refused waits for the time in Retry-After; closed loop only")
      ->excludes(rate);
  bench.add_flag("--poll", arguments.poll,
                 "poll instead of sleeping; each thread then takes a whole core");
  auto* json = bench.add_flag("--json", arguments.json, "write one JSON object to stdout");
  bench
      .add_flag("--csv", arguments.csv, "write CSV to stdout, one line for each number of clients")
      ->excludes(json);
}

// Reads its own arguments, --help among them.
CLI::App* add_shared_buffer(CLI::App& bench, int& exit_status) {
  CLI::App* command =
      bench.add_subcommand("shared-buffer", "many threads write records into one buffer");
  command->prefix_command();
  command->set_help_flag();
  command->callback([command, &exit_status] {
    std::vector<std::string> words = command->remaining();
    words.insert(words.begin(), "shared-buffer");
    std::vector<char*> argv(words.size() + 1, nullptr);
    std::ranges::transform(words, argv.begin(), [](std::string& word) { return word.data(); });
    exit_status = run_bench_shared_buffer(static_cast<int>(words.size()), argv.data());
  });
  return command;
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_status) {
  CLI::App* bench =
      app.add_subcommand("bench", "load a server and measure it, or measure one of the libraries");
  auto arguments = std::make_shared<BenchArguments>();
  const CLI::App* shared_buffer = add_shared_buffer(*bench, exit_status);
  add_options(*bench, *arguments);
  bench->callback([bench, shared_buffer, arguments, &exit_status] {
    if (!bench->got_subcommand(shared_buffer)) exit_status = run_bench(*arguments);
  });
}
