// The loops of the five rows of ./dev bench cache, for any contender, and how a contender gets its
// rows. One batch is the whole row (50 M puts, say), so that the column Time is a time per
// operation and the name is only the row's.
// Threads: one. Memory: keys, before measuring. Errors: none.
#pragma once

#include "contender.h"

#include <lumen/base/clock.h>

#include <benchmark/benchmark.h>
#include <x86intrin.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace lumen::bench {

using std::chrono::seconds;

inline double part_of_ops = 1.0;  // --part, for ./dev bench cache --quick

constexpr int64_t kManyOps = 50'000'000;
constexpr int64_t kFreshKeys = 12'800'000;
constexpr int64_t kRandomOps = 100'000;
constexpr int64_t kLargeMap = 10'000'000;
constexpr int64_t kTickEvery = 2'000;  // operations between two calls of tick()

// Operations of a row: whole batches between two ticks.
inline int64_t ops(int64_t full) {
  const auto wanted = static_cast<int64_t>(static_cast<double>(full) * part_of_ops);
  return std::max<int64_t>(wanted / kTickEvery, 1) * kTickEvery;
}

// `count` calls of body(i) with a tick before every 2,000 of them.
template <typename C, typename Body>
[[gnu::always_inline]] inline void with_ticks(C& cache, int64_t count, Body body) {
  for (int64_t i = 0; i < count; i += kTickEvery) {
    cache.tick();
    for (int64_t j = i; j < i + kTickEvery; ++j) body(j);
  }
}

// A key that the compiler knows nothing of, and memory that others may have changed: alike for
// every contender. Not DoNotOptimize(T&) of Google Benchmark: its "+m,r" makes g++ 12 put one key
// for all.
[[gnu::always_inline]] inline int opaque(int key) {
  asm volatile("" : "+r"(key) : : "memory");
  return key;
}
[[gnu::always_inline]] inline const std::string& opaque(const std::string& key) {
  const std::string* address = &key;
  asm volatile("" : "+r"(address) : : "memory");
  return *address;
}

// A result is used as Google Benchmark does it, found or not: in one register where it fits. A
// std::optional<int> is put together for that, which is most of the floor.
template <typename C, typename K>
[[gnu::always_inline]] inline void get_once(const C& cache, const K& key) {
  const auto value = cache.get(opaque(key));
  benchmark::DoNotOptimize(value);
}

template <typename C, typename K, typename V>
void put_single(benchmark::State& state) {
  C cache(1);
  const K key = Keys<K>()(42);
  const V value = value_of<V>(99);
  const int64_t count = ops(kManyOps);
  while (state.KeepRunningBatch(count)) {
    with_ticks(cache, count, [&](int64_t) { cache.put(opaque(key), value, seconds(1)); });
  }
}

template <typename C, typename K, typename V>
void put_stress(benchmark::State& state) {
  Keys<K> keys;
  const V value = value_of<V>(99);
  while (state.KeepRunningBatch(kFreshKeys)) {
    state.PauseTiming();
    auto cache = std::make_unique<C>(kFreshKeys);
    state.ResumeTiming();
    with_ticks(*cache, kFreshKeys,
               [&](int64_t i) { cache->put(opaque(keys(i)), value, seconds(60)); });
    state.PauseTiming();
    cache.reset();
    state.ResumeTiming();
  }
}

// Every put timed: the longest is the one that grows the table. A turn of the machine is in it too,
// which the floor's longest shows.
template <typename C, typename K, typename V>
void put_stress_longest(benchmark::State& state) {
  Keys<K> keys;
  const V value = value_of<V>(99);
  uint64_t longest = 0;
  uint64_t ticks = 0;
  uint64_t taken_ns = 0;
  while (state.KeepRunningBatch(kFreshKeys)) {
    auto cache = std::make_unique<C>(kFreshKeys);
    const uint64_t first_ns = now_ns();
    const uint64_t first = __rdtsc();
    uint64_t before = first;
    with_ticks(*cache, kFreshKeys, [&](int64_t i) {
      cache->put(opaque(keys(i)), value, seconds(60));
      const uint64_t after = __rdtsc();
      longest = std::max(longest, after - before);
      before = after;
    });
    ticks += before - first;
    taken_ns += now_ns() - first_ns;
  }
  const double ns_per_tick = static_cast<double>(taken_ns) / static_cast<double>(ticks);
  state.counters["longest_us"] = static_cast<double>(longest) * ns_per_tick / 1000;
}

// Key 42, or -1 where nothing is found. It is put anew twenty times a run, so that it lives on.
template <typename C, typename K, typename V>
void get_one(benchmark::State& state, int64_t wanted) {
  C cache(1);
  const K present = Keys<K>()(42);
  const K key = Keys<K>()(wanted);
  const V value = value_of<V>(99);
  const int64_t count = ops(kManyOps);
  const int64_t part = std::max<int64_t>(count / kTickEvery / 20, 1) * kTickEvery;
  while (state.KeepRunningBatch(count)) {
    for (int64_t done = 0; done < count; done += part) {
      cache.tick();
      cache.put(present, value, seconds(60));
      with_ticks(cache, std::min(part, count - done), [&](int64_t) { get_once(cache, key); });
    }
  }
}

inline std::vector<int32_t> random_numbers(int64_t count, int64_t below) {
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  uint64_t x = 88172645463325252U;
  for (int32_t& number : numbers) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    number = static_cast<int32_t>((x >> 32) * static_cast<uint64_t>(below) >> 32);
  }
  return numbers;
}

// 100,000 random keys of 1,000; or 10 M of 10 M. A warm-up pass first, since the row of 1,000 lasts
// less than a millisecond.
template <typename C, typename K, typename V>
void get_random(benchmark::State& state, int64_t entries, int64_t count) {
  C cache(static_cast<size_t>(entries));
  Keys<K> keys;
  with_ticks(cache, entries, [&](int64_t i) { cache.put(keys(i), value_of<V>(i), seconds(600)); });
  const std::vector<int32_t> wanted = random_numbers(count, entries);
  const auto pass = [&] {
    with_ticks(cache, count,
               [&](int64_t i) { get_once(cache, keys(wanted[static_cast<size_t>(i)])); });
  };
  pass();
  while (state.KeepRunningBatch(count)) pass();
}

enum class Rows { kFive, kAll };

// "bm_putStress", then "/NAME" of the contender and "/KIND" of keys and values, where there are.
template <typename C, typename K, typename V>
  requires Contender<C, K, V>
void add_five(const std::string& name, const std::string& kind) {
  using State = benchmark::State;
  const auto add = [&](const char* row, auto run) {
    benchmark::RegisterBenchmark((row + name + kind).c_str(), run);
  };
  add("bm_putSingle", [](State& s) { put_single<C, K, V>(s); });
  add("bm_putStress", [](State& s) { put_stress<C, K, V>(s); });
  add("bm_getHit", [](State& s) { get_one<C, K, V>(s, 42); });
  add("bm_getRandomKeys", [](State& s) { get_random<C, K, V>(s, 1'000, kRandomOps); });
  add("bm_GetMiss", [](State& s) { get_one<C, K, V>(s, -1); });
}

// Of one contender, with the rows beside the five if `rows` says so.
template <template <typename, typename> typename C>
void add_contender(std::string name, Rows rows) {
  if (!name.empty()) name.insert(0, 1, '/');
  using Ints = C<int, int>;
  add_five<Ints, int, int>(name, "");
  using State = benchmark::State;
  benchmark::RegisterBenchmark(("bm_getHit" + name + "/random10M").c_str(), [](State& s) {
    get_random<Ints, int, int>(s, kLargeMap, ops(kLargeMap));
  });
  benchmark::RegisterBenchmark(("bm_putStressLongest" + name).c_str(),
                               [](State& s) { put_stress_longest<Ints, int, int>(s); });
  if (rows == Rows::kFive) return;
  add_five<C<std::string, int>, std::string, int>(name, "/string16");
  add_five<C<int, Value64>, int, Value64>(name, "/value64");
  // By hand, no row of the report: a text for a text.
  add_five<C<std::string, std::string>, std::string, std::string>(name, "/text40");
}

void add_ours();
void add_rivals();
void add_variants();

}  // namespace lumen::bench
