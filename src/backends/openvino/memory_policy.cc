// See the header for threads, memory and errors.
#include "backends/openvino/memory_policy.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace lumen::backends::openvino {
namespace {

// From linux/mempolicy.h; through syscall(), as in memory/mapping.cc: libnuma would be a dependency
// for two calls.
constexpr int kMpolDefault = 0;
constexpr int kMpolBind = 2;
constexpr unsigned kMpolFAddr = 2;
constexpr unsigned long kMostNodes = 1024;

struct Range {
  uintptr_t begin;
  uintptr_t end;
};

// Asked of each mapping, about 0.3 us. /proc/self/numa_maps would tell, but walks all pages for it.
bool is_bound(const Range& range) noexcept {
  int mode = kMpolDefault;
  std::array<unsigned long, kMostNodes / (8 * sizeof(unsigned long))> nodes{};
  return ::syscall(SYS_get_mempolicy, &mode, nodes.data(), kMostNodes, range.begin, kMpolFAddr) ==
             0 &&
         mode == kMpolBind;
}

// Of a line as "7f2a4c000000-7f2a4c021000 rw-p 00000000 00:00 0"; nullopt: no private memory that
// is written and belongs to no file.
std::optional<Range> private_range(const std::string& line) {
  std::istringstream words(line);
  Range range{};
  char dash = 0;
  std::string rights;
  std::string offset;
  std::string device;
  uint64_t inode = 1;
  words >> std::hex >> range.begin >> dash >> range.end >> rights >> offset >> device >> std::dec >>
      inode;
  const bool is_private = rights.size() == 4 && rights[1] == 'w' && rights[3] == 'p' && inode == 0;
  return words && is_private ? std::optional(range) : std::nullopt;
}

std::vector<Range> private_memory() {
  std::vector<Range> ranges;
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (const std::optional<Range> range = private_range(line)) ranges.push_back(*range);
  }
  return ranges;
}

}  // namespace

size_t release_bound_mappings() {
  size_t released = 0;
  for (const Range& range : private_memory()) {
    if (!is_bound(range)) continue;
    const size_t bytes = range.end - range.begin;
    released +=
        ::syscall(SYS_mbind, range.begin, bytes, kMpolDefault, nullptr, 0ul, 0u) == 0 ? 1 : 0;
  }
  return released;
}

}  // namespace lumen::backends::openvino
