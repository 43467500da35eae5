// The question: what does a line of the telemetry CSV cost "lumen-trace" as text?
//
//   lumen       src/telemetry/csv_line.cc
//   to_chars    the line's numbers alone, by std::to_chars: no names, no time, no rules of CSV
//   printf      the same numbers by the C library
//
// One thread, the text stays in the cache. Run: .build/native/bench_csv_line
#include "telemetry/csv_line.h"

#include <benchmark/benchmark.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

namespace {

using namespace lumen::telemetry;

// Of a model whose run takes some µs: no connect stage, the seven others below 20 µs.
std::vector<RequestRecord> requests() {
  std::mt19937_64 random(1);  // the same for all three
  std::vector<RequestRecord> all(1000);
  for (size_t i = 0; i < all.size(); ++i) {
    RequestRecord& record = all[i];
    record.sequence = 1'000'000 + i;
    record.received_wall_ns = 1'763'689'407'000'000'000 + static_cast<int64_t>(i) * 8'000;
    for (size_t stage = 1; stage < kStageCount; ++stage) record.stage_ns[stage] = random() % 20'000;
    record.rows = 1;
    record.status = 200;
  }
  return all;
}

template <typename Write>
void run(benchmark::State& state, Write&& write) {
  const std::vector<RequestRecord> all = requests();
  std::vector<char> text(all.size() * detail::kMaxCsvLineBytes);
  for ([[maybe_unused]] auto _ : state) {
    char* out = text.data();
    for (const RequestRecord& record : all) out = write(record, out);
    benchmark::DoNotOptimize(text.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(all.size()));
}

void BM_Line_lumen(benchmark::State& state) {
  const detail::CsvNames names{{"mlp"}, {"mpmc"}, {"lumen_arena"}};
  detail::TimestampText time;
  run(state, [&](const RequestRecord& record, char* out) {
    return detail::write_csv_line(record, names, time, out);
  });
}

void BM_Numbers_to_chars(benchmark::State& state) {
  run(state, [](const RequestRecord& record, char* out) {
    const auto put = [&out](uint64_t value) { out = std::to_chars(out, out + 20, value).ptr; };
    put(record.sequence);
    for (size_t stage = 1; stage < kStageCount; ++stage) {
      put(record.stage_ns[stage] / 1000);
      put(record.stage_ns[stage] % 1000);
    }
    put(record.rows);
    put(record.status);
    return out;
  });
}

void BM_Numbers_printf(benchmark::State& state) {
  run(state, [](const RequestRecord& record, char* out) {
    const auto put = [&out](const char* format, auto value) {
      out += std::snprintf(out, 32, format, value);
    };
    put("%llu", static_cast<unsigned long long>(record.sequence));
    for (size_t stage = 1; stage < kStageCount; ++stage) {
      put(",%.3f", static_cast<double>(record.stage_ns[stage]) / 1000);
    }
    put(",%u", record.rows);
    put(",%u", unsigned{record.status});
    return out;
  });
}

BENCHMARK(BM_Line_lumen);
BENCHMARK(BM_Numbers_to_chars);
BENCHMARK(BM_Numbers_printf);

}  // namespace

BENCHMARK_MAIN();
