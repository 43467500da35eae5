// How much memory this process may take: the machine's, or less if a control group says so, as in a
// container. Threads: any. Memory: control plane. Errors: a limit that can't be read does not
// count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace lumen {

struct MachineMemory {
  size_t bytes = 0;
  std::string source;  // "this machine's memory", or the file of the control group that says less
};

// `root` stands for "/": tests bring a tree of their own.
[[nodiscard]] MachineMemory machine_memory(const std::filesystem::path& root = "/");

// The part of it that is left now, with file pages that the kernel can give back at once. The
// kernel does not refuse a process that takes more than its control group has left: it kills it.
[[nodiscard]] MachineMemory unused_memory(const std::filesystem::path& root = "/");

struct UnusedAddresses {
  // That this process may still map for writing; SIZE_MAX: as many as it likes.
  size_t bytes = SIZE_MAX;
  std::string limit;  // its name
};
// The smaller of `ulimit -v` and, where vm.overcommit_memory is 2, the machine's limit of promised
// memory.
[[nodiscard]] UnusedAddresses unused_addresses(const std::filesystem::path& root = "/");

}  // namespace lumen
