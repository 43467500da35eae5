// The process's limit of open files: how much of it is used, and raising it as far as is allowed.
// Threads: any, but one at a time raises. Memory: open_descriptors() reads a folder.
// Errors: the limit that was got may be below the wanted one.
#pragma once

#include <cstdint>

namespace lumen::net {

// How many descriptors the process has open.
[[nodiscard]] uint64_t open_descriptors();

// Raises the soft limit to `wanted`, or to the hard limit if that is lower: that one is the
// administrator's word, and stays. Never lowers it. Returns the limit as it is afterwards.
uint64_t raise_descriptor_limit(uint64_t wanted) noexcept;

}  // namespace lumen::net
