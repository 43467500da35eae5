// The rivals of one program: maps with a deadline beside each value, and the locks that make them
// safe for threads. Those whose package is missing are left out.
// Threads: MapCache has one; the others say so. Memory: the maps'. Errors: bad_alloc ends the
// bench.
#pragma once

#include "contender.h"

#include <atomic>
#include <memory_resource>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#ifdef LUMEN_BENCH_FLAT_BOOST
#include <boost/unordered/unordered_flat_map.hpp>
#endif
#ifdef LUMEN_BENCH_ABSL
#include <absl/container/flat_hash_map.h>
#endif
#ifdef LUMEN_BENCH_TBB
#include <tbb/concurrent_hash_map.h>
#endif

namespace lumen::bench {

// The clock of all with a cached tick: milliseconds since the start, wrapping after 49 days, as no
// bench runs so long.
struct PlainTick {
  [[nodiscard]] uint32_t now() const { return now_; }
  void set(uint32_t now) { now_ = now; }
  uint32_t now_ = 0;
};

struct SharedTick {
  // relaxed: a tick that is seen late is the error of a cached tick.
  [[nodiscard]] uint32_t now() const { return now_.load(std::memory_order_relaxed); }
  // relaxed: as above.
  void set(uint32_t now) { now_.store(now, std::memory_order_relaxed); }
  std::atomic<uint32_t> now_{0};
};

template <typename Now>
class TickClock {
 public:
  [[nodiscard]] uint32_t now() const { return now_.now(); }
  void tick() {
    using std::chrono::milliseconds;
    const auto since = std::chrono::steady_clock::now() - start_;
    now_.set(static_cast<uint32_t>(std::chrono::duration_cast<milliseconds>(since).count()));
  }
  [[nodiscard]] uint32_t deadline(std::chrono::nanoseconds ttl) const {
    using std::chrono::milliseconds;
    return now() + static_cast<uint32_t>(std::chrono::duration_cast<milliseconds>(ttl).count());
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Now now_;
};

template <typename V>
struct Entry {
  V value;
  uint32_t deadline;
};

template <typename Map, typename K, typename V, typename Now = PlainTick>
class MapCache {
 public:
  explicit MapCache(size_t) {}
  void put(const K& key, const V& value, std::chrono::nanoseconds ttl) {
    map_.insert_or_assign(key, Entry<V>{value, clock_.deadline(ttl)});
  }
  std::optional<V> get(const K& key) const {
    const auto found = map_.find(key);
    if (found == map_.end() || found->second.deadline <= clock_.now()) return std::nullopt;
    return found->second.value;
  }
  void tick() { clock_.tick(); }

 private:
  Map map_;
  TickClock<Now> clock_;
};

// Its hash of an int is the int: consecutive keys lie side by side. boost's is too, but the map
// mixes it; absl's with an identity hash takes microseconds a put, since consecutive keys share a
// place.
template <typename K, typename V>
using StdMap = MapCache<std::unordered_map<K, Entry<V>>, K, V>;

#ifdef LUMEN_BENCH_FLAT_BOOST
template <typename K, typename V, typename Now = PlainTick>
using BoostFlat = MapCache<boost::unordered_flat_map<K, Entry<V>>, K, V, Now>;
#endif
#ifdef LUMEN_BENCH_ABSL
template <typename K, typename V>
using AbslFlat = MapCache<absl::flat_hash_map<K, Entry<V>>, K, V>;
#endif

// The naive design: a node map, the clock read on every call, one mutex around it. Any threads.
template <typename K, typename V>
class Naive {
 public:
  explicit Naive(size_t) {}
  void put(const K& key, const V& value, std::chrono::nanoseconds ttl) {
    const auto deadline = std::chrono::steady_clock::now() + ttl;
    const std::lock_guard lock(mutex_);
    map_.insert_or_assign(key, Timed{value, deadline});
  }
  std::optional<V> get(const K& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = map_.find(key);
    if (found == map_.end()) return std::nullopt;
    if (found->second.deadline <= std::chrono::steady_clock::now()) return std::nullopt;
    return found->second.value;
  }
  void tick() {}

 private:
  struct Timed {
    V value;
    std::chrono::steady_clock::time_point deadline;
  };
  mutable std::mutex mutex_;
  std::unordered_map<K, Timed> map_;
};

// One lock around a map. Any threads; a shared one lets readers in together.
template <typename Inner, typename Mutex, typename K, typename V>
class Locked {
 public:
  explicit Locked(size_t expected) : inner_(expected) {}
  void put(const K& key, const V& value, std::chrono::nanoseconds ttl) {
    const std::lock_guard lock(mutex_);
    inner_.put(key, value, ttl);
  }
  std::optional<V> get(const K& key) const {
    if constexpr (std::is_same_v<Mutex, std::shared_mutex>) {
      const std::shared_lock lock(mutex_);
      return inner_.get(key);
    } else {
      const std::lock_guard lock(mutex_);
      return inner_.get(key);
    }
  }
  void tick() { inner_.tick(); }

 private:
  mutable Mutex mutex_;
  Inner inner_;
};

#ifdef LUMEN_BENCH_FLAT_BOOST
template <typename K, typename V>
using MutexFlat = Locked<BoostFlat<K, V, SharedTick>, std::mutex, K, V>;
template <typename K, typename V>
using SharedMutexFlat = Locked<BoostFlat<K, V, SharedTick>, std::shared_mutex, K, V>;
#endif

#ifdef LUMEN_BENCH_TBB
// Any threads: an accessor locks the element it stands on.
template <typename K, typename V>
class TbbMap {
  using Map = tbb::concurrent_hash_map<K, Entry<V>>;

 public:
  explicit TbbMap(size_t) {}
  void put(const K& key, const V& value, std::chrono::nanoseconds ttl) {
    const Entry<V> entry{value, clock_.deadline(ttl)};
    typename Map::accessor at;
    if (!map_.insert(at, {key, entry})) at->second = entry;
  }
  std::optional<V> get(const K& key) const {
    typename Map::const_accessor at;
    if (!map_.find(at, key) || at->second.deadline <= clock_.now()) return std::nullopt;
    return at->second.value;
  }
  void tick() { clock_.tick(); }

 private:
  Map map_;
  TickClock<SharedTick> clock_;
};
#endif

}  // namespace lumen::bench
