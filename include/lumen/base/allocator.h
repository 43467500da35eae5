// Allocator: where the bytes of one request come from. Arena and the heap both implement it, so
// that codecs (wire) and backends can take memory without knowing which of the two it is.
// Threads: one thread at a time owns an Allocator (it travels with its request).
// Memory: this is the memory. Errors: nullptr when the hard cap is reached; never throws.
#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <type_traits>

namespace lumen {

class Allocator {
 public:
  // `alignment` is a power of two. The bytes are not zeroed. nullptr: the cap is reached.
  [[nodiscard]] virtual void* allocate(size_t bytes, size_t alignment) noexcept = 0;

  // `count` default-constructed objects; an empty span with count > 0 means the cap is reached.
  // Nothing is destroyed on reset, so only trivially destructible types may live here.
  template <typename T>
  [[nodiscard]] std::span<T> allocate_array(size_t count) noexcept {
    static_assert(std::is_trivially_destructible_v<T>);
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, sizeof(T), &bytes)) return {};
    void* memory = allocate(bytes, alignof(T));
    if (memory == nullptr) return {};
    T* first = static_cast<T*>(memory);
    for (size_t i = 0; i < count; ++i) ::new (static_cast<void*>(first + i)) T();
    return {first, count};
  }

 protected:
  ~Allocator() = default;  // never owned through this face
};

}  // namespace lumen
