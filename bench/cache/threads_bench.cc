// bench_cache_threads: one measurement of one contender, as a JSON line. bench/rivals/cache_rust
// and bench/rivals/caffeine take the same arguments.
//
//   --list                         "SAFE|UNLOCKED NAME" of each contender
//   --contender NAME --row reads   random keys of --keys N, all there; {"mops"} of all --threads
//     --writer 100000|max          beside a writer that puts the same keys, in bursts of 1 ms
//   --row fresh                    fresh keys, every thread its own part of --count
//   --row mixed                    half puts, half gets of random keys of --keys
//   --ms M                         how long reads and mixed take
//
// Thread i is on CPU i, the writer on the last one. Thread 0 advances the tick, every 1,000
// operations.
// Memory: the contender's. Errors: exit 2 with a reason.
#include "../queue/harness.h"
#include "ours.h"
#include "rivals.h"
#include "variants.h"

#include <functional>
#include <memory>
#include <tuple>
#include <utility>

namespace lumen::bench {
namespace {

using std::chrono::seconds;

constexpr int64_t kBurst = 1'000;  // operations between two looks at the clock and the tick
constexpr int64_t kTtlSeconds = 600;

struct Row {
  std::string name;
  uint64_t threads = 1;
  uint64_t keys = 1000;
  uint64_t count = 4'000'000;
  uint64_t ms = 200;
  uint64_t writes_per_s = 0;  // UINT64_MAX: as many as it can
};

struct Result {
  double mops = 0;
  double writer_mops = 0;
};

// A key out of `below`: two cycles of a multiplication, the same for every contender.
class RandomKeys {
 public:
  RandomKeys(uint64_t seed, uint64_t below) : state_(seed * 0x9e3779b97f4a7c15U), below_(below) {}
  int next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<int>((state_ >> 32) * below_ >> 32);
  }

 private:
  uint64_t state_;
  uint64_t below_;
};

// Threads that begin together and are told to stop; each says how many operations it has done.
class Race {
 public:
  using Body = std::function<uint64_t(const std::atomic<bool>&)>;

  void add(int cpu, Body body) {
    const size_t at = done_.size();
    done_.push_back(0);
    bodies_.emplace_back(cpu, std::move(body), at);
  }

  // ms == 0: until all are through.
  double run(uint64_t ms) {
    std::vector<std::thread> running;
    running.reserve(bodies_.size());
    for (auto& [cpu, body, at] : bodies_) {
      running.emplace_back([this, cpu = cpu, &body = body, at = at] {
        pin_to(cpu);
        ready_.fetch_add(1, std::memory_order_acq_rel);
        while (!go_.load(std::memory_order_acquire)) std::this_thread::yield();
        done_[at] = body(stop_);
      });
    }
    while (ready_.load(std::memory_order_acquire) != bodies_.size()) std::this_thread::yield();
    const uint64_t start = now_ns();
    go_.store(true, std::memory_order_release);
    if (ms > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(ms));
      stop_.store(true, std::memory_order_release);
    }
    for (std::thread& thread : running) thread.join();
    return static_cast<double>(now_ns() - start);
  }

  [[nodiscard]] uint64_t done(size_t at) const { return done_[at]; }

 private:
  std::vector<std::tuple<int, Body, size_t>> bodies_;
  std::vector<uint64_t> done_;
  std::atomic<size_t> ready_{0};
  std::atomic<bool> go_{false};
  std::atomic<bool> stop_{false};
};

int cpu_of(uint64_t thread) { return static_cast<int>(thread % 2); }

template <typename C>
uint64_t read_until(C& cache, const Row& row, uint64_t thread, const std::atomic<bool>& stop) {
  RandomKeys keys(thread + 1, row.keys);
  uint64_t done = 0;
  uint64_t sum = 0;
  while (!stop.load(std::memory_order_acquire)) {
    if (thread == 0) cache.tick();
    for (int64_t i = 0; i < kBurst; ++i) {
      const std::optional<int> value = cache.get(keys.next());
      sum += value ? static_cast<uint64_t>(*value) : 1'000'000'000'000U;
    }
    done += kBurst;
  }
  if (sum >= 1'000'000'000'000U) {
    std::fprintf(stderr, "bench: a key was missed\n");
    std::exit(2);
  }
  return done;
}

template <typename C>
uint64_t write_until(C& cache, const Row& row, const std::atomic<bool>& stop) {
  RandomKeys keys(77, row.keys);
  const bool paced = row.writes_per_s != UINT64_MAX;
  const uint64_t burst = paced ? row.writes_per_s / 1000 : kBurst;
  auto next = std::chrono::steady_clock::now();
  uint64_t done = 0;
  while (!stop.load(std::memory_order_acquire)) {
    for (uint64_t i = 0; i < burst; ++i) {
      const int key = keys.next();
      cache.put(key, key % 1000, seconds(kTtlSeconds));
    }
    done += burst;
    if (!paced) continue;
    next += std::chrono::milliseconds(1);
    std::this_thread::sleep_until(next);
  }
  return done;
}

template <typename C>
uint64_t mix_until(C& cache, const Row& row, uint64_t thread, const std::atomic<bool>& stop) {
  RandomKeys keys(thread + 1, row.keys);
  uint64_t done = 0;
  uint64_t sum = 0;
  while (!stop.load(std::memory_order_acquire)) {
    if (thread == 0) cache.tick();
    for (int64_t i = 0; i < kBurst; i += 2) {
      sum += static_cast<uint64_t>(cache.get(keys.next()).value_or(0));
      const int key = keys.next();
      cache.put(key, key % 1000, seconds(kTtlSeconds));
    }
    done += kBurst;
  }
  asm volatile("" : : "r"(sum));
  return done;
}

template <typename C>
uint64_t put_fresh(C& cache, const Row& row, uint64_t thread) {
  const uint64_t each = row.count / row.threads;
  const auto first = static_cast<int>(thread * each);
  for (uint64_t i = 0; i < each; ++i) {
    if (thread == 0 && i % kBurst == 0) cache.tick();
    cache.put(first + static_cast<int>(i), 99, seconds(kTtlSeconds));
  }
  return each;
}

template <typename C>
void fill(C& cache, uint64_t keys) {
  cache.tick();
  for (uint64_t i = 0; i < keys; ++i) {
    const int key = static_cast<int>(i);
    cache.put(key, key % 1000, seconds(kTtlSeconds));
  }
}

template <typename C>
Result measure(const Row& row) {
  const auto cache = std::make_unique<C>(row.name == "fresh" ? row.count : row.keys);
  Race race;
  if (row.name != "fresh") fill(*cache, row.keys);
  for (uint64_t t = 0; t < row.threads; ++t) {
    race.add(cpu_of(t), [&, t](const std::atomic<bool>& stop) {
      if (row.name == "reads") return read_until(*cache, row, t, stop);
      if (row.name == "mixed") return mix_until(*cache, row, t, stop);
      return put_fresh(*cache, row, t);
    });
  }
  if (row.writes_per_s > 0) {
    race.add(1, [&](const std::atomic<bool>& stop) { return write_until(*cache, row, stop); });
  }
  const double ns = race.run(row.name == "fresh" ? 0 : row.ms);
  uint64_t sum = 0;
  for (uint64_t t = 0; t < row.threads; ++t) sum += race.done(t);
  Result result{.mops = static_cast<double>(sum) * 1000 / ns};
  if (row.writes_per_s > 0) {
    result.writer_mops = static_cast<double>(race.done(row.threads)) * 1000 / ns;
  }
  return result;
}

struct Contender {
  std::string name;
  bool is_safe;  // for a writer beside readers
  std::function<Result(const Row&)> run;
};

template <typename C>
Contender contender(const char* name, bool is_safe = true) {
  return {name, is_safe, [](const Row& row) { return measure<C>(row); }};
}

std::vector<Contender> contenders() {
  std::vector<Contender> all;
#ifdef LUMEN_BENCH_OURS
  all.push_back(contender<OursConcurrentTick<int, int>>("lumen"));
  all.push_back(contender<OursDefault<int, int>>("lumen default"));
  all.push_back(contender<OursBackground<int, int>>("lumen background tick"));
#endif
  all.push_back(contender<Naive<int, int>>("naive"));
#ifdef LUMEN_BENCH_FLAT_BOOST
  all.push_back(contender<BoostFlat<int, int, SharedTick>>("unlocked flat map", false));
  all.push_back(contender<MutexFlat<int, int>>("mutex, flat map"));
  all.push_back(contender<SharedMutexFlat<int, int>>("shared_mutex, flat map"));
#endif
#ifdef LUMEN_BENCH_TBB
  all.push_back(contender<TbbMap<int, int>>("tbb"));
#endif
  for_concurrent_variants([&]<template <typename, typename> typename C>(const char* name) {
    all.push_back(contender<C<int, int>>(name));
  });
  return all;
}

Row row_of(const Arguments& arguments) {
  Row row;
  row.name = arguments.text("--row", "reads");
  row.threads = arguments.number("--threads", row.threads);
  row.keys = arguments.number("--keys", row.keys);
  row.count = arguments.number("--count", row.count);
  row.ms = arguments.number("--ms", row.ms);
  const std::string writer = arguments.text("--writer", "0");
  row.writes_per_s = writer == "max" ? UINT64_MAX : std::strtoull(writer.c_str(), nullptr, 10);
  return row;
}

int run(const Arguments& arguments) {
  const std::vector<Contender> all = contenders();
  if (arguments.flag("--list")) {
    for (const Contender& one : all) {
      std::printf("%s %s\n", one.is_safe ? "SAFE" : "UNLOCKED", one.name.c_str());
    }
    return 0;
  }
  const Row row = row_of(arguments);
  const std::string wanted = arguments.text("--contender", "");
  for (const Contender& one : all) {
    if (one.name != wanted) continue;
    const bool writes = row.name != "reads" || row.writes_per_s > 0;
    if (!one.is_safe && writes && row.threads + (row.writes_per_s > 0 ? 1 : 0) > 1) break;
    const Result result = one.run(row);
    std::printf("{\"mops\": %.4f, \"writer_mops\": %.4f}\n", result.mops, result.writer_mops);
    return 0;
  }
  std::fprintf(stderr, "bench_cache_threads: no contender '%s' for this row\n", wanted.c_str());
  return 2;
}

}  // namespace
}  // namespace lumen::bench

int main(int argc, char** argv) { return lumen::bench::run(lumen::bench::Arguments(argc, argv)); }
