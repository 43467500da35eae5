// /proc/meminfo and the control groups, both versions (Documentation/admin-guide/cgroup-v2.rst,
// cgroup-v1/memory.rst). Any thread; allocates strings.
#include <lumen/base/machine_memory.h>

#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
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
std::optional<uint64_t> number_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  return std::getline(in, line) ? leading_number(line) : std::nullopt;
}

// Of the line that begins with `key`.
std::optional<uint64_t> number_of(const std::filesystem::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key)) return leading_number(std::string_view(line).substr(key.size()));
  }
  return std::nullopt;
}

// The files of a control group, which the two versions name differently.
struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* reclaimable;  // its line in memory.stat
};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file "};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file "};

enum class What : uint8_t { kAll, kUnused };

// The limit of a group, or the part of it that is left. nullopt: it does not limit.
std::optional<uint64_t> allowed_by(const std::filesystem::path& group, const GroupFiles& files,
                                   What what) {
  const std::optional<uint64_t> limit = number_in(group / files.limit);
  if (!limit || *limit == 0) return std::nullopt;
  if (what == What::kAll) return limit;
  const uint64_t usage = number_in(group / files.usage).value_or(0);
  const uint64_t reclaimable = number_of(group / "memory.stat", files.reclaimable).value_or(0);
  const uint64_t in_use = usage - std::min(usage, reclaimable);
  return *limit - std::min(*limit, in_use);
}

// A group is bound by those around it too. Inside a container its own group may be mounted as the
// root.
void lower_to(MachineMemory& memory, const std::filesystem::path& mount,
              std::filesystem::path group, const GroupFiles& files, What what) {
  for (;;) {
    const std::filesystem::path folder = mount / group.relative_path();
    const std::optional<uint64_t> allowed = allowed_by(folder, files, what);
    if (allowed && *allowed < memory.bytes) memory = {*allowed, (folder / files.limit).string()};
    if (!group.has_relative_path()) return;
    group = group.parent_path();
  }
}

MachineMemory memory_of(const std::filesystem::path& root, What what) {
  const char* key = what == What::kAll ? "MemTotal:" : "MemAvailable:";
  MachineMemory memory{std::numeric_limits<size_t>::max(), "this machine's memory"};
  if (const auto kib = number_of(root / "proc/meminfo", key)) memory.bytes = *kib * 1024;
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
    if (controllers == ",,") lower_to(memory, mount, group, kVersion2, what);
    if (controllers.find(",memory,") != std::string::npos) {
      lower_to(memory, mount / "memory", group, kVersion1, what);
    }
  }
  return memory;
}

}  // namespace

MachineMemory machine_memory(const std::filesystem::path& root) {
  return memory_of(root, What::kAll);
}

MachineMemory unused_memory(const std::filesystem::path& root) {
  return memory_of(root, What::kUnused);
}

UnusedAddresses unused_addresses(const std::filesystem::path& root) {
  UnusedAddresses unused;
  const auto lower_to = [&unused](uint64_t limit, uint64_t used, const char* name) {
    const uint64_t left = limit - std::min(limit, used);
    if (left < unused.bytes) unused = {left, name};
  };
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    // Its first number: pages of all mappings.
    const uint64_t pages = number_in(root / "proc/self/statm").value_or(0);
    lower_to(limit.rlim_cur, pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)), "ulimit -v");
  }
  if (number_in(root / "proc/sys/vm/overcommit_memory") == 2) {
    const std::filesystem::path meminfo = root / "proc/meminfo";
    const auto promised = number_of(meminfo, "CommitLimit:");
    if (promised) {
      lower_to(*promised * 1024, number_of(meminfo, "Committed_AS:").value_or(0) * 1024,
               "vm.overcommit_memory 2");
    }
  }
  return unused;
}

}  // namespace lumen
