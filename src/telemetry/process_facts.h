// Which process this is, so that a reader can tell whether one of the same number is still this
// one.
// Threads: any. Memory: a buffer on the stack. Errors: a fact that /proc does not tell is 0.
#pragma once

#include <cstdint>

namespace lumen::telemetry {

struct ProcessFacts {
  uint32_t pid = 0;
  int64_t wall_ns = 0;  // since the epoch
  uint64_t monotonic_ns = 0;
  uint64_t start_ticks = 0;  // of the process, since boot: field 22 of /proc/self/stat
  [[nodiscard]] static ProcessFacts now() noexcept;
};

}  // namespace lumen::telemetry
