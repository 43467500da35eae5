// How a value is copied that readers load while a writer may be changing it: by words as access.h
// has them, a large one by vectors of 16 bytes.
// Threads: as access.h says. Memory: none. Errors: never.
//
// A vector may be torn as any object may, which the segment's version tells. The instructions are
// opaque to the compiler, which must keep them where they stand, and x86-64 orders them as it
// orders acquires and releases. ThreadSanitizer would not see them, and has words. `inline`: g++
// takes them for one short instruction each when it decides what to inline.
#pragma once

#include <lumen/cache/detail/access.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__SANITIZE_THREAD__) || !defined(__SSE2__)
#define LUMEN_CACHE_VECTORS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LUMEN_CACHE_VECTORS 0
#endif
#endif
#if !defined(LUMEN_CACHE_VECTORS)
#define LUMEN_CACHE_VECTORS 1
#endif
#if defined(__AVX__)
#define LUMEN_CACHE_MOVE "vmovdqu %1, %0"
#else
#define LUMEN_CACHE_MOVE "movdqu %1, %0"
#endif

namespace lumen::cache {

// Smaller ones take a few words.
template <typename T>
inline constexpr bool kCopiedByVectors =
    LUMEN_CACHE_VECTORS != 0 && sizeof(T) >= 32 && sizeof(T) % sizeof(uint64_t) == 0;

#if LUMEN_CACHE_VECTORS
// Unaligned, and of any type.
using Vector [[gnu::vector_size(16), gnu::aligned(1), gnu::may_alias]] = char;

[[nodiscard, gnu::always_inline]] inline Vector load_vector(const std::byte* cell) noexcept {
  Vector vector;
  asm volatile inline(LUMEN_CACHE_MOVE
                      : "=x"(vector)
                      : "m"(*reinterpret_cast<const Vector*>(cell))
                      : "memory");
  return vector;
}
[[gnu::always_inline]] inline void store_vector(std::byte* cell, Vector vector) noexcept {
  asm volatile inline(LUMEN_CACHE_MOVE
                      : "=m"(*reinterpret_cast<Vector*>(cell))
                      : "x"(vector)
                      : "memory");
}
#endif
#undef LUMEN_CACHE_MOVE

// `cell` is aligned to 8 bytes where its size is a multiple of 8, else to the word that divides it.
template <typename T>
[[gnu::always_inline]] inline void load_value(T& to, const T& cell) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
#if LUMEN_CACHE_VECTORS
  if constexpr (kCopiedByVectors<T>) {
    const auto* from = reinterpret_cast<const std::byte*>(&cell);
    auto* bytes = reinterpret_cast<std::byte*>(&to);
    constexpr size_t kVectorBytes = sizeof(T) / sizeof(Vector) * sizeof(Vector);
    for (size_t at = 0; at < kVectorBytes; at += sizeof(Vector)) {
      *reinterpret_cast<Vector*>(bytes + at) = load_vector(from + at);
    }
    if constexpr (kVectorBytes != sizeof(T)) {
      const auto word = load_cell<true>(*reinterpret_cast<const uint64_t*>(from + kVectorBytes));
      std::memcpy(bytes + kVectorBytes, &word, sizeof(word));
    }
    return;
  }
#endif
  load_words(to, cell);
}
template <typename T>
[[gnu::always_inline]] inline void store_value(T& cell, const T& value) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
#if LUMEN_CACHE_VECTORS
  if constexpr (kCopiedByVectors<T>) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    auto* to = reinterpret_cast<std::byte*>(&cell);
    constexpr size_t kVectorBytes = sizeof(T) / sizeof(Vector) * sizeof(Vector);
    for (size_t at = 0; at < kVectorBytes; at += sizeof(Vector)) {
      store_vector(to + at, *reinterpret_cast<const Vector*>(from + at));
    }
    if constexpr (kVectorBytes != sizeof(T)) {
      uint64_t word;
      std::memcpy(&word, from + kVectorBytes, sizeof(word));
      store_cell<true>(*reinterpret_cast<uint64_t*>(to + kVectorBytes), word);
    }
    return;
  }
#endif
  store_words(cell, value);
}

}  // namespace lumen::cache
