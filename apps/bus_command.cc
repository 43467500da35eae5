// See the header.
#include "bus_command.h"

#include <lumen/base/clock.h>
#include <lumen/bus/observer.h>

#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace {

using lumen::bus::RingFigures;
using lumen::bus::RingReport;
using lumen::bus::TypeFigures;

struct TopArguments {
  std::string path;
  double interval_s = 1;
  uint32_t count = 0;  // 0: until it is ended
};

// A ring's key: the process at its other end, and its place among that process's rings.
using RingKey = std::tuple<uint32_t, uint32_t, size_t>;
using Snapshot = std::map<RingKey, RingReport>;

Snapshot by_key(std::vector<RingReport> rings) {
  Snapshot snapshot;
  for (RingReport& ring : rings) {
    size_t place = 0;
    while (snapshot.contains({ring.ring.pid, ring.ring.publishes, place})) ++place;
    snapshot.emplace(RingKey{ring.ring.pid, ring.ring.publishes, place}, std::move(ring));
  }
  return snapshot;
}

double rate(uint64_t now, uint64_t before, double seconds) {
  return now < before ? 0 : static_cast<double>(now - before) / seconds;
}

void print_ring(const RingReport& now, const RingReport& before, double seconds) {
  const RingFigures& ring = now.ring;
  const RingFigures& old = before.ring;
  const double fill = 100.0 * static_cast<double>(ring.unread_bytes) /
                      static_cast<double>(ring.capacity != 0 ? ring.capacity : 1);
  const char* role = ring.publishes != 0 ? "publisher" : ring.lapped != 0 ? "lossy" : "subscriber";
  std::printf("%8u %6u  %-10s %12.0f %10.1f %5.0f %% %10.1f %8llu %8llu\n", ring.pid, ring.uid,
              role, rate(ring.frames, old.frames, seconds),
              rate(ring.bytes, old.bytes, seconds) / 1e6, fill,
              rate(ring.stalls, old.stalls, seconds), static_cast<unsigned long long>(ring.lost),
              static_cast<unsigned long long>(ring.dropped));
  for (const TypeFigures& type : now.types) {
    TypeFigures last;
    for (const TypeFigures& one : before.types) {
      if (one.type_id == type.type_id) last = one;
    }
    std::printf(
        "%16s  type %-5llu %12.0f %10.1f\n", "", static_cast<unsigned long long>(type.type_id),
        rate(type.frames, last.frames, seconds), rate(type.bytes, last.bytes, seconds) / 1e6);
  }
}

int fail(const lumen::Status& status) {
  std::fprintf(stderr, "lumen bus top: %.*s\n", static_cast<int>(status.message().size()),
               status.c_message());
  return 1;
}

int run_top(const TopArguments& arguments) {
  auto observer = lumen::bus::Observer::connect(arguments.path);
  if (!observer.ok()) return fail(observer.status());
  auto first = observer->read();
  if (!first.ok()) return fail(first.status());
  Snapshot before = by_key(std::move(first).value());
  uint64_t before_ns = lumen::now_ns();
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  for (uint32_t i = 0; arguments.count == 0 || i < arguments.count; ++i) {
    (void)::poll(nullptr, 0, static_cast<int>(arguments.interval_s * 1000));
    auto read = observer->read();
    if (!read.ok()) return fail(read.status());
    const uint64_t now_ns = lumen::now_ns();
    Snapshot now = by_key(std::move(read).value());
    if (is_terminal) std::printf("\033[H\033[J");
    std::printf("bus %s: %zu ring%s; a second over the last %.1f s\n", arguments.path.c_str(),
                now.size(), now.size() == 1 ? "" : "s",
                static_cast<double>(now_ns - before_ns) / 1e9);
    std::printf("%8s %6s  %-10s %12s %10s %7s %10s %8s %8s\n", "pid", "user", "it is a", "frames/s",
                "MB/s", "fill", "stalls/s", "lost", "dropped");
    for (const auto& [key, ring] : now) {
      const auto found = before.find(key);
      print_ring(ring, found == before.end() ? ring : found->second,
                 static_cast<double>(now_ns - before_ns) / 1e9);
    }
    std::fflush(stdout);
    before = std::move(now);
    before_ns = now_ns;
  }
  return 0;
}

}  // namespace

void add_bus_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("bus", "look at a shared-memory bus");
  command->require_subcommand(1);
  CLI::App* top = command->add_subcommand(
      "top", "frames, bytes, fill and stalls a second of each ring, and of each type");
  auto arguments = std::make_shared<TopArguments>();
  top->add_option("path", arguments->path, "the socket at which the bus listens")->required();
  top->add_option("--interval", arguments->interval_s, "seconds between two looks")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  top->add_option("--count", arguments->count, "how many looks; 0: until it is ended")
      ->capture_default_str();
  top->callback([arguments, &exit_status] { exit_status = run_top(*arguments); });
}
