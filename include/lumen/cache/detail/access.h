// How the cells of a table are read and written: plainly by the one-thread flavour, by atomic
// operations in the concurrent one, where readers look at memory that a writer may be changing.
// Threads: with kShared one writer at a time and any number of readers. Memory: none. Errors:
// never.
//
// Every load is an acquire and every store a release, which costs nothing on x86-64. So a reader
// that sees one store of a write also sees the odd version that came before it (see segment.h), and
// no fence is needed.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace lumen::cache {

template <bool kShared, typename T>
[[nodiscard]] inline T load_cell(const T& cell) noexcept {
  if constexpr (kShared) {
    // sync[cache.cell]: acquire, pairs with store_cell().
    return std::atomic_ref<T>(const_cast<T&>(cell)).load(std::memory_order_acquire);
  } else {
    return cell;
  }
}

template <bool kShared, typename T>
inline void store_cell(T& cell, std::type_identity_t<T> value) noexcept {
  if constexpr (kShared) {
    // sync[cache.cell]: release, pairs with load_cell().
    std::atomic_ref<T>(cell).store(value, std::memory_order_release);
  } else {
    cell = value;
  }
}

// The largest word, up to 8 bytes, that divides `bytes`: an object of that size is copied by such
// words.
[[nodiscard]] constexpr size_t word_bytes(size_t bytes) noexcept {
  size_t word = 8;
  while (bytes % word != 0) word /= 2;
  return word;
}
template <size_t kBytes>
using WordOf = std::conditional_t<
    kBytes == 8, uint64_t,
    std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 2, uint16_t, uint8_t>>>;

// An object copied word by word. It may be torn, which the reader finds out by the block's version.
template <typename T>
inline void load_words(T& to, const T& from) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  constexpr size_t kWord = word_bytes(sizeof(T));
  using Word = WordOf<kWord>;
  const auto* source = reinterpret_cast<const Word*>(&from);
  auto* bytes = reinterpret_cast<std::byte*>(&to);
  for (size_t i = 0; i < sizeof(T) / kWord; ++i) {
    const Word word = load_cell<true>(source[i]);
    std::memcpy(bytes + i * kWord, &word, kWord);
  }
}

// kWord: that of its readers, where they load more than this object. Each word comes from the value
// itself: through a copy in between, which the compiler makes by wider stores than those of the
// value's parts, each store waited for the ones before (6 ns for 72 bytes).
template <size_t kWord, typename T>
inline void store_words_of(T& to, const T& value) noexcept {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % kWord == 0);
  using Word = WordOf<kWord>;
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  auto* target = reinterpret_cast<Word*>(&to);
  for (size_t i = 0; i < sizeof(T) / kWord; ++i) {
    Word word;
    std::memcpy(&word, from + i * kWord, kWord);
    store_cell<true>(target[i], word);
  }
}
template <typename T>
inline void store_words(T& to, const T& value) noexcept {
  store_words_of<word_bytes(sizeof(T))>(to, value);
}

}  // namespace lumen::cache
