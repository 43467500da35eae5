// The content of a table's slot, by the types of key and value and the flavour of the cache.
//
//   in place    key and value lie in the slot. With kShared they are trivially copyable, and readers copy words
//               that a writer may be changing; the block's version tells whether they may be used.
//   by pointer  the slot points to a Node, and has the hash beside it. Types that readers cannot copy word by
//               word are held so (see hazard.h), and types that could throw while a table grows. With kShared a
//               Node does not change, but for a value that readers can copy: it is overwritten under the version
//               of the segment.
//
// Threads: as access.h says. Memory: a node an entry, where there are nodes. Errors: K's and V's
// own exceptions.
#pragma once

#include <lumen/cache/detail/access.h>
#include <lumen/cache/detail/value_copy.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace lumen::cache {

// Where a hash is dear or may throw it is kept beside the key, so that growth never calls it.
template <typename K, typename Hash>
inline constexpr bool kKeepsHash = !(std::is_trivially_copyable_v<K> &&
                                     std::is_nothrow_invocable_v<const Hash&, const K&, uint64_t>);

// Types that a reader copies word by word into a variable of its own.
template <typename T>
inline constexpr bool kCopiedByWords =
    std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T> &&
    std::is_move_assignable_v<T>;

template <bool kKept>
struct KeptHash {
  explicit KeptHash(uint64_t) noexcept {}
};
template <>
struct KeptHash<true> {
  explicit KeptHash(uint64_t its_hash) noexcept : hash(its_hash) {}
  uint64_t hash;
};

// kAlign: at least that of the value, so that readers copy it in whole words.
template <typename K, typename V, bool kKept, size_t kAlign = 1>
struct KeyAndValue : KeptHash<kKept> {
  template <typename K2, typename V2>
  KeyAndValue(uint64_t its_hash, K2&& k, V2&& v)
      : KeptHash<kKept>(its_hash), key(std::forward<K2>(k)), value(std::forward<V2>(v)) {}
  K key;
  alignas(std::max(alignof(V), kAlign)) V value;
};

// The same without a constructor, so that it is trivially copyable wherever K and V are. kAlign: at
// least that, so that readers copy it in words of 8 bytes.
template <typename K, typename V, size_t kAlign = 1>
struct alignas(std::max({alignof(K), alignof(V), kAlign})) PlainKeyAndValue {
  K key;
  V value;

  // Whether a reader's words are either of the key or of the value, but for unused bytes.
  // The type need not have standard layout, so that offsetof() may not be asked.
  static constexpr size_t kValueAt = (sizeof(K) + alignof(V) - 1) / alignof(V) * alignof(V);
  static constexpr bool has_own_words(size_t word) {
    return kValueAt % word == 0 && sizeof(V) % word == 0;
  }
  // Whether readers load the value by itself: its vectors begin where it begins.
  static constexpr bool kLoadsApart = kCopiedByVectors<V> && has_own_words(sizeof(uint64_t));
};

// The slot of an entry that is held by pointer. Growth and searches look at the hash first: the
// node is a line of memory that is nowhere near.
template <typename Node>
struct NodeEntry {
  uint64_t hash;
  Node* node;
};

template <typename K, typename V, typename Hash, bool kShared>
struct EntryTypes {
  static constexpr bool kTrivial =
      std::is_trivially_copyable_v<K> && std::is_trivially_copyable_v<V>;
  // A value larger than this is not copied under a version: the copy would take longer than a
  // writer waits.
  static constexpr size_t kMostWordsCopied = 256;
  static constexpr bool kHash = kKeepsHash<K, Hash>;
  static constexpr bool kByPointer = kShared ? !(kCopiedByWords<K> && kCopiedByWords<V> && !kHash &&
                                                 sizeof(PlainKeyAndValue<K, V>) <= kMostWordsCopied)
                                             : !(std::is_nothrow_move_constructible_v<K> &&
                                                 std::is_nothrow_move_constructible_v<V>);
  // Whether readers copy the value out of a node, since a writer overwrites it there.
  static constexpr bool kCopiesValue =
      kShared && kByPointer && kCopiedByWords<V> && sizeof(V) <= kMostWordsCopied;
  using Node = KeyAndValue<K, V, false, kCopiesValue ? word_bytes(sizeof(V)) : 1>;
  static constexpr size_t kAlign = kShared && sizeof(PlainKeyAndValue<K, V>) > 8 ? 8 : 1;
  using InPlace = std::conditional_t<kTrivial && !kHash, PlainKeyAndValue<K, V, kAlign>,
                                     KeyAndValue<K, V, kHash>>;
  using Entry = std::conditional_t<kByPointer, NodeEntry<Node>, InPlace>;
};

}  // namespace lumen::cache
