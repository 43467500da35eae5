// A ChronoCache beside a model of it: the input's bytes are the operations. Two choose flavour and
// seed, then each five are an operation: its kind and a number.
#include "fuzz/fuzz_support.h"
#include "support/cache_model.h"

#include <cstdio>
#include <string>

namespace {

using namespace lumen::cache;
using lumen::ChronoCache;

template <typename K, typename V, typename Threads, typename Eviction>
void run(const uint8_t* data, size_t size, uint64_t seed) {
  using Cache = ChronoCache<K, V, Threads, Eviction, FakeClock, OnRemoval<lumen::test::Removals>>;
  FakeClock::set_ns(FakeClock::kStartNs);
  Options options;
  options.seed = seed;
  options.shards = seed % 2 == 0 ? 1 : 4;
  if (seed % 5 == 0) options.reserve_entries = 500;
  if (Eviction::kKeepsRecords) options.max_entries = 100;
  lumen::test::CacheModel<Cache, K, V, Eviction::kKeepsRecords> model(options);
  const auto judge = [](const std::optional<std::string>& wrong) {
    if (wrong) std::fprintf(stderr, "%s\n", wrong->c_str());
    LUMEN_CHECK(!wrong);
  };
  for (; size >= 5; data += 5, size -= 5) {
    uint32_t number;
    std::memcpy(&number, data + 1, sizeof(number));
    judge(model.step(data[0], number));
  }
  judge(model.settled());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const uint8_t flavour = data[0];
  const uint64_t seed = data[1];
  data += 2;
  size -= 2;
  switch (flavour % 8) {
    case 0: run<int, int, OneThread, TtlOnly>(data, size, seed); break;
    case 1: run<int, int, Concurrent, TtlOnly>(data, size, seed); break;
    case 2: run<std::string, std::string, OneThread, TtlOnly>(data, size, seed); break;
    case 3: run<std::string, std::string, Concurrent, TtlOnly>(data, size, seed); break;
    case 4: run<int, std::string, OneThread, Lru>(data, size, seed); break;
    case 5: run<std::string, int, Concurrent, S3Fifo>(data, size, seed); break;
    case 6: run<int, int, OneThread, Lfu>(data, size, seed); break;
    default: run<int, int, Concurrent, Lru>(data, size, seed); break;
  }
  return 0;
}
