// SizeCost: the time of one call of a model with so many rows, as measured at a warm-up.
// Threads: any. Memory: none. Errors: never.
#pragma once

#include <cstdint>

namespace lumen::models {

struct SizeCost {
  uint32_t rows = 1;
  uint64_t ns = 0;  // of one call
  bool operator==(const SizeCost&) const = default;
};

}  // namespace lumen::models
