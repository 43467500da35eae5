// The arguments of `lumen bench`, and the load on one model for each number of clients
// (bench_mix.cc: on several). Threads and memory: as bench_command.h says.
#include "bench_command.h"

#include <lumen/client/bench_report.h>
#include <lumen/client/load_run.h>
#include <lumen/client/mix_spec.h>
#include <lumen/client/stop_flag.h>
#include "bench_arguments.h"
#include "bench_shared_buffer.h"

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
namespace client = lumen::client;

Result<client::BenchHead> prepare(const BenchArguments& arguments, double rate) {
  auto made = make_plan(arguments, arguments.model, rate);
  if (!made.ok()) return made.status();
  return client::BenchHead{arguments.model, std::move(made->inputs_text), std::move(made->plan)};
}

int refuse(const Status& status) {
  fail_bench(status);
  return 2;
}

// Each client is a descriptor; the soft limit is often 1,024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

client::BenchRow run_row(const client::BenchHead& head, uint32_t clients) {
  client::LoadPlan plan = head.plan;
  plan.clients = clients;
  plan.warm_up_requests = uint64_t{clients} * plan.in_flight;
  client::BenchRow row;
  row.clients = clients;
  client::StageSums before;
  std::optional<client::CacheSums> cache_before;
  row.tally = client::run_load(plan, client::stop_flag, [&] {
    before = client::read_stage_sums(plan.target, head.model);
    if (plan.variants) cache_before = client::read_cache_sums(plan.target, head.model);
  });
  row.server = client::stage_means(before, client::read_stage_sums(plan.target, head.model));
  if (!cache_before) return row;
  row.cache = client::read_cache_sums(plan.target, head.model);
  if (!row.cache) return row;
  row.cache->hits -= cache_before->hits;
  row.cache->misses -= cache_before->misses;
  return row;
}

int run_bench_url(const BenchArguments& arguments) {
  const auto clients_of_rows = client::parse_clients(arguments.clients);
  if (!clients_of_rows.ok()) return refuse(clients_of_rows.status());
  const auto rate = client::parse_rate(arguments.rate);
  if (!rate.ok()) return refuse(rate.status());
  auto head = prepare(arguments, *rate);
  if (!head.ok()) return fail_bench(head.status());
  const bool is_table = !arguments.json && !arguments.csv;
  if (is_table) std::fputs(client::head_text(*head).c_str(), stdout);
  if (arguments.csv) std::fputs(client::csv_head().c_str(), stdout);
  std::vector<client::BenchRow> rows;
  bool all_answered = true;
  for (const uint32_t clients : *clients_of_rows) {
    // relaxed: nothing else is read because of it.
    if (client::stop_flag.load(std::memory_order_relaxed)) break;
    rows.push_back(run_row(*head, clients));
    if (is_table) std::fputs(client::row_text(*head, rows.back()).c_str(), stdout);
    if (arguments.csv) std::fputs(client::csv_row(*head, rows.back()).c_str(), stdout);
    std::fflush(stdout);
    if (rows.back().tally->ok_count() == 0) all_answered = false;
  }
  if (arguments.json) std::printf("%s\n", client::to_json(*head, rows).dump(1).c_str());
  if (all_answered && !rows.empty()) return 0;
  // relaxed: nothing else is read because of it.
  if (client::stop_flag.load(std::memory_order_relaxed)) {
    std::fprintf(stderr, "lumen bench: stopped before a reply was counted\n");
    return 1;
  }
  const std::string errors = rows.empty() ? "" : client::errors_text(*rows.back().tally);
  std::fprintf(stderr, "lumen bench: no request was answered well%s%s\n",
               errors.empty() ? "" : ": ", errors.c_str());
  return 1;
}

// A word that is neither a bench's name nor a URL was most likely meant as the former.
int refuse_word(const std::string& word) {
  constexpr std::string_view kBenches[] = {"shared-buffer"};
  const std::string near(lumen::nearest_name(word, kBenches));
  std::fprintf(stderr,
               "lumen bench: '%s' is no bench (shared-buffer) and no URL (http://HOST:PORT, "
               "https://HOST:PORT, unix:/PATH, grpc://HOST:PORT, bus:/PATH)%s%s%s\n",
               word.c_str(), near.empty() ? "" : "; did you mean '", near.c_str(),
               near.empty() ? "" : "'?");
  return 2;
}

int run_bench(const BenchArguments& arguments) {
  if (arguments.url.empty()) {
    std::fprintf(stderr,
                 "lumen bench: wanted a URL (http://HOST:PORT, unix:/PATH, grpc://HOST:PORT, "
                 "bus:/PATH) or a bench "
                 "(shared-buffer)\n");
    return 2;
  }
  if (!client::looks_like_url(arguments.url)) return refuse_word(arguments.url);
  if (arguments.model.empty() && arguments.mix.empty()) {
    std::fprintf(stderr, "lumen bench: wanted --model NAME, or --mix NAME:WEIGHT,NAME:WEIGHT\n");
    return 2;
  }
  client::install_stop_flag();
  raise_descriptor_limit();
  return arguments.mix.empty() ? run_bench_url(arguments) : run_bench_mix(arguments);
}

// The content of the requests.
void add_request_options(CLI::App& bench, BenchArguments& arguments) {
  bench.add_option("--input", arguments.inputs,
                   "FILE.npy or NAME=FILE.npy; default: random values");
  bench.add_option("--seed", arguments.seed, "seed of the random values; default 1");
  bench
      .add_option(
          "--repeat-ratio", arguments.repeat_ratio,
          "which share of the requests repeats an earlier input, the rest being fresh ones: "
          "shows a response cache; default: all requests are the same")
      ->check(CLI::Range(0.0, 1.0));
  bench
      .add_option("--sequence-length", arguments.sequence_length,
                  "of a model that keeps states: requests of each sequence; each client has one at "
                  "a time; default: requests name none")
      ->check(CLI::Range(1, 1'000'000));
}

// Of the connections to https:// and grpcs://.
void add_tls_options(CLI::App& bench, BenchArguments& arguments) {
  bench.add_option("--tls-ca", arguments.tls.ca,
                   "authorities in PEM, of https:// and grpcs://; default: the machine's; none: "
                   "the server's certificate is not checked");
  auto* cert = bench.add_option("--tls-cert", arguments.tls.cert,
                                "the client's own certificate in PEM; default: none");
  bench.add_option("--tls-key", arguments.tls.key, "its key; default: it stands in --tls-cert")
      ->needs(cert);
}

void add_options(CLI::App& bench, BenchArguments& arguments) {
  bench.add_option("url", arguments.url, std::string(client::kTargetForms));
  bench.add_option("--model", arguments.model, "name of the model");
  bench
      .add_option("--mix", arguments.mix,
                  "in place of --model, several models at once: NAME:WEIGHT,NAME:WEIGHT; each "
                  "client chooses the model of its next request by weight; or NAME,NAME with "
                  "--clients or --rate for each")
      ->delimiter(',');
  bench.add_option("--model-version", arguments.version,
                   "version of the model; default: the server's choice");
  bench
      .add_option("--clients", arguments.clients,
                  "numbers of clients, one table row for each; default 1,4,16; with --mix also "
                  "NAME:N,NAME:N, clients that each ask for one model")
      ->delimiter(',');
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
  auto* rate =
      bench
          .add_option("--rate", arguments.rate,
                      "open loop: requests a second of all clients together; latency "
                      "counts from when each was due; with --mix it is divided by weight, or "
                      "NAME:R,NAME:R; models without a rate stay in a closed loop")
          ->delimiter(',');
  bench
      .add_option("--timeout", arguments.timeout_s,
                  "seconds after which a request counts as failed; default 20")
      ->check(CLI::Range(0.001, 3'600.0));
  add_request_options(bench, arguments);
  add_tls_options(bench, arguments);
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
