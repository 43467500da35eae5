// Memory of outputs that is filled before a run, so that a run which leaves an output as it was is
// found, and old bytes are not sent. An output may equal the filling by chance: it is asked again
// with the second one.
// Threads: the instance's. Memory: none. Errors: none.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace lumen::backends {

// Else an instance's first run alone is checked. A run that is checked fills and reads all of its
// outputs.
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kChecksEachRun = true;
#else
inline constexpr bool kChecksEachRun = false;
#endif

inline constexpr std::array<int, 2> kFillings{0xA5, 0x5A};

// False of no bytes at all.
inline bool holds_only(int filling, const void* memory, size_t bytes) noexcept {
  const auto* first = static_cast<const unsigned char*>(memory);
  return bytes > 0 && std::all_of(first, first + bytes,
                                  [filling](unsigned char byte) { return byte == filling; });
}

}  // namespace lumen::backends
