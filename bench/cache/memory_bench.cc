// bench_cache_memory: fills one contender with <int, int> entries and tells its memory, as a JSON
// line. One measurement a process, so that nothing of another is in it.
//
//   --list                             the contenders
//   --contender NAME --entries N       {"peak_bytes"}: growth of VmHWM from before the cache was made
//     --order ORDER                    of the keys: sequence (default), random, stride3, stride16,
//                                      clusters100 and clusters1000 (of each 4,096), shuffled
//
// "put_ns" is the time of a put, by one run and with the clock read between blocks of 1,000.
// "reserved_bytes" is address space that was mapped and not touched (growth of VmSize less that of
// VmRSS), "allocations" counts operator new, the cache's own figure stands beside it.
// Threads: one. Memory: the contender's, and 0.1 MiB before. Errors: exit 2 with a reason.
#include "../queue/harness.h"
#include "ours.h"
#include "rivals.h"
#include "variants.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <vector>

namespace {

uint64_t allocations = 0;

}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  if (void* found = std::malloc(bytes)) return found;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto wanted = static_cast<size_t>(alignment);
  if (void* found = std::aligned_alloc(wanted, (bytes + wanted - 1) / wanted * wanted))
    return found;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace lumen::bench {
namespace {

// A line of /proc/self/status, in bytes.
int64_t status_bytes(const char* name) {
  std::FILE* file = std::fopen("/proc/self/status", "re");
  int64_t found = -1;
  char line[256];
  const size_t length = std::strlen(name);
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, name, length) == 0) found = std::strtoll(line + length + 1, nullptr, 10);
  }
  if (file != nullptr) std::fclose(file);
  if (found < 0) {
    std::fprintf(stderr, "bench_cache_memory: no %s in /proc/self/status\n", name);
    std::exit(2);
  }
  return found * 1024;
}

// Until now nothing counts: the kernel sets VmHWM to the resident bytes of this moment.
void forget_peak() {
  std::FILE* file = std::fopen("/proc/self/clear_refs", "we");
  if (file == nullptr) return;
  std::fputs("5\n", file);
  std::fclose(file);
}

// All different, but for a few random ones.
std::vector<int> keys_in(const std::string& order, int64_t entries) {
  std::vector<int> keys(static_cast<size_t>(entries));
  std::mt19937 random(7);
  const auto each = [&](auto key_of) {
    for (int64_t i = 0; i < entries; ++i)
      keys[static_cast<size_t>(i)] = static_cast<int>(key_of(i));
  };
  if (order == "random") {
    each([&](int64_t) { return random(); });
  } else if (order == "stride3") {
    each([](int64_t i) { return i * 3; });
  } else if (order == "stride16") {
    each([](int64_t i) { return i * 16; });
  } else if (order == "clusters100") {
    each([](int64_t i) { return i / 100 * 4'096 + i % 100; });
  } else if (order == "clusters1000") {
    each([](int64_t i) { return i / 1'000 * 4'096 + i % 1'000; });
  } else if (order == "sequence" || order == "shuffled") {
    each([](int64_t i) { return i; });
    if (order == "shuffled") std::shuffle(keys.begin(), keys.end(), random);
  } else {
    std::fprintf(stderr, "bench_cache_memory: no --order '%s'\n", order.c_str());
    std::exit(2);
  }
  return keys;
}

struct Contender {
  std::string name;
  std::function<void(const std::vector<int>& keys)> run;
};

template <typename C>
void print_own(const C& cache) {
  if constexpr (requires { cache.cache().stats(); }) {
    const auto stats = cache.cache().stats();
    std::printf(", \"entries\": %zu, \"slots\": %zu, \"mapped_bytes\": %zu, \"used_bytes\": %zu",
                stats.entries, stats.slots, stats.bytes_mapped, stats.bytes_used);
  }
}

template <typename C, typename... Options>
void fill(const std::vector<int>& keys, const Options&... options) {
  forget_peak();
  const int64_t resident = status_bytes("VmRSS:");
  const int64_t size = status_bytes("VmSize:");
  const uint64_t made_before = allocations;
  C cache(options...);
  cache.tick();
  const uint64_t began = now_ns();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i % 1'000 == 0) cache.tick();
    cache.put(keys[i], 99, std::chrono::hours(1));
  }
  const auto took = static_cast<double>(now_ns() - began);
  const uint64_t made = allocations - made_before;
  const int64_t peak = status_bytes("VmHWM:") - resident;
  const int64_t now = status_bytes("VmRSS:") - resident;
  const int64_t reserved = status_bytes("VmSize:") - size - now;
  int64_t found = 0;
  for (const int key : keys) found += cache.get(key).has_value() ? 1 : 0;
  std::printf("{\"peak_bytes\": %" PRId64 ", \"resident_bytes\": %" PRId64
              ", \"reserved_bytes\": %" PRId64 ", \"allocations\": %" PRIu64 ", \"found\": %" PRId64
              ", \"put_ns\": %.1f",
              peak, now, reserved > 0 ? reserved : 0, made, found,
              keys.empty() ? 0 : took / static_cast<double>(keys.size()));
  print_own(cache);
  std::printf("}\n");
}

template <typename C>
Contender contender(const char* name) {
  return {name, [](const std::vector<int>& keys) { fill<C>(keys, size_t{0}); }};
}

#ifdef LUMEN_BENCH_OURS
// A policy that keeps records needs a bound to work against: one that is never reached.
template <typename Policy>
Contender bounded(const char* name) {
  using C = Chrono<int, int, cache::OneThread, cache::CachedTick, Policy>;
  return {name, [](const std::vector<int>& keys) {
            cache::Options options;
            options.max_entries = keys.size() * 2;
            fill<C>(keys, options);
          }};
}
#endif

std::vector<Contender> contenders() {
  std::vector<Contender> all;
#ifdef LUMEN_BENCH_OURS
  all.push_back(contender<Ours<int, int>>("lumen"));
  all.push_back(contender<OursConcurrentTick<int, int>>("lumen concurrent"));
  all.push_back(contender<OursDefault<int, int>>("lumen default"));
  all.push_back(bounded<cache::Lru>("lumen Lru"));
  all.push_back(bounded<cache::Lfu>("lumen Lfu"));
  all.push_back(bounded<cache::S3Fifo>("lumen S3Fifo"));
#endif
  all.push_back({"empty", [](const std::vector<int>&) { fill<Floor<int, int>>({}, size_t{0}); }});
  all.push_back(contender<Naive<int, int>>("naive"));
  all.push_back(contender<StdMap<int, int>>("std_map"));
#ifdef LUMEN_BENCH_FLAT_BOOST
  all.push_back(contender<BoostFlat<int, int>>("boost_flat"));
#endif
#ifdef LUMEN_BENCH_ABSL
  all.push_back(contender<AbslFlat<int, int>>("absl_flat"));
#endif
#ifdef LUMEN_BENCH_TBB
  all.push_back(contender<TbbMap<int, int>>("tbb"));
#endif
  const auto add = [&]<template <typename, typename> typename C>(const char* name) {
    all.push_back(contender<C<int, int>>(name));
  };
  for_one_thread_variants(add);
  for_concurrent_variants(add);
  return all;
}

int run(const Arguments& arguments) {
  const std::vector<Contender> all = contenders();
  if (arguments.flag("--list")) {
    for (const Contender& one : all) std::printf("%s\n", one.name.c_str());
    return 0;
  }
  const std::string wanted = arguments.text("--contender", "");
  for (const Contender& one : all) {
    if (one.name != wanted) continue;
    const auto entries = static_cast<int64_t>(arguments.number("--entries", 10'000'000));
    one.run(keys_in(arguments.text("--order", "sequence"), entries));
    return 0;
  }
  std::fprintf(stderr, "bench_cache_memory: no contender '%s'\n", wanted.c_str());
  return 2;
}

}  // namespace
}  // namespace lumen::bench

int main(int argc, char** argv) { return lumen::bench::run(lumen::bench::Arguments(argc, argv)); }
