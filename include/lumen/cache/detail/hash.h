// The hash of a ChronoCache: 64 bits, all of them well mixed, keyed by a seed that only the process
// knows.
// Threads: any. Memory: none. Errors: never.
//
// Strings go through 64 x 64 -> 128 bit products whose halves are combined (Wang Yi's wyhash uses
// the same step). std::hash of an integer is the integer: an attacker that chooses the keys could
// fill a table that took it with keys that all meet in one group.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

namespace lumen::cache {

// The two halves of the product of a and b, together.
[[nodiscard]] inline uint64_t fold_product(uint64_t a, uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Odd, about half of their bits set: numbers are multiplied by them (digits of pi).
inline constexpr uint64_t kHashFactor = 0x9e3779b97f4a7c15u;
inline constexpr uint64_t kHashSecond = 0x452821e638d01377u;

[[nodiscard]] inline uint64_t read_word(const char* bytes) noexcept {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}
// Up to 8 bytes, whichever they are, as two words that overlap.
[[nodiscard]] inline uint64_t read_few(const char* bytes, size_t size) noexcept {
  if (size >= 4) {
    uint32_t first;
    uint32_t last;
    std::memcpy(&first, bytes, sizeof(first));
    std::memcpy(&last, bytes + size - sizeof(last), sizeof(last));
    return static_cast<uint64_t>(first) << 32 | last;
  }
  if (size == 0) return 0;
  const auto byte = [bytes](size_t i) {
    return static_cast<uint64_t>(static_cast<uint8_t>(bytes[i]));
  };
  return byte(0) << 16 | byte(size / 2) << 8 | byte(size - 1);
}

[[nodiscard]] inline uint64_t hash_bytes(const void* data, size_t size, uint64_t seed) noexcept {
  const char* bytes = static_cast<const char*>(data);
  uint64_t state = seed ^ size;
  size_t left = size;
  for (; left > 16; left -= 16, bytes += 16) {
    state = fold_product(read_word(bytes) ^ kHashSecond, read_word(bytes + 8) ^ state);
  }
  const bool two = left > 8;
  const uint64_t first = two ? read_word(bytes) : read_few(bytes, left);
  const uint64_t second = two ? read_word(bytes + left - 8) : 0;
  return fold_product(kHashFactor ^ size, fold_product(first ^ kHashSecond, second ^ state));
}

template <typename T>
concept HashedAsNumber = std::is_integral_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>;

// The default hash of a cache's keys; HashWith chooses another. Strings and string views hash
// alike, so a cache of strings is asked with a string_view. Other types need no padding (their
// bytes are hashed) or a std::hash, which is mixed with the seed but no safer against chosen keys
// than it is. The seed is odd.
//
// Numbers are often ids, and ids are used near each other. So the bits that choose a segment are
// those of a block of 4,096 neighbours, the bits that choose a place in it those of the number:
// neighbours meet in a segment, which is in the cache, and are spread over its groups. The compiler
// hashes 16 keys of a group at once when a segment grows.
struct SeededHash {
  using is_transparent = void;
  static constexpr uint32_t kNeighbourBits = 12;
  static constexpr uint32_t kPlaceBits =
      40;  // 32 for the group, 8 for the tag; above: 8 for the shard, 24 for the segment

  template <HashedAsNumber T>
  [[nodiscard]] uint64_t operator()(T key, uint64_t seed) const noexcept {
    uint64_t word;
    if constexpr (std::is_pointer_v<T>) {
      word = reinterpret_cast<uintptr_t>(key);
    } else {
      word = static_cast<uint64_t>(key);
    }
    // Two products with the upper half folded down between them: no stride of blocks meets in one
    // place, as strides do for one product with any factor.
    uint64_t block = ((word >> kNeighbourBits) ^ seed) * kHashFactor;
    block = (block ^ block >> 32) * kHashSecond;
    // Neighbours go golden sections apart, from a point that is the block's.
    const uint64_t neighbour = word & ((uint64_t{1} << kNeighbourBits) - 1);
    const uint64_t place = std::rotl(block, 24) + neighbour * kHashFactor;
    return (block >> kPlaceBits << kPlaceBits) | place >> (64 - kPlaceBits);
  }
  [[nodiscard]] uint64_t operator()(std::string_view key, uint64_t seed) const noexcept {
    return hash_bytes(key.data(), key.size(), seed);
  }
  template <typename T>
    requires(!HashedAsNumber<T> && !std::convertible_to<const T&, std::string_view> &&
             std::has_unique_object_representations_v<T>)
  [[nodiscard]] uint64_t operator()(const T& key, uint64_t seed) const noexcept {
    return hash_bytes(&key, sizeof(key), seed);
  }
  template <typename T>
    requires(!HashedAsNumber<T> && !std::convertible_to<const T&, std::string_view> &&
             !std::has_unique_object_representations_v<T>)
  [[nodiscard]] uint64_t operator()(const T& key, uint64_t seed) const
      noexcept(noexcept(std::hash<T>{}(key))) {
    return fold_product(std::hash<T>{}(key) ^ seed, kHashFactor);
  }
};

// A user's hash, mixed once more: one that is not (the number itself, say) would fill one segment.
template <typename Hasher>
struct MixedHash {
  template <typename Q>
    requires std::is_invocable_v<const Hasher&, const Q&, uint64_t>
  [[nodiscard]] uint64_t operator()(const Q& key, uint64_t seed) const
      noexcept(std::is_nothrow_invocable_v<const Hasher&, const Q&, uint64_t>) {
    return fold_product(hasher(key, seed) ^ seed, kHashFactor);
  }
  [[no_unique_address]] Hasher hasher;
};
template <>
struct MixedHash<SeededHash> : SeededHash {};

}  // namespace lumen::cache
