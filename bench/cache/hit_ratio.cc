// bench_hit_ratio: how many requests of a trace hit, with each eviction policy.
// Threads: one. Memory: the heap. Errors: exit status 1 with the reason on stderr.
//
//   bench_hit_ratio make FILE TRACE KEYS REQUESTS SEED    writes the trace
//   bench_hit_ratio run FILE ENTRIES...              a line of JSON for each policy and size
#include "cache/traces.h"

#include <lumen/cache/chrono_cache.h>
#include <lumen/cache/lfu.h>
#include <lumen/cache/lru.h>
#include <lumen/cache/s3_fifo.h>

#include <cstdio>
#include <exception>
#include <string_view>

namespace lumen::bench {
namespace {

template <typename Cache>
void run(const char* policy, const char* flavour, const Trace& trace, size_t entries,
         Cache&& cache) {
  size_t hits = 0;
  for (const uint64_t key : trace) hits += cache.ask(key) ? 1 : 0;
  std::printf(
      "{\"policy\": \"%s\", \"flavour\": \"%s\", \"entries\": %zu, \"hits\": %zu, \"requests\": "
      "%zu}\n",
      policy, flavour, entries, hits, trace.size());
}

// A miss puts the key in for longer than any trace takes.
template <typename Policy, typename Threads>
class WholeCache {
 public:
  explicit WholeCache(size_t entries, uint32_t shards)
      : cache_({.max_entries = entries, .shards = shards, .seed = 7}) {}

  bool ask(uint64_t key) {
    if (cache_.get(key)) return true;
    cache_.put(key, 0, std::chrono::hours(24));
    return false;
  }

 private:
  ChronoCache<uint64_t, uint32_t, Policy, Threads, cache::CachedTick> cache_;
};

constexpr uint32_t kShards = 8;

template <typename Policy>
void run_policy(const char* name, const Trace& trace, size_t entries) {
  using Alone = WholeCache<Policy, cache::OneThread>;
  using Shared = WholeCache<Policy, cache::Concurrent>;
  run(name, "OneThread", trace, entries, Alone(entries, 0));
  run(name, "Concurrent, 1 shard", trace, entries, Shared(entries, 1));
  run(name, "Concurrent, 8 shards", trace, entries, Shared(entries, kShards));
}

int main_of(int count, char** words) {
  const std::string_view verb = count > 1 ? words[1] : "";
  if (verb == "make" && count == 7) {
    write_trace(words[2], make_trace(words[3], std::stoull(words[4]), std::stoull(words[5]),
                                     std::stoull(words[6])));
    return 0;
  }
  if (verb == "run" && count > 3) {
    const Trace trace = read_trace(words[2]);
    for (int i = 3; i < count; ++i) {
      const size_t entries = std::stoull(words[i]);
      run_policy<cache::Lru>("Lru", trace, entries);
      run_policy<cache::S3Fifo>("S3Fifo", trace, entries);
      run_policy<cache::Lfu>("Lfu", trace, entries);
    }
    return 0;
  }
  std::fprintf(stderr,
               "usage: bench_hit_ratio make FILE TRACE KEYS REQUESTS SEED | run FILE ENTRIES...\n");
  return 1;
}

}  // namespace
}  // namespace lumen::bench

int main(int count, char** words) {
  try {
    return lumen::bench::main_of(count, words);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "bench_hit_ratio: %s\n", problem.what());
    return 1;
  }
}
