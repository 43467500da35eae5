// The interface of a ChronoCache's eviction policy, and TtlOnly, the policy that evicts nothing.
// Threads: a policy object belongs to one shard; its calls come under that shard's lock, or from
// the
//   one thread of a OneThread cache. Only touch() may come from any thread at any time.
// Memory: a policy takes memory in its constructor and in reserve() only.
// Errors: the constructor and reserve() may throw std::bad_alloc; nothing else throws.
//
// The life of an entry, as its policy sees it:
//
//   reserve(h) --> inserted(h, hash, weight) --> used(h), reweighed(h, weight) ... --> erased(h)
//
// The cache inserts first. While it is above its bound it then asks victim(), removes that entry
// and says erased(). A policy never counts the bound itself: it orders entries, the cache counts
// them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory_resource>

namespace lumen::cache {

// An entry's number: dense, from 0, and given to another entry after erased().
using Handle = uint32_t;
inline constexpr Handle kNoHandle = UINT32_MAX;

// The part that every policy has. A policy without records is told nothing else.
template <typename P>
concept KeepsNoRecords = requires {
  { P::kKeepsRecords } -> std::convertible_to<bool>;
  requires !P::kKeepsRecords;
};

// kKeepsRecords        true: the calls below are made
// kConcurrentHits      true: readers say touch() for a hit, without the lock and beside any other
//                      call. So it is relaxed atomics on memory that stays where it is
// P(memory, weight, entries)
//                      this shard's share of the bound. `weight` is in the unit of the weights
//                      below, which is 1 an entry where entries are counted; `entries` is a guess
//                      of how many fit, 0 where nobody knows
// reserve(h)           makes room for record h. On an exception nothing has changed
// inserted(h, hash, weight)
//                      a new entry. `hash` is 64 well-mixed bits of its key, of which all keys of a
//                      shard may share a few
// reweighed(h, weight) the entry was overwritten in place, which counts as a use too
// used(h)              a hit. It may come late from a lossy buffer, when h is erased or stands for
//                      another entry; both must be harmless
// touch(h)             only with kConcurrentHits; may be as late as used()
// erased(h)            it is gone: erased, expired, taken, or it was the victim
// victim()             the entry to go now, perhaps the newest one, where the policy does not admit it;
//                      kNoHandle where there are none. erased() of it follows at once
template <typename P>
concept KeepsRecords = std::constructible_from<P, std::pmr::memory_resource*, uint64_t, size_t> &&
                       requires(P p, Handle h, uint64_t hash, uint64_t weight) {
                         { P::kKeepsRecords } -> std::convertible_to<bool>;
                         requires P::kKeepsRecords;
                         { P::kConcurrentHits } -> std::convertible_to<bool>;
                         p.reserve(h);
                         { p.inserted(h, hash, weight) } noexcept;
                         { p.reweighed(h, weight) } noexcept;
                         { p.used(h) } noexcept;
                         { p.erased(h) } noexcept;
                         { p.victim() } noexcept -> std::same_as<Handle>;
                         requires !P::kConcurrentHits || requires {
                           { p.touch(h) } noexcept;
                         };
                       };

template <typename P>
concept EvictionPolicy = KeepsNoRecords<P> || KeepsRecords<P>;

// Entries leave when their time is over, and for no other reason: no bound, no record an entry.
struct TtlOnly {
  static constexpr bool kKeepsRecords = false;
  static constexpr bool kConcurrentHits = false;
};
static_assert(EvictionPolicy<TtlOnly>);

}  // namespace lumen::cache
