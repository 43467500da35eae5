// bench_chronocache: the five rows of the TTL cache by Google Benchmark, for ChronoCache, the
// floor, the rivals and the steps of its story.
//
//   bench_chronocache --benchmark_filter='^bm_putStress$'          ours: OneThread, CachedTick, TtlOnly
//   bench_chronocache --benchmark_filter='^bm_putStress(/|$)'      everybody
//   --part=0.1    a tenth of the operations of the rows that repeat one key (and of random10M)
//
// A second thread sleeps meanwhile. Without one neither our lock nor std::mutex would need a locked
// instruction, and no user of a cache for several threads has a process of one.
//
// bench/cache.py calls it once a measurement. Threads: one works. Memory: as loops.h says. Errors:
// exit 1.
#include "loops.h"

#include <cstdlib>
#include <semaphore>
#include <string_view>
#include <thread>

int main(int argc, char** argv) {
  constexpr std::string_view kPart = "--part=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kPart)) continue;
    lumen::bench::part_of_ops = std::strtod(argument.substr(kPart.size()).data(), nullptr);
    for (int j = i; j + 1 < argc; ++j) argv[j] = argv[j + 1];
    --argc;
    break;
  }
  lumen::bench::add_ours();
  lumen::bench::add_rivals();
  lumen::bench::add_variants();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  std::binary_semaphore is_over{0};
  const std::jthread sleeper([&is_over] { is_over.acquire(); });
  const bool has_run = benchmark::RunSpecifiedBenchmarks() > 0;
  is_over.release();
  return has_run ? 0 : 1;
}
