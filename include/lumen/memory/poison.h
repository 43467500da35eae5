// Poisoning: tells AddressSanitizer which bytes of a region of ours no thread may touch now.
// Threads: the owner of the bytes. Memory: none. Errors: never; without ASan all of it is empty.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define LUMEN_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LUMEN_ASAN 1
#endif
#endif
#ifndef LUMEN_ASAN
#define LUMEN_ASAN 0
#endif

#if LUMEN_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace lumen {

// Bytes left poisoned behind each allocation, so that a write past its end is reported and does not
// land in the neighbour. 16: two of ASan's shadow granules.
inline constexpr size_t kRedzoneBytes = LUMEN_ASAN ? 16 : 0;

inline void poison([[maybe_unused]] const void* begin, [[maybe_unused]] size_t bytes) noexcept {
#if LUMEN_ASAN
  __asan_poison_memory_region(begin, bytes);
#endif
}

inline void unpoison([[maybe_unused]] const void* begin, [[maybe_unused]] size_t bytes) noexcept {
#if LUMEN_ASAN
  __asan_unpoison_memory_region(begin, bytes);
#endif
}

[[nodiscard]] inline bool is_poisoned([[maybe_unused]] const void* address) noexcept {
#if LUMEN_ASAN
  return __asan_address_is_poisoned(address) != 0;
#else
  return false;
#endif
}

}  // namespace lumen
