// The calls of a ChronoCache that are longer than a few lines. See chrono_cache.h, which includes
// this.
// Threads, Memory, Errors: as there.
#pragma once

#include <lumen/cache/chrono_cache.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace lumen {

template <typename K, typename V, typename... Policies>
uint32_t ChronoCache<K, V, Policies...>::checked_tick_bits(const cache::Options& options) {
  if (options.tick.count() <= 0) {
    throw std::invalid_argument("ChronoCache: Options::tick is not above 0; 1 ms is the default");
  }
  if (!Table::kRecords && (options.max_entries != 0 || options.max_weight != 0)) {
    throw std::invalid_argument(
        "ChronoCache: max_entries and max_weight need an eviction policy (Lru, Lfu, S3Fifo): "
        "TtlOnly evicts nothing");
  }
  if (options.shards != 0 && !std::has_single_bit(options.shards)) {
    throw std::invalid_argument("ChronoCache: Options::shards is not a power of two");
  }
  return static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(options.tick.count()))) - 1;
}

template <typename K, typename V, typename... Policies>
template <typename Q>
std::optional<V> ChronoCache<K, V, Policies...>::take(const Q& key) {
  return with_key(key, [&](const auto& asked) -> std::optional<V> {
    const uint64_t hash = hash_of(asked);
    flights_.keep_out(cache::Change::kErased, hash, asked);
    auto& shard = shards_.of(hash);
    const auto guard = shard.lock();
    const Place place = shard.table().find(hash, asked);
    if (!place || shard.table().ended(place, now_tick())) return std::nullopt;
    std::optional<V> taken;
    if constexpr (kShared) {
      static_assert(
          std::is_copy_constructible_v<V>,
          "take() of a Concurrent cache copies, since a reader may be at the value: visit()");
      taken.emplace(shard.table().pair_at(place).value);
    } else if constexpr (std::is_nothrow_move_constructible_v<V>) {
      shard.table().remove(place, cache::Removal::kErased,
                           [&] { taken.emplace(std::move(shard.table().value_at(place))); });
      return taken;
    } else {
      taken.emplace(std::move_if_noexcept(shard.table().value_at(place)));
    }
    shard.table().remove(place, cache::Removal::kErased);
    return taken;
  });
}

template <typename K, typename V, typename... Policies>
size_t ChronoCache<K, V, Policies...>::size() const noexcept {
  const uint64_t now = now_tick();
  size_t live = 0;
  shards_.each([&](auto& shard) {
    auto& deadlines = shard.table().deadlines();
    if (deadlines.passed() < now) {
      const auto guard = shard.lock();
      deadlines.advance(now);
    }
    live += deadlines.live();
  });
  return live;
}

template <typename K, typename V, typename... Policies>
template <typename F>
V ChronoCache<K, V, Policies...>::get_or_compute(const K& key, cache::Ttl ttl, F&& compute) {
  if (std::optional<V> found = get(key)) return *std::move(found);
  const uint64_t hash = hash_of(key);
  const auto store = [&](K its_key, V value) {
    if (ttl.ns() == 0) return;
    auto& shard = shards_.of(hash);
    const auto guard = shard.lock();
    const Place place = shard.table().find(hash, its_key);
    if (place && !shard.table().ended(place, now_tick())) return;  // put() was quicker
    put_locked(shard, hash, std::move(its_key), std::move(value), ttl);
  };
  return flights_.run(
      hash, key, false, [&] { return get(key); }, [] { return std::optional<V>(); },
      std::forward<F>(compute), store);
}

template <typename K, typename V, typename... Policies>
template <typename F>
V ChronoCache<K, V, Policies...>::get_or_refresh(const K& key, cache::Ttl ttl, cache::Ttl fresh,
                                                 F&& compute) {
  const uint64_t stale_ticks = (ttl.ns() - std::min(ttl.ns(), fresh.ns())) >> tick_bits_;
  const auto get_fresh = [&] {
    const auto moment = ticker_.moment();
    return look_at<std::optional<V>>(key, cache::Ahead{moment, stale_ticks},
                                     [](const K&, const V& value) { return copy_of(value); });
  };
  if (std::optional<V> found = get_fresh()) return *std::move(found);
  const uint64_t hash = hash_of(key);
  const auto store = [&](K its_key, V value) {
    if (ttl.ns() == 0) return;
    auto& shard = shards_.of(hash);
    const auto guard = shard.lock();
    put_locked(shard, hash, std::move(its_key), std::move(value), ttl);
  };
  return flights_.run(
      hash, key, true, get_fresh, [&] { return get(key); }, std::forward<F>(compute), store);
}

template <typename K, typename V, typename... Policies>
template <typename F>
void ChronoCache<K, V, Policies...>::for_each(F&& f) const {
  shards_.each([&](auto& shard) {
    const auto guard = shard.lock();
    shard.table().for_each_live(now_tick(), f);
  });
}

template <typename K, typename V, typename... Policies>
size_t ChronoCache<K, V, Policies...>::put_many(std::span<const K> keys, std::span<const V> values,
                                                cache::Ttl ttl) {
  if (keys.size() != values.size()) {
    throw std::invalid_argument("ChronoCache::put_many: keys and values differ in number");
  }
  size_t stored = 0;
  for (size_t i = 0; i < keys.size(); ++i) stored += put(keys[i], values[i], ttl) ? 1 : 0;
  return stored;
}

template <typename K, typename V, typename... Policies>
size_t ChronoCache<K, V, Policies...>::get_many(std::span<const K> keys,
                                                std::span<std::optional<V>> values) const {
  if (keys.size() != values.size()) {
    throw std::invalid_argument("ChronoCache::get_many: keys and values differ in number");
  }
  size_t found = 0;
  for (size_t first = 0; first < keys.size(); first += kPrefetched) {
    const size_t end = std::min(first + kPrefetched, keys.size());
    // All of them wait for memory at once.
    for (size_t i = first; i < end; ++i) {
      const uint64_t hash = hash_of(keys[i]);
      shards_.of(hash).table().prefetch(hash);
    }
    for (size_t i = first; i < end; ++i) {
      values[i] = get(keys[i]);
      found += values[i].has_value() ? 1 : 0;
    }
  }
  return found;
}

template <typename K, typename V, typename... Policies>
size_t ChronoCache<K, V, Policies...>::erase_many(std::span<const K> keys) {
  size_t erased = 0;
  for (const K& key : keys) erased += erase(key) ? 1 : 0;
  return erased;
}

template <typename K, typename V, typename... Policies>
void ChronoCache<K, V, Policies...>::tick() noexcept {
  ticker_.advance();
  const uint64_t now = now_tick();
  shards_.each([&](auto& shard) {
    // A writer that is there lets time pass itself; the rest is for the next tick.
    const auto guard = shard.try_lock();
    if (!guard) return;
    shard.drain();
    shard.table().sweep(kSweptATick, now);
  });
}

template <typename K, typename V, typename... Policies>
cache::Stats ChronoCache<K, V, Policies...>::stats() const {
  cache::Stats stats;
  const uint64_t now = now_tick();
  shards_.each([&](auto& shard) {
    const auto guard = shard.lock();
    shard.table().add_to(stats, now);
  });
  return stats;
}

}  // namespace lumen
