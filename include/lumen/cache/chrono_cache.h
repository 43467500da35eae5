// ChronoCache: keys and values, each with a time to live. Flat, compact, sharded, with its threads,
// its clock and its eviction chosen at compile time.
//
//   lumen::ChronoCache<int, int> cache;
//   cache.put(42, 99, std::chrono::seconds(1));
//   std::optional<int> value = std::as_const(cache).get(42);
//
// Policies, in any order, one of a kind (policies.h, clocks.h, eviction.h): Concurrent (default) or
// OneThread; ExactClock (default), CoarseClock, CachedTick, BackgroundTick; TtlOnly (default), Lru,
// Lfu, S3Fifo or your own; HashWith, EqualWith, WeighWith, OnRemoval.
//
// Deadlines: counted in ticks, Options::tick rounded down to a power of two of nanoseconds. An
// entry ends within the
//   larger of a tick and ttl / 1,024 before its deadline, and never after it; one with less than a tick to live
//   ends with the next tick. To that comes the error of the clock. A ttl of 146 years or more never ends.
// Threads: Concurrent: any, at any time. Readers take no lock, and one that is stopped stops
// nobody; a writer
//   locks one shard. OneThread: one at a time, const calls too.
// Memory: pages of its own or Options::memory (Concurrent: which then must be safe for threads). It
// never
//   doubles: segments of at most 16,384 entries grow and split one by one.
// Errors: std::bad_alloc, and the exceptions of K, V, the hash and the comparison; the cache is
// then as it was before the call. std::invalid_argument by the constructor for options that
// contradict each other.
#pragma once

#include <lumen/cache/detail/flights.h>
#include <lumen/cache/detail/policies.h>
#include <lumen/cache/detail/shards.h>
#include <lumen/cache/detail/ticker.h>
#include <lumen/cache/lfu.h>
#include <lumen/cache/lru.h>
#include <lumen/cache/s3_fifo.h>
#include <lumen/cache/ttl.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>

namespace lumen {

template <typename K, typename V, typename... Policies>
class ChronoCache {
  using Set = cache::PolicySet<Policies...>;
  using Table = cache::Table<K, V, Set>;
  using Place = typename Table::Place;
  static constexpr bool kShared = Set::Threads::kShared;
  using Shards = std::conditional_t<kShared, cache::ManyShards<Table>, cache::OneShard<Table>>;

 public:
  using Duration = std::chrono::nanoseconds;
  // Whether entries can be evicted, so that Options::max_entries and max_weight mean something.
  static constexpr bool kBounded = Table::kRecords;
  // The types that a look-up may ask for: the key itself, numbers for a number, string views for a
  // string, and types that both a HashWith and an EqualWith with is_transparent take.
  template <typename Q>
  static constexpr bool kAsks =
      std::is_invocable_v<const typename Set::Hash&, const Q&, uint64_t> &&
      std::is_invocable_r_v<bool, const typename Set::Equal&, const K&, const Q&>;

  explicit ChronoCache(const cache::Options& options = {})
      : tick_bits_(checked_tick_bits(options)),
        seed_(spread_seed(options.seed ? *options.seed : random_seed())),
        ticker_(tick_bits_),
        shards_(options, seed_) {
    ticker_.start([this] { tick(); });
  }
  ~ChronoCache() { ticker_.stop(); }
  ChronoCache(const ChronoCache&) = delete;
  ChronoCache& operator=(const ChronoCache&) = delete;

  // Puts or replaces. False: nothing is stored, because ttl is not above 0, or the value alone is
  // above the bound, or the eviction policy has not admitted it. An entry with the key is gone
  // then, too: its value is not the latest.
  bool put(K key, V value, cache::Ttl ttl)
    requires std::is_trivially_copyable_v<K>
  {
    return put_as(std::move(key), std::move(value), ttl);
  }
  // A key that is there already is not copied.
  bool put(const K& key, V value, cache::Ttl ttl)
    requires(!std::is_trivially_copyable_v<K>)
  {
    return put_as(key, std::move(value), ttl);
  }
  bool put(K&& key, V value, cache::Ttl ttl)
    requires(!std::is_trivially_copyable_v<K>)
  {
    return put_as(std::move(key), std::move(value), ttl);
  }
  // The same, but never waits: false too while another writer has the shard, or a computed value is
  // being stored; an entry with the key is as it was then (get_or_refresh() may leave it so, too).
  bool try_put(K key, V value, cache::Ttl ttl) {
    const uint64_t hash = hash_of(key);
    auto& shard = shards_.of(hash);
    const bool is_erased = ttl.ns() == 0 || shard.table().is_above_bound(key, value);
    const auto change = is_erased ? cache::Change::kErased : cache::Change::kPut;
    if (!flights_.try_keep_out(change, hash, key)) return false;
    const auto guard = shard.try_lock();
    if (!guard) return false;
    if (is_erased) [[unlikely]] {
      shard.table().erase(hash, key, now_tick());
      return false;
    }
    return put_locked(shard, hash, std::move(key), std::move(value), ttl);
  }

  // A copy of the live value.
  template <typename Q>
  [[nodiscard]] std::optional<V> get(const Q& key) const {
    return look<std::optional<V>>(key, [](const K&, const V& value) { return copy_of(value); });
  }
  template <typename Q>
  [[nodiscard]] bool contains(const Q& key) const {
    return look<bool>(key, [](const K&, const V&) { return true; });
  }
  // f(const V&) on the live value, where it lies or on a copy; false: there is none. f may read the
  // cache.
  template <typename Q, typename F>
  bool visit(const Q& key, F&& f) const {
    const auto call = [&](const K&, const V& value) {
      std::invoke(f, value);
      return true;
    };
    return look<bool>(key, call);
  }
  // Removes the live value and returns it; Concurrent copies it, since readers may be at it.
  template <typename Q>
  [[nodiscard]] std::optional<V> take(const Q& key);
  // False: there was no live one.
  template <typename Q>
  bool erase(const Q& key) {
    return with_key(key, [&](const auto& asked) {
      const uint64_t hash = hash_of(asked);
      flights_.keep_out(cache::Change::kErased, hash, asked);
      auto& shard = shards_.of(hash);
      const auto guard = shard.lock();
      return shard.table().erase(hash, asked, now_tick());
    });
  }
  void clear() {
    flights_.keep_all_out();
    shards_.each([](auto& shard) {
      const auto guard = shard.lock();
      shard.table().clear();
    });
  }

  // Live entries, to a tick. Takes time for each shard, none for each entry; of a concurrent cache
  // a shard where time has passed since anybody wrote there is locked for it.
  [[nodiscard]] size_t size() const noexcept;

  // The live value, or the result of compute(), stored for `ttl`. Concurrent calls for one key
  // compute once. If compute() throws, its caller gets the exception and one that waits computes;
  // erase() and clear() meanwhile keep the value from being stored, and a put() meanwhile is left
  // as it is; callers that wait get the computed value, even if its ttl is over by then. compute()
  // may ask for other keys, of other caches too; for its own: std::logic_error. If threads would
  // wait for each other in a circle, the last one to ask computes for itself.
  template <typename F>
  [[nodiscard]] V get_or_compute(const K& key, cache::Ttl ttl, F&& compute);

  // The same, and a live value that was stored `fresh` ago or longer is due: one caller computes it
  // anew and waits for that, and the others get the value as it is meanwhile (RFC 5861,
  // stale-while-revalidate; Caffeine's refreshAfterWrite in the caller's thread). Its age is
  // reckoned from its deadline, as if it was stored for `ttl`. If compute() throws, its caller gets
  // the exception, the value stays, and the next caller computes.
  template <typename F>
  [[nodiscard]] V get_or_refresh(const K& key, cache::Ttl ttl, cache::Ttl fresh, F&& compute);

  // f(const K&, const V&) on each live entry; a shard is locked meanwhile, so f must not use the
  // cache.
  template <typename F>
  void for_each(F&& f) const;

  // One call for many; how many were stored, found, erased. The spans of one call are equally long.
  size_t put_many(std::span<const K> keys, std::span<const V> values, cache::Ttl ttl);
  size_t get_many(std::span<const K> keys, std::span<std::optional<V>> values) const;
  size_t erase_many(std::span<const K> keys);

  // Time goes on: for CachedTick this is the only way it does; for the others it is not needed, but
  // expired entries are removed here, kSweptATick groups of 16 slots a shard at most.
  void tick() noexcept;
  static constexpr size_t kSweptATick = 256;
  static constexpr size_t kPrefetched = 16;  // get_many(): more than a core has outstanding misses

  // The unit in which deadlines are counted.
  [[nodiscard]] Duration resolution() const noexcept { return Duration(uint64_t{1} << tick_bits_); }
  [[nodiscard]] cache::Stats stats() const;

 private:
  [[nodiscard]] static uint32_t checked_tick_bits(const cache::Options& options);
  // A factor of the hash of numbers: odd, and not small, though it was given as 1.
  [[nodiscard]] static uint64_t spread_seed(uint64_t seed) noexcept {
    return cache::fold_product(seed ^ cache::kHashSecond, cache::kHashFactor) | 1;
  }
  [[nodiscard]] static uint64_t random_seed() {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }
  [[nodiscard]] uint64_t now_ns() const noexcept { return ticker_.now_ns(); }
  [[nodiscard]] uint64_t now_tick() const noexcept { return ticker_.now_tick(); }
  template <typename Q>
  [[nodiscard]] uint64_t hash_of(const Q& key) const {
    return hash_(key, seed_);
  }
  // A number is asked for as the key's type, so that -1 is the same key in any type.
  template <typename Q, typename F>
  static decltype(auto) with_key(const Q& key, F&& f) {
    if constexpr (std::is_arithmetic_v<K> && std::is_arithmetic_v<Q>) {
      return f(static_cast<const K&>(static_cast<K>(key)));
    } else if constexpr (!std::is_pointer_v<K> && std::convertible_to<const Q&, std::string_view> &&
                         std::convertible_to<const K&, std::string_view>) {
      return f(std::string_view(key));
    } else {
      static_assert(kAsks<Q>, "ChronoCache: hash or comparison don't take this type of key");
      return f(key);
    }
  }
  [[nodiscard, gnu::always_inline]] static std::optional<V> copy_of(const V& value) {
    // A found value was just written by vectors or words: a wider load would wait until their
    // stores have left the core's store buffer, 1 ns of 13 for 64 bytes.
    if constexpr (Table::kOverwrites && sizeof(V) > 16 && alignof(V) >= sizeof(uint64_t)) {
      std::optional<V> copy(std::in_place);
      cache::load_value(*copy, value);
      return copy;
    } else {
      return std::optional<V>(value);
    }
  }
  // f(const K&, const V&) on the live entry, and its result; Result{} if there is none.
  template <typename Result, typename Q, typename F>
  Result look(const Q& key, F&& f) const {
    return look_at<Result>(key, ticker_.moment(), std::forward<F>(f));
  }
  template <typename Result, typename Q, typename Moment, typename F>
  Result look_at(const Q& key, const Moment& now, F&& f) const {
    return with_key(key, [&](const auto& asked) -> Result {
      const uint64_t hash = hash_of(asked);
      auto& shard = shards_.of(hash);
      if constexpr (kShared) {
        typename Table::Holder holder;
        return shard.table().template read<Result>(
            hash, asked, now, holder, [&](const typename Table::Found& found) -> Result {
              if constexpr (Table::kRecords) shard.hit(found.record);
              return f(found.key(), found.value());
            });
      } else {
        const Place place = shard.table().find(hash, asked);
        if (!place || shard.table().ended(place, now)) return Result{};
        shard.table().note_use(place);
        const auto& pair = shard.table().pair_at(place);
        return f(pair.key, pair.value);
      }
    });
  }
  template <typename K2>
  [[gnu::always_inline]] bool put_as(K2&& key, V&& value, cache::Ttl ttl) {
    if (ttl.ns() == 0) [[unlikely]] {
      erase(key);
      return false;
    }
    const uint64_t hash = hash_of(key);
    auto& shard = shards_.of(hash);
    if (shard.table().is_above_bound(key, value)) [[unlikely]] {
      erase(key);
      return false;
    }
    flights_.keep_out(cache::Change::kPut, hash, key);
    const auto guard = shard.lock();
    return put_locked(shard, hash, std::forward<K2>(key), std::move(value), ttl);
  }
  // Under the lock. The value before is not the latest. Apart, and with a key of its own, so that
  // put() stays small and keeps its key in a register.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): for that reason
  [[gnu::noinline, gnu::cold]] bool refuse(Table& table, uint64_t hash, K key) {
    table.erase(hash, key, now_tick());
    return false;
  }
  template <typename Shard, typename K2>
  bool put_locked(Shard& shard, uint64_t hash, K2&& key, V&& value, cache::Ttl ttl) {
    Table& table = shard.table();
    const cache::DeadlineId id =
        table.deadline_for(ticker_.start_ns(ttl.ns()), ttl.ns(), tick_bits_);
    if (id == cache::kNoDeadline) [[unlikely]]
      return refuse(table, hash, std::forward<K2>(key));
    shard.drain();
    return table.put(hash, std::forward<K2>(key), std::move(value), id) != Table::Outcome::kRefused;
  }

  using Flights = std::conditional_t<kShared, cache::Flights<K, V, typename Set::Equal>,
                                     cache::NestedFlights<K, V, typename Set::Equal>>;

  uint32_t tick_bits_;
  uint64_t seed_;
  cache::Ticker<typename Set::Clock, kShared> ticker_;
  mutable Shards shards_;  // const calls note uses, and let time pass
  [[no_unique_address]] typename Set::Hash hash_;
  [[no_unique_address]] Flights flights_;
};

}  // namespace lumen

#include <lumen/cache/detail/longer_calls.h>
