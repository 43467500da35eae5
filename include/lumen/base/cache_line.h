// Cache-line constants. Threads: none. Memory: none. Errors: never.
#pragma once

#include <cstddef>

namespace lumen {

// std::hardware_destructive_interference_size is 64 on x86-64 g++, but its value may change with
// -mtune and so must not appear in an ABI (gcc warns). Intel's spatial prefetcher pulls pairs of
// lines, therefore independent writers are kept kFalseSharingRange apart.
inline constexpr size_t kCacheLine = 64;
inline constexpr size_t kFalseSharingRange = 128;

}  // namespace lumen
