// The memory that this process has. Threads: any. Memory: control plane. Errors: 0 if it can't be
// read.
#pragma once

#include <cstdint>

namespace lumen {

// In use and not of a file: RssAnon of /proc/self/status. The kernel may be off by some pages for
// each CPU.
[[nodiscard]] uint64_t anonymous_bytes();

}  // namespace lumen
