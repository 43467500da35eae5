// ChronoCache as a contender, in the flavours that have rows; nothing while it isn't there.
// Threads: one, or any for the concurrent ones. Memory: the cache's own. Errors: bad_alloc ends it.
#pragma once

#include "contender.h"

#if __has_include(<lumen/cache/chrono_cache.h>)
#include <lumen/cache/chrono_cache.h>
#include <lumen/cache/lfu.h>
#include <lumen/cache/lru.h>
#include <lumen/cache/s3_fifo.h>

#define LUMEN_BENCH_OURS

namespace lumen::bench {

// Nothing is reserved, and everything but the policies is as a user gets it.
template <typename K, typename V, typename... Policies>
class Chrono {
  using Cache = ChronoCache<K, V, Policies...>;
  static constexpr bool kHasTick = (std::is_same_v<Policies, cache::CachedTick> || ...);

 public:
  explicit Chrono(size_t) {}
  explicit Chrono(const cache::Options& options) : cache_(options) {}
  void put(const K& key, const V& value, std::chrono::nanoseconds ttl) {
    cache_.put(key, value, ttl);
  }
  std::optional<V> get(const K& key) const { return cache_.get(key); }
  void tick() {
    if constexpr (kHasTick) cache_.tick();
  }
  [[nodiscard]] const Cache& cache() const { return cache_; }

 private:
  Cache cache_;
};

// The flavour of the five rows and of the memory's: one thread, TtlOnly, a tick that the caller
// advances.
template <typename K, typename V>
using Ours = Chrono<K, V, cache::OneThread, cache::CachedTick>;
// The usual ChronoCache<K, V>: any threads, an exact clock, TtlOnly.
template <typename K, typename V>
using OursDefault = Chrono<K, V>;
template <typename K, typename V>
using OursConcurrentTick = Chrono<K, V, cache::CachedTick>;
template <typename K, typename V>
using OursBackground = Chrono<K, V, cache::BackgroundTick>;

}  // namespace lumen::bench
#endif
