// The kinds of policies of a ChronoCache, and how they are found in its list of types.
// Threads, Memory, Errors: types only.
#pragma once

#include <lumen/cache/clocks.h>
#include <lumen/cache/detail/hash.h>
#include <lumen/cache/eviction.h>
#include <lumen/cache/options.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>

namespace lumen::cache {

// Threads: shards whose writers lock them, and readers that take no lock; or one thread and no
// atomics.
struct Concurrent {
  static constexpr bool kShared = true;
};
struct OneThread {
  static constexpr bool kShared = false;
};

// uint64_t operator()(const Key&, uint64_t seed) const: 64 bits, all well mixed. With
// is_transparent it takes other types than the key's too, as EqualWith's has to then.
template <typename Hasher>
struct HashWith {
  using Type = Hasher;
};
template <typename Equal>
struct EqualWith {
  using Type = Equal;
};
// size_t operator()(const K&, const V&) const noexcept: the entry's weight in max_weight. By any
// thread, without a lock.
template <typename Weigher>
struct WeighWith {
  using Type = Weigher;
};
// void operator()(const K&, const V&, Removal) noexcept, once for each value that leaves, under its
// shard's lock: short, and never into the cache.
template <typename Listener>
struct OnRemoval {
  using Type = Listener;
};

struct WeighsOne {
  template <typename K, typename V>
  size_t operator()(const K&, const V&) const noexcept {
    return 1;
  }
};
struct NoListener {
  template <typename K, typename V>
  void operator()(const K&, const V&, Removal) const noexcept {}
};

template <typename T>
inline constexpr bool kIsThreads = requires {
  { T::kShared } -> std::convertible_to<bool>;
};
template <typename T>
inline constexpr bool kIsClock = requires(const T clock) {
  { T::kKind } -> std::convertible_to<ClockKind>;
  { clock.read_ns() } noexcept -> std::convertible_to<uint64_t>;
};
template <typename T>
inline constexpr bool kIsEviction = EvictionPolicy<T>;

template <template <typename> typename Kind, typename T>
inline constexpr bool kIsKind = false;
template <template <typename> typename Kind, typename T>
inline constexpr bool kIsKind<Kind, Kind<T>> = true;

template <typename T, bool kFits>
struct Candidate {
  using Type = T;
  static constexpr bool kTaken = kFits;
};
// The first candidate that fits, or Default.
template <typename Default, typename... Cs>
struct FirstOf {
  using Type = Default;
};
template <typename Default, typename C, typename... Cs>
struct FirstOf<Default, C, Cs...> {
  using Type = typename std::conditional_t<C::kTaken, C, FirstOf<Default, Cs...>>::Type;
};

template <typename... Ps>
struct PolicySet {
  using Threads = typename FirstOf<Concurrent, Candidate<Ps, kIsThreads<Ps>>...>::Type;
  using Clock = typename FirstOf<ExactClock, Candidate<Ps, kIsClock<Ps>>...>::Type;
  using Eviction = typename FirstOf<TtlOnly, Candidate<Ps, kIsEviction<Ps>>...>::Type;
  using OwnHash =
      typename FirstOf<HashWith<SeededHash>, Candidate<Ps, kIsKind<HashWith, Ps>>...>::Type::Type;
  using Hash = MixedHash<OwnHash>;
  using Equal = typename FirstOf<EqualWith<std::equal_to<>>,
                                 Candidate<Ps, kIsKind<EqualWith, Ps>>...>::Type::Type;
  using Weigher =
      typename FirstOf<WeighWith<WeighsOne>, Candidate<Ps, kIsKind<WeighWith, Ps>>...>::Type::Type;
  using Listener =
      typename FirstOf<OnRemoval<NoListener>, Candidate<Ps, kIsKind<OnRemoval, Ps>>...>::Type::Type;

  // Each is of one kind, and there is at most one of a kind.
  static constexpr int count(auto... holds) { return (0 + ... + int{holds}); }
  static_assert(count(kIsThreads<Ps>...) <= 1, "two policies of threads");
  static_assert(count(kIsClock<Ps>...) <= 1, "two clocks");
  static_assert(count(kIsEviction<Ps>...) <= 1, "two eviction policies");
  static_assert(((kIsThreads<Ps> || kIsClock<Ps> || kIsEviction<Ps> || kIsKind<HashWith, Ps> ||
                  kIsKind<EqualWith, Ps> || kIsKind<WeighWith, Ps> || kIsKind<OnRemoval, Ps>) &&
                 ...),
                "a policy of no known kind: see lumen/cache/detail/policies.h");
};

}  // namespace lumen::cache
