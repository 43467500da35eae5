// The question: what does the flight recorder, which is always on, cost a request?
//
//   usual    a request that is among no window's slowest, by one of N recorders in turn: of 64 none of an entry's
//            lines is in the core's own caches, as after a model that has used them all
//   kept     each is slower than all before: into both windows, too
//   memcpy   the record alone into such a ring, without a mark, as a floor
//
// One thread, no reader. The goal: below 60 ns, 1 % of the 8 us of CPU that a request on the MLP
// takes.
// Run: .build/native/bench_flight_recorder
#include <lumen/telemetry/flight_recorder.h>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace {

using lumen::telemetry::FlightRecorder;
using lumen::telemetry::FlightRing;
using lumen::telemetry::FlightWindows;
using lumen::telemetry::kRecentEntries;
using lumen::telemetry::RequestRecord;

constexpr uint64_t kNowNs = 1'000'000'000'000;

struct Shard {
  FlightRing ring;
  FlightWindows windows;
  FlightRecorder recorder{std::as_writable_bytes(std::span(&ring, 1)),
                          std::as_writable_bytes(std::span(&windows, 1))};
};

RequestRecord request() {
  RequestRecord record;
  record.stage_ns = {RequestRecord::kAbsent, 1, 2, 3, 4, 5, 6, 7};
  record.status = 200;
  return record;
}

void usual(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  std::vector<std::unique_ptr<Shard>> shards(count);
  for (auto& shard : shards) shard = std::make_unique<Shard>();
  RequestRecord record = request();
  size_t next = 0;
  // The windows full, every page touched.
  for (size_t i = 0; i < count * kRecentEntries; ++i) {
    shards[next++ % count]->recorder.record(record, 1, kNowNs);
  }
  for ([[maybe_unused]] auto _ : state) {
    record.sequence = ++next;
    shards[next % count]->recorder.record(record, 1, kNowNs);
  }
}

void kept(benchmark::State& state) {
  const auto shard = std::make_unique<Shard>();
  RequestRecord record = request();
  for ([[maybe_unused]] auto _ : state) {
    ++record.stage_ns.back();
    shard->recorder.record(record, 1, kNowNs);
  }
}

void copy(benchmark::State& state) {
  std::vector<RequestRecord> ring(kRecentEntries);
  RequestRecord record = request();
  for ([[maybe_unused]] auto _ : state) {
    ++record.sequence;
    std::memcpy(&ring[record.sequence % kRecentEntries], &record, sizeof record);
    benchmark::ClobberMemory();
  }
}

BENCHMARK(usual)->Arg(1)->Arg(64);
BENCHMARK(kept);
BENCHMARK(copy)->Name("memcpy");

}  // namespace

BENCHMARK_MAIN();
