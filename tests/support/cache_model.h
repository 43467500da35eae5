// A ChronoCache and a simple model of it side by side: every answer of the cache is one that the
// model allows. Used by the property tests with a seeded generator, and by the fuzz target with the
// fuzzer's bytes.
// Threads: one. Memory: the heap. Errors: the first disagreement as text.
#pragma once

#include <lumen/cache/chrono_cache.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace lumen::test {

// The listener's calls.
struct Removals {
  static inline size_t values = 0;
  template <typename K, typename V>
  void operator()(const K&, const V&, cache::Removal) const noexcept {
    ++values;
  }
};

template <typename T>
struct FromNumber {
  static T make(uint32_t number) { return static_cast<T>(number); }
};
template <>
struct FromNumber<std::string> {
  // Some fit into the string itself, some do not.
  static std::string make(uint32_t number) {
    return std::string(number % 3 == 0 ? 30 : 3, 'x') + std::to_string(number);
  }
};

// kBounded: the cache may have evicted entries that the model still has.
template <typename Cache, typename K, typename V, bool kBounded>
class CacheModel {
 public:
  explicit CacheModel(const cache::Options& options) : cache_(options), options_(options) {
    Removals::values = 0;
  }

  // Does one operation, chosen by `kind` and `number`. The disagreement, if there is one.
  [[nodiscard]] std::optional<std::string> step(uint32_t kind, uint32_t number) {
    const uint32_t name = number % kKeys;
    switch (kind % 16) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: return put(name, number);
      case 5:
      case 6:
      case 7: return get(name);
      case 8: return erase(name);
      case 9: return contains(name);
      case 10:
        cache::FakeClock::advance_ns(number % 3'000'000);
        cache_.tick();
        return std::nullopt;
      case 11:
        cache::FakeClock::advance_ns(number % 16 == 0 ? kYearNs : uint64_t{number} * 100);
        return std::nullopt;
      case 12: return take(name);
      case 13: return all();
      case 14:
        if (number % 64 == 0) return clear();
        return size();
      default: return size();
    }
  }
  // Every value that was put and is not there has been told to the listener, once.
  [[nodiscard]] std::optional<std::string> settled() {
    const cache::Stats stats = cache_.stats();
    const size_t there = stats.entries + stats.reclaimable;
    if (puts_ != Removals::values + there) {
      return "put " + std::to_string(puts_) + ", removed " + std::to_string(Removals::values) +
             ", there " + std::to_string(there);
    }
    return std::nullopt;
  }

 private:
  static constexpr uint32_t kKeys = 3'000;
  static constexpr uint64_t kYearNs = 365ull * 24 * 3600 * 1'000'000'000;
  struct Item {
    V value;
    uint64_t deadline_ns;
    uint64_t slack_ns;  // how much earlier it may end
  };

  [[nodiscard]] static uint64_t now() { return cache::FakeClock{}.read_ns(); }
  [[nodiscard]] uint64_t tick_ns() const {
    return static_cast<uint64_t>(cache_.resolution().count());
  }
  [[nodiscard]] bool may_live(const Item& item) const {
    return now() < item.deadline_ns + tick_ns();
  }
  [[nodiscard]] bool must_live(const Item& item) const {
    return !kBounded && now() + item.slack_ns < item.deadline_ns;
  }
  [[nodiscard]] static K key(uint32_t name) { return FromNumber<K>::make(name); }

  [[nodiscard]] static uint64_t ttl_of(uint32_t number) {
    switch (number / 7 % 8) {
      case 0: return 1 + number % 1'000'000;  // less than two ticks
      case 1:
      case 2: return 1'000'000ull * (1 + number % 100);
      case 3:
      case 4: return 1'000'000'000ull * (1 + number % 100);
      case 5: return kYearNs * (1 + number % 40);
      case 6: return INT64_MAX;
      default: return 0;
    }
  }
  std::optional<std::string> put(uint32_t name, uint32_t number) {
    const uint64_t ttl = ttl_of(number);
    V value = FromNumber<V>::make(number);
    const bool stored =
        cache_.put(key(name), value, std::chrono::nanoseconds(static_cast<int64_t>(ttl)));
    if (ttl == 0) {
      model_.erase(name);
      return stored ? std::optional<std::string>("stored without a time to live") : std::nullopt;
    }
    ++puts_;
    if (!stored && !kBounded) return "put refused";
    model_.insert_or_assign(name,
                            Item{std::move(value), now() + ttl, std::max(tick_ns(), ttl / 1'000)});
    return std::nullopt;
  }
  // The cache's answer for a key against the allowed ones.
  std::optional<std::string> judge(uint32_t name, const std::optional<V>& found) {
    const auto known = model_.find(name);
    if (found) {
      if (known == model_.end()) return "found what was never put or is erased";
      if (!(known->second.value == *found)) return "found another value";
      if (!may_live(known->second)) return "found what has ended";
    } else if (known != model_.end() && must_live(known->second)) {
      return "lost a live entry";
    }
    return std::nullopt;
  }
  std::optional<std::string> get(uint32_t name) { return judge(name, cache_.get(key(name))); }
  std::optional<std::string> contains(uint32_t name) {
    const auto known = model_.find(name);
    const bool found = cache_.contains(key(name));
    if (found && (known == model_.end() || !may_live(known->second))) return "contains too much";
    if (!found && known != model_.end() && must_live(known->second)) return "contains too little";
    return std::nullopt;
  }
  std::optional<std::string> take(uint32_t name) {
    std::optional<std::string> wrong = judge(name, cache_.take(key(name)));
    // One that may have ended and was not taken may still be in the table; it must not come back.
    model_.erase(name);
    return wrong;
  }
  std::optional<std::string> erase(uint32_t name) {
    const bool erased = cache_.erase(key(name));
    const auto known = model_.find(name);
    if (erased && (known == model_.end() || !may_live(known->second))) return "erased what was not";
    if (!erased && known != model_.end() && must_live(known->second)) return "erase found nothing";
    model_.erase(name);
    return std::nullopt;
  }
  std::optional<std::string> clear() {
    cache_.clear();
    model_.clear();
    return cache_.size() == 0 ? std::nullopt : std::optional<std::string>("not empty after clear");
  }
  std::optional<std::string> size() {
    size_t least = 0;
    size_t most = 0;
    for (const auto& [name, item] : model_) {
      least += must_live(item) ? 1 : 0;
      most += may_live(item) ? 1 : 0;
    }
    const size_t size = cache_.size();
    if (size < least || size > most) {
      return "size " + std::to_string(size) + " is not in " + std::to_string(least) + ".." +
             std::to_string(most);
    }
    if (kBounded && options_.max_entries != 0 && cache_.stats().entries > options_.max_entries) {
      return "above its bound";
    }
    return std::nullopt;
  }
  std::optional<std::string> all() {
    size_t seen = 0;
    std::optional<std::string> wrong;
    cache_.for_each([&](const K&, const V&) { ++seen; });
    if (seen != cache_.size()) return "for_each saw " + std::to_string(seen) + " entries";
    return wrong;
  }

  Cache cache_;
  cache::Options options_;
  std::map<uint32_t, Item> model_;
  size_t puts_ = 0;
};

}  // namespace lumen::test
