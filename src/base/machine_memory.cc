// /proc/meminfo and the control groups, both versions (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst).
// Any thread; allocates strings.
#include <lumen/base/machine_memory.h>

#include <charconv>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

namespace lumen {
namespace {

std::optional<uint64_t> leading_number(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return std::nullopt;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + first, text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) return std::numeric_limits<uint64_t>::max();
  return error == std::errc() && end != text.data() + first ? std::optional(number) : std::nullopt;
}

// "max" (version 2) is no number, and nothing (version 1) is a number beyond any memory.
std::optional<uint64_t> limit_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  return std::getline(in, line) ? leading_number(line) : std::nullopt;
}

// A group is bound by those around it too. Inside a container its own group may be mounted as the root.
void lower_to(MachineMemory& memory, const std::filesystem::path& mount,
              std::filesystem::path group, const char* file_name) {
  for (;;) {
    const std::filesystem::path file = mount / group.relative_path() / file_name;
    const std::optional<uint64_t> limit = limit_in(file);
    if (limit && *limit > 0 && *limit < memory.bytes) memory = {*limit, file.string()};
    if (!group.has_relative_path()) return;
    group = group.parent_path();
  }
}

}  // namespace

MachineMemory machine_memory(const std::filesystem::path& root) {
  MachineMemory memory{std::numeric_limits<size_t>::max(), "this machine's memory"};
  std::ifstream meminfo(root / "proc/meminfo");
  constexpr std::string_view kTotal = "MemTotal:";
  for (std::string line; std::getline(meminfo, line);) {
    if (!line.starts_with(kTotal)) continue;
    const std::optional<uint64_t> kib =
        leading_number(std::string_view(line).substr(kTotal.size()));
    if (kib) memory.bytes = *kib * 1024;
    break;
  }
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  // "0::/path" is version 2's; "4:memory,...:/path" is version 1's controller.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = line.substr(first, second - first);
    controllers.front() = ',';
    controllers += ',';
    const std::filesystem::path group = line.substr(second + 1);
    if (controllers == ",,") lower_to(memory, mount, group, "memory.max");
    if (controllers.find(",memory,") != std::string::npos) {
      lower_to(memory, mount / "memory", group, "memory.limit_in_bytes");
    }
  }
  return memory;
}

}  // namespace lumen
