// bench_mixed_load: the client of `lumen bench --mix` (src/client) with prepared requests from
// files, so that any HTTP servers can be measured, one for all models or one for each.
//   bench_mixed_load SECONDS WARM_UP_SECONDS NAME,PORT,CLIENTS,RATE,REQUEST_FILE...
// Each NAME has connections of its own: RATE 0 is a closed loop, else an open one of that many
// requests a second.
// Threads: one, which polls all connections at once and sleeps where nothing comes: it shares its
// core with the servers. Memory: before the run.
// Errors: exit status 1 and a line if the arguments are wrong; requests that servers refuse or fail
// are counted.
#include <lumen/client/load_run.h>
#include <lumen/client/mix_report.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <sys/resource.h>

namespace {

namespace client = lumen::client;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "bench_mixed_load: %s\n", what.c_str());
  std::exit(1);
}

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail("can't read " + path);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

uint64_t nanoseconds(const char* seconds) {
  return static_cast<uint64_t>(std::atof(seconds) * 1e9);
}

struct Part {
  std::string name;
  client::LoadPlan plan;
};

Part parse_part(const std::string& word) {
  std::istringstream stream(word);
  std::array<std::string, 5> fields;
  for (size_t i = 0; i < 4; ++i) std::getline(stream, fields[i], ',');
  std::getline(stream, fields[4]);  // a path may have commas
  if (fields[4].empty()) fail("'" + word + "': wanted NAME,PORT,CLIENTS,RATE,REQUEST_FILE");
  Part part;
  part.name = fields[0];
  auto target = client::parse_target("http://127.0.0.1:" + fields[1]);
  if (!target.ok()) fail(std::string(target.status().message()));
  part.plan.target = *target;
  part.plan.request = read_file(fields[4]);
  const int clients = std::atoi(fields[2].c_str());
  if (clients < 1 || clients > 10'000) fail("'" + word + "': CLIENTS must be 1 to 10000");
  part.plan.clients = static_cast<uint32_t>(clients);
  part.plan.rate = std::atof(fields[3].c_str());
  return part;
}

// The quotes and backslashes of an error's text would end the JSON string early.
std::string plain(const std::string& text) {
  std::string found;
  for (const char c : text.substr(0, 200)) found += c < ' ' || c == '"' || c == '\\' ? ' ' : c;
  return found;
}

void print(const std::string& name, const client::Tally& tally) {
  const auto s = tally.latency.summary();
  const auto us = [](auto ns) { return static_cast<double>(ns) / 1000; };
  const auto count = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  const uint64_t refused = client::refused_count(tally);
  std::printf(
      "\"%s\": {\"requests\": %llu, \"per_second\": %.2f, \"mean_us\": %.3f, \"p50_us\": %.3f, "
      "\"p99_us\": %.3f, \"p999_us\": %.3f, \"max_us\": %.3f, \"refused\": %llu, \"failed\": %llu, "
      "\"unsent\": %llu, \"error\": \"%s\"}, ",
      name.c_str(), count(tally.ok_count()), tally.per_second, us(s.mean), us(s.p50), us(s.p99),
      us(s.p999), us(s.max), count(refused), count(tally.failed_count() - refused),
      count(tally.unsent), plain(tally.first_error).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fail("usage: bench_mixed_load SECONDS WARM_UP_SECONDS NAME,PORT,CLIENTS,RATE,REQUEST_FILE...");
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<std::string> names;
  std::vector<client::LoadPlan> plans;
  for (int i = 3; i < argc; ++i) {
    Part part = parse_part(argv[i]);
    part.plan.duration_ns = nanoseconds(argv[1]);
    part.plan.warm_up_ns = nanoseconds(argv[2]);
    names.push_back(part.name);
    plans.push_back(std::move(part.plan));
  }
  const std::atomic<bool> stop{false};
  const client::LoadResult result = client::run_loads(plans, stop);
  std::printf("{");
  for (size_t i = 0; i < names.size(); ++i) print(names[i], *result.parts[i]);
  std::printf("\"client_share\": %.4f}\n", result.all->busiest_cpu);
  return 0;
}
