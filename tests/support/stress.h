// The seed and the length of stress tests: LUMEN_STRESS_SEED (printed) and LUMEN_STRESS_SCALE.
// Threads: any. Memory: none. Errors: never.
#pragma once

#include <lumen/base/clock.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace lumen::test {

inline uint64_t number_from(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

inline uint64_t stress_seed() {
  static const uint64_t seed = [] {
    const uint64_t value = number_from("LUMEN_STRESS_SEED", now_ns());
    std::printf("LUMEN_STRESS_SEED=%" PRIu64 "\n", value);
    return value;
  }();
  return seed;
}

// `count`, a tenth of it under a sanitizer, times the scale.
inline uint64_t stress_count(uint64_t count) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  count /= 10;
#endif
  return count * number_from("LUMEN_STRESS_SCALE", 1);
}

}  // namespace lumen::test
