// The requests' way takes nothing from the heap: counted by replacing operator new for the whole
// test program, of the calling thread alone, because "lumen-trace" starts meanwhile.
// Threads: the counter is each thread's own. Memory: malloc's. Errors: by gtest.
#include <lumen/telemetry/prometheus.h>
#include <lumen/telemetry/trace_log.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "csv.h"

namespace {
thread_local uint64_t allocations = 0;
}  // namespace

// At -O1 gcc 12 inlines one of a pair and takes it for a mismatch with the other (PR 105562).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes); memory != nullptr) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace lumen::telemetry {
namespace {

TEST(Allocations, TheCounterCounts) {
  const uint64_t before = allocations;
  void* memory = ::operator new(8);
  ::operator delete(memory);
  EXPECT_EQ(allocations, before + 1);
}

TEST(Allocations, WritingRecordsTakesNothingFromTheHeapAlsoWhenTheyAreDropped) {
  const TempFolder folder;
  TraceLogOptions options{.path = folder / "trace.csv", .buffer_bytes = 4096};
  const std::unique_ptr<TraceLog> log = TraceLog::open(options).value();
  const RequestRecord record = record_number(1);
  const uint64_t before = allocations;
  for (int i = 0; i < 1000; ++i) log->write(record);
  EXPECT_EQ(allocations, before);
  log->close();
  log->write(record);
  EXPECT_EQ(allocations, before);
}

TEST(Allocations, CountingAndRenderingMetricsTakesNothingFromTheHeap) {
  const auto counters = std::make_unique<Counters>();
  const std::vector<PrometheusModel> models = {{"mlp", "1", 0}};
  const PrometheusInput input{.counters = *counters, .models = models};
  std::vector<char> text(prometheus_size_bound(input));
  const uint64_t before = allocations;
  CounterWriter writer(*counters);
  writer.add("requests");
  writer.add_time(0, "success", 7);
  counters->stages().record(record_number(1));
  EXPECT_TRUE(write_prometheus(input, text).has_value());
  EXPECT_EQ(prometheus_size_bound(input), text.size());
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace lumen::telemetry
