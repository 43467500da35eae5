// The question: how quickly are a request's inputs hashed, by the two hashes of the response cache?
//
//   xxh3, highway   KeyedHash, by the CPU's features    memcpy   the same bytes copied, as a floor
//
// One thread, bytes that are in the caches up to their size. Run: .build/native/bench_response_hash
#include <lumen/answers/keyed_hash.h>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace {

using lumen::answers::Hash128;
using lumen::answers::KeyedHash;

template <typename Run>
void over_bytes(benchmark::State& state, Run&& run) {
  std::vector<std::byte> bytes(static_cast<size_t>(state.range(0)), std::byte{7});
  for (auto _ : state) {
    bytes[0] = static_cast<std::byte>(state.iterations());
    run(std::span<const std::byte>(bytes));
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void xxh3(benchmark::State& state) {
  const KeyedHash hash;
  over_bytes(state, [&](auto bytes) { benchmark::DoNotOptimize(hash.xxh3(bytes)); });
}
void highway(benchmark::State& state) {
  const KeyedHash hash;
  over_bytes(state, [&](auto bytes) { benchmark::DoNotOptimize(hash.highway(bytes)); });
}
void copy(benchmark::State& state) {
  std::vector<std::byte> to(static_cast<size_t>(state.range(0)));
  over_bytes(state, [&](auto bytes) {
    std::memcpy(to.data(), bytes.data(), bytes.size());
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  });
}

BENCHMARK(xxh3)->Arg(1024)->Arg(4096)->Arg(602'112)->Arg(16 << 20);
BENCHMARK(highway)->Arg(1024)->Arg(4096)->Arg(602'112)->Arg(16 << 20);
BENCHMARK(copy)->Name("memcpy")->Arg(1024)->Arg(4096)->Arg(602'112)->Arg(16 << 20);

}  // namespace

BENCHMARK_MAIN();
