// The interface of a contender of the cache benches, the keys and values, and the floor.
// Threads: as each contender says. Memory: the contender's own. Errors: none.
#pragma once

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

namespace lumen::bench {

// Every contender has the same semantics: an entry whose deadline has passed is a miss. A contender
// with a cached tick takes deadlines and now from it, and the loop calls tick(); if it reads a
// clock itself, tick() does nothing. Expired entries need not be erased. The constructor is told
// how many entries will come: only variants whose name says "reserved" may use it.
template <typename C, typename K, typename V>
concept Contender = requires(C cache, const C& const_cache, const K& key, const V& value,
                             std::chrono::nanoseconds ttl) {
  requires std::constructible_from<C, size_t>;
  cache.put(key, value, ttl);
  { const_cache.get(key) } -> std::same_as<std::optional<V>>;
  cache.tick();
};

using Value64 = std::array<uint64_t, 8>;
static_assert(sizeof(Value64) == 64);

template <typename V>
V value_of(int64_t i) {
  if constexpr (std::is_integral_v<V>) {
    return static_cast<V>(i);
  } else if constexpr (std::is_same_v<V, std::string>) {
    return V(40, static_cast<char>('a' + i % 26));
  } else {
    V value{};
    value.fill(static_cast<uint64_t>(i));
    return value;
  }
}

// Key number i. A string is written anew in place: 16 characters, the same work for everybody, and
// part of the floor.
template <typename K>
class Keys {
 public:
  const K& operator()(int64_t i) {
    if constexpr (std::is_integral_v<K>) {
      key_ = static_cast<K>(i);
    } else {
      auto rest = static_cast<uint32_t>(i);
      for (size_t at = 16; at-- > 8; rest >>= 4) key_[at] = "0123456789abcdef"[rest & 15];
    }
    return key_;
  }

 private:
  K key_ = first();

  static K first() {
    if constexpr (std::is_integral_v<K>) {
      return K{};
    } else {
      return K(16, 'k');
    }
  }
};

// The same loop without a cache: one value that the compiler doesn't know.
template <typename K, typename V>
class Floor {
 public:
  explicit Floor(size_t) { asm volatile("" : "+m"(there_)); }
  void put(const K& key, const V& value, std::chrono::nanoseconds) {
    use(key);
    use(value);
  }
  std::optional<V> get(const K& key) const {
    use(key);
    if (!there_) return std::nullopt;
    return value_;
  }
  void tick() {}

 private:
  template <typename T>
  static void use(const T& value) {
    if constexpr (std::is_integral_v<T>) {
      asm volatile("" : : "r"(value));
    } else {
      asm volatile("" : : "m"(value));
    }
  }

  bool there_ = true;
  V value_ = value_of<V>(99);
};

}  // namespace lumen::bench
