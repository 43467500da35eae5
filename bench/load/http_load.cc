// bench_http_load: the client of `lumen bench` (src/client) with a prepared request from a file, so
// that any HTTP server can be measured: N clients in a closed loop over keep-alive connections.
//   bench_http_load HOST PORT REQUEST_FILE CONNECTIONS SECONDS WARM_UP_SECONDS [sleep]
// Threads: one, which polls epoll without ever sleeping, because a wake-up costs 20 us on small
// machines and would be booked as the server's: give it a core of its own. With "sleep" it waits in
// the kernel instead, for a core that it shares with a part of the server. Memory: before the run.
// Errors: exit status 1 and a line; every reply must be a 200 with a Content-Length, and as long as
// the first one.
#include <lumen/client/load_run.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace {

namespace client = lumen::client;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "bench_http_load: %s\n", what.c_str());
  std::exit(1);
}

std::string read_file(const char* path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail(std::string("can't read ") + path);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

uint64_t nanoseconds(const char* seconds) {
  return static_cast<uint64_t>(std::atof(seconds) * 1e9);
}

void check(const client::Tally& tally) {
  if (tally.failed_count() > 0) fail("a request failed: " + tally.first_error);
  if (tally.ok_count() == 0) fail("no reply at all");
  // A request id or a counter in a head may change the length by some digits, no more.
  if (tally.longest_reply > tally.shortest_reply + 64) {
    fail("replies differ: " + std::to_string(tally.shortest_reply) + " to " +
         std::to_string(tally.longest_reply) + " bytes");
  }
}

void print(const client::Tally& tally, double client_share) {
  const auto s = tally.latency.summary();
  const auto us = [](auto ns) { return static_cast<double>(ns) / 1000; };
  std::printf(
      "{\"count\": %llu, \"seconds\": %.6f, \"per_second\": %.2f, \"mean_us\": %.3f, "
      "\"p50_us\": %.3f, \"p90_us\": %.3f, \"p99_us\": %.3f, \"p999_us\": %.3f, "
      "\"client_share\": %.4f}\n",
      static_cast<unsigned long long>(s.count), tally.seconds, tally.per_second, us(s.mean),
      us(s.p50), us(s.p90), us(s.p99), us(s.p999), client_share);
}

}  // namespace

int main(int argc, char** argv) {
  const bool sleeps = argc == 8 && std::string(argv[7]) == "sleep";
  if (argc != 7 && !sleeps) {
    fail(
        "usage: bench_http_load HOST PORT REQUEST_FILE CONNECTIONS SECONDS WARM_UP_SECONDS "
        "[sleep]");
  }
  auto target = client::parse_target(std::string("http://") + argv[1] + ":" + argv[2]);
  if (!target.ok()) fail(std::string(target.status().message()));
  const int connections = std::atoi(argv[4]);
  if (connections < 1 || connections > 10'000) fail("CONNECTIONS must be 1 to 10000");
  client::LoadPlan plan;
  plan.target = *target;
  plan.request = read_file(argv[3]);
  plan.clients = static_cast<uint32_t>(connections);
  plan.duration_ns = nanoseconds(argv[5]);
  plan.warm_up_ns = nanoseconds(argv[6]);
  plan.poll = !sleeps;
  const std::atomic<bool> stop{false};
  const auto tally = client::run_load(plan, stop);
  check(*tally);
  // A client that polls is always on its CPU: only the time in which it found something counts.
  print(*tally, plan.poll ? tally->busiest_turns : tally->busiest_cpu);
  return 0;
}
