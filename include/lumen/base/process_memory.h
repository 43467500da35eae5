// What this process has of memory. Threads: any. Memory: control plane. Errors: 0 where it can't be
// read.
#pragma once

#include <cstdint>

namespace lumen {

// In use and not of a file: RssAnon of /proc/self/status. The kernel may be off by some pages for
// each CPU.
[[nodiscard]] uint64_t anonymous_bytes();

}  // namespace lumen
