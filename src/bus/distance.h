// Distance between the two sides of a ring: as keep_distance() (base/backoff.h), but longer.
// Threads: the caller's. Memory: none. Errors: never.
#pragma once

#include <lumen/base/backoff.h>

#include <algorithm>
#include <cstdint>

namespace lumen::bus {

// Over shared memory with frames of any size the consumer is the faster side, and waits for whole
// batches. 32 B frames, flushed by 32, M/s in rings of 1 and 16 MiB: near 325 and 345 with 64
// units, 350 and 390 with 128, no more with 256; far 62 and 92 with 64, 72 and 100 with 128.
inline constexpr uint64_t kMostDistanceUnits = 128;

// After a burst of `frames`, a look found nothing. True: it has waited, so that another look is
// due.
inline bool keep_distance(const CoreDistance& distance, uint64_t frames) noexcept {
  const uint64_t units = std::min(frames / 2, kMostDistanceUnits);
  if (units == 0) return false;
  wait_for(std::min(units * wait_unit_ns(distance), kMostWaitNs));
  return true;
}

}  // namespace lumen::bus
