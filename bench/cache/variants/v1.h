// The story's first steps, on a node map: v1.0.00, v1.0.01, v1.0.02.
// Threads: one (the rival "naive" is v1.0.00 with a mutex). Memory: nodes. Errors: bad_alloc.
#pragma once

#include "../contender.h"

#include <chrono>
#include <memory_resource>
#include <unordered_map>
#include <utility>

namespace lumen::bench {

using SteadyTime = std::chrono::steady_clock::time_point;

// The common part of the three; `Step` says how time is read on a put and where nodes come from.
template <typename Step, typename K, typename V>
class NodeCache {
 public:
  explicit NodeCache(size_t expected) {
    if constexpr (Step::kReserves) map_.reserve(expected);
  }
  void put(const K& key, const V& value, std::chrono::nanoseconds ttl) {
    const SteadyTime now = Step::kTickOnPut ? now_ : std::chrono::steady_clock::now();
    map_.insert_or_assign(key, Timed{value, now + ttl});
  }
  std::optional<V> get(const K& key) const {
    const auto found = map_.find(key);
    if (found == map_.end()) return std::nullopt;
    if (found->second.deadline <= std::chrono::steady_clock::now()) return std::nullopt;
    return found->second.value;
  }
  void tick() {
    if constexpr (Step::kTickOnPut) now_ = std::chrono::steady_clock::now();
  }

 private:
  struct Timed {
    V value;
    SteadyTime deadline;
  };

  std::pmr::monotonic_buffer_resource arena_;
  std::pmr::unordered_map<K, Timed> map_{Step::kArena ? &arena_ : std::pmr::new_delete_resource()};
  SteadyTime now_ = std::chrono::steady_clock::now();
};

template <bool reserves, bool arena>
struct NodeStep {
  static constexpr bool kReserves = reserves;
  static constexpr bool kTickOnPut = reserves;
  static constexpr bool kArena = arena;
};

// As it began: a clock read in each put and in each get that finds something.
template <typename K, typename V>
using V1_0_00 = NodeCache<NodeStep<false, false>, K, V>;
// A put takes the deadline from the last tick, and the buckets are made for entries to come.
template <typename K, typename V>
using V1_0_01 = NodeCache<NodeStep<true, false>, K, V>;
// Nodes lie one behind the other in a monotonic arena, which gives nothing back.
template <typename K, typename V>
using V1_0_02 = NodeCache<NodeStep<true, true>, K, V>;

}  // namespace lumen::bench
