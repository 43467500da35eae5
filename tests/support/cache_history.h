// Histories of a concurrent cache: threads that call it as they like, and the cache's answers, for
// linearizability.h.
//
// Threads: run_history() makes its own. Memory: the heap. Errors: never; the checker finds them.
#pragma once

#include "support/linearizability.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace lumen::test {

// Copied word by word by readers: large, so that it takes them long.
struct Wide {
  std::array<uint64_t, 25> words;
};

// A value is a number that is put once, and is told from a torn one, which is a number that is
// never put.
inline constexpr uint64_t kTorn = UINT64_MAX;
template <typename T>
struct Numbered {
  static T make(uint64_t number) { return static_cast<T>(number); }
  static uint64_t number(const T& value) { return static_cast<uint64_t>(value); }
};
template <>
struct Numbered<Wide> {
  static Wide make(uint64_t number) {
    Wide wide;
    wide.words.fill(number);
    return wide;
  }
  static uint64_t number(const Wide& value) {
    for (const uint64_t word : value.words) {
      if (word != value.words[0]) return kTorn;
    }
    return value.words[0];
  }
};
template <>
struct Numbered<std::string> {
  // Too long for the string itself.
  static std::string make(uint64_t number) { return std::to_string(number) + std::string(40, 'v'); }
  static uint64_t number(const std::string& value) {
    char* end = nullptr;
    const uint64_t number = std::strtoull(value.c_str(), &end, 10);
    return value == make(number) ? number : kTorn;
  }
};

// Few keys and many calls: on two CPUs half of the calls are then under way with another one on
// their key, and with 4 keys and 100 calls one in fifteen.
struct HistoryPlan {
  uint32_t threads = 3;
  uint64_t keys = 2;
  uint32_t calls = 1'000;  // of each thread
  bool clears = true;
  // Of 16 calls, so many put a key that nobody looks at: filler_at, filler_at + 1, ...
  uint32_t fillers_in_16 = 0;
  uint64_t filler_at = 0;
};

// Far from each other: keys of one block of 4,096 neighbours always have one segment.
inline constexpr uint64_t kKeysApart = uint64_t{1} << 20;
template <typename K>
[[nodiscard]] K history_key(uint64_t key) {
  return Numbered<K>::make((key + 1) * kKeysApart);
}
template <typename K>
[[nodiscard]] K filler_key(uint64_t number) {
  return Numbered<K>::make((number << 12) + 1);
}
inline constexpr std::chrono::hours kHistoryTtl{24};

template <typename Cache, typename K, typename V>
class HistoryThread {
 public:
  HistoryThread(Cache& cache, std::atomic<uint64_t>& clock, std::atomic<uint64_t>& fillers,
                const HistoryPlan& plan, uint32_t number, uint64_t seed)
      : cache_(cache),
        clock_(clock),
        fillers_(fillers),
        plan_(plan),
        number_(number),
        random_(seed) {
    operations_.reserve(plan.calls * size_t{2});
  }
  void run() {
    for (uint32_t i = 0; i < plan_.calls; ++i) {
      if (random_() % 16 < plan_.fillers_in_16) {
        // relaxed: a number
        const uint64_t filler = fillers_.fetch_add(1, std::memory_order_relaxed);
        cache_.put(filler_key<K>(filler), Numbered<V>::make(1), kHistoryTtl);
      } else {
        call(random_() % plan_.keys);
      }
    }
  }
  [[nodiscard]] const std::vector<Operation>& operations() const noexcept { return operations_; }

 private:
  // seq_cst: a thread that draws the larger one drew it later.
  uint64_t stamp() noexcept { return clock_.fetch_add(1, std::memory_order_seq_cst) + 1; }
  uint64_t fresh_value() noexcept { return (uint64_t{number_} + 1) << 32 | ++values_; }
  Operation begin(Call call, uint64_t key) noexcept {
    Operation one;
    one.call = call;
    one.key = key;
    one.thread = number_;
    one.began = stamp();
    return one;
  }
  void end(Operation& one) {
    one.returned = stamp();
    operations_.push_back(one);
  }
  static uint64_t number_of(const std::optional<V>& value) {
    return value ? Numbered<V>::number(*value) : 0;
  }

  void call(uint64_t key) {
    const K name = history_key<K>(key);
    switch (random_() % 32) {
      case 0:
      case 1: return contains(key, name);
      case 2:
      case 3:
      case 4:
      case 5: return erase(key, name);
      case 6: return take(key, name);
      case 7:
      case 8:
      case 9: return compute(key, name);
      case 10:
        if (plan_.clears && random_() % 8 == 0) return clear();
        return visit(key, name);
      case 11:
      case 12:
      case 13:
      case 14:
      case 15:
      case 16:
      case 17:
      case 18:
      case 19:
      case 20: return put(key, name);
      default: return get(key, name);
    }
  }
  void put(uint64_t key, const K& name) {
    const uint64_t number = fresh_value();
    V value = Numbered<V>::make(number);
    Operation one = begin(Call::kPut, key);
    one.answer = cache_.put(name, std::move(value), kHistoryTtl);
    one.value = number;
    end(one);
  }
  void get(uint64_t key, const K& name) {
    Operation one = begin(Call::kGet, key);
    const std::optional<V> found = cache_.get(name);
    one.returned = stamp();
    one.value = number_of(found);
    operations_.push_back(one);
  }
  void visit(uint64_t key, const K& name) {
    Operation one = begin(Call::kGet, key);
    cache_.visit(name, [&](const V& value) { one.value = Numbered<V>::number(value); });
    end(one);
  }
  void contains(uint64_t key, const K& name) {
    Operation one = begin(Call::kContains, key);
    one.answer = cache_.contains(name);
    end(one);
  }
  void erase(uint64_t key, const K& name) {
    Operation one = begin(Call::kErase, key);
    one.answer = cache_.erase(name);
    end(one);
  }
  void take(uint64_t key, const K& name) {
    Operation one = begin(Call::kTake, key);
    one.value = number_of(cache_.take(name));
    end(one);
  }
  // Key after key, so each for itself is gone at one moment, and not all at the same.
  void clear() {
    Operation one = begin(Call::kDrop, 0);
    cache_.clear();
    one.returned = stamp();
    for (one.key = 0; one.key < plan_.keys; ++one.key) operations_.push_back(one);
  }
  // Two calls for the checker: one that found nothing, and the value that was stored in the end.
  void compute(uint64_t key, const K& name) {
    Operation asked = begin(Call::kGet, key);
    Operation fill = asked;
    fill.call = Call::kFill;
    fill.asked = asked.began;
    const V value = cache_.get_or_compute(name, kHistoryTtl, [&] {
      asked.returned = stamp();
      fill.computing = asked.returned;
      fill.value = fresh_value();
      if (random_() % 4 == 0) std::this_thread::yield();
      V made = Numbered<V>::make(fill.value);
      fill.began = stamp();
      return made;
    });
    const uint64_t returned = stamp();
    if (fill.value == 0) {
      asked.returned = returned;
      asked.value = Numbered<V>::number(value);
      asked.may_wait = true;
      operations_.push_back(asked);
      return;
    }
    operations_.push_back(asked);
    fill.returned = returned;
    if (Numbered<V>::number(value) != fill.value) fill.value = kTorn;
    operations_.push_back(fill);
  }

  Cache& cache_;
  std::atomic<uint64_t>& clock_;
  std::atomic<uint64_t>& fillers_;
  const HistoryPlan& plan_;
  const uint32_t number_;
  std::mt19937_64 random_;
  uint64_t values_ = 0;
  std::vector<Operation> operations_;
};

// The calls on the plan's keys. The cache has none of them in it.
template <typename K, typename V, typename Cache>
[[nodiscard]] std::vector<Operation> run_history(Cache& cache, const HistoryPlan& plan,
                                                 uint64_t seed) {
  using Thread = HistoryThread<Cache, K, V>;
  std::atomic<uint64_t> clock{0};
  std::atomic<uint64_t> fillers{plan.filler_at};
  std::atomic<uint32_t> ready{0};
  std::vector<Thread> work;
  for (uint32_t i = 0; i < plan.threads; ++i) {
    work.emplace_back(cache, clock, fillers, plan, i, seed * 16 + i);
  }
  std::vector<std::thread> threads;
  for (Thread& one : work) {
    threads.emplace_back([&] {
      // seq_cst: all begin at once, or nothing would be under way with anything.
      ready.fetch_add(1, std::memory_order_seq_cst);
      while (ready.load(std::memory_order_seq_cst) != plan.threads) std::this_thread::yield();
      one.run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Operation> history;
  for (const Thread& one : work) {
    history.insert(history.end(), one.operations().begin(), one.operations().end());
  }
  return history;
}

// How many returns came while another call on the key was under way: none, and the history shows
// nothing.
[[nodiscard]] inline size_t overlaps(std::vector<Operation> history) {
  std::sort(history.begin(), history.end(),
            [](const Operation& a, const Operation& b) { return a.began < b.began; });
  std::map<uint64_t, uint64_t> latest_return;
  size_t found = 0;
  for (const Operation& one : history) {
    uint64_t& latest = latest_return[one.key];
    found += one.began < latest ? 1 : 0;
    latest = std::max(latest, one.returned);
  }
  return found;
}

}  // namespace lumen::test
