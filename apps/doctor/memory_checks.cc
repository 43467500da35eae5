// Checks of memory: its size, pages, the limit of locked memory. Threads, memory and errors: see
// checks.h.
#include "doctor/checks.h"

#include <lumen/base/machine_memory.h>

#include <algorithm>

namespace lumen::doctor {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
// A server with the demo's models takes 300 MiB; its requests come on top.
constexpr uint64_t kLeastUnusedBytes = 512 * kMiB;
// Reserved huge pages are memory that nothing of Lumen can use.
constexpr double kLargeReserve = 0.05;
// The memory that perf gives each CPU without counting it (kernel.perf_event_mlock_kb); a ring
// beyond must be locked.
constexpr uint64_t kPerfFreeBytes = 516 * kKiB;
constexpr std::string_view kMemInfo = "/proc/meminfo";

// Of a line "SwapTotal:   1024 kB".
Result<uint64_t> meminfo_bytes(const Machine& machine, std::string_view key) {
  const Result<std::string> line = machine.read_line(kMemInfo, key);
  if (!line.ok()) return line.status();
  const auto kib = parse_number(std::string_view(*line).substr(0, line->find(' ')));
  if (kib) return *kib * kKiB;
  return Status::error(Code::kInternal, "%s: got '%s' for %.*s, wanted a number", kMemInfo.data(),
                       line->substr(0, 60).c_str(), static_cast<int>(key.size()), key.data());
}

}  // namespace

Finding check_memory(const Machine& machine) {
  if (const Result<uint64_t> total = meminfo_bytes(machine, "MemTotal:"); !total.ok()) {
    return unknown(total.status().message());
  }
  const MachineMemory all = machine_memory(machine.root);
  const uint64_t unused = unused_memory(machine.root).bytes;
  const bool is_limited = !all.source.starts_with("this machine");
  Finding found = number(static_cast<double>(all.bytes), "bytes",
                         std::to_string(unused / kMiB) + " MiB unused; " +
                             (is_limited ? "limited by the cgroup" : "no limit of the cgroup"));
  if (unused >= kLeastUnusedBytes) return found;
  return std::move(found).warn(is_limited ? "docker run --memory; memory.max of the cgroup"
                                          : "end other processes that take memory",
                               "models and requests fit; without room the kernel kills the server");
}

Finding check_swap(const Machine& machine) {
  const Result<uint64_t> total = meminfo_bytes(machine, "SwapTotal:");
  if (!total.ok()) return unknown(total.status().message());
  if (*total == 0) return text("none");
  const Result<uint64_t> free = meminfo_bytes(machine, "SwapFree:");
  if (!free.ok()) return unknown(free.status().message());
  const uint64_t used = *total - std::min(*total, *free);
  return number(static_cast<double>(*total), "bytes", std::to_string(used / kMiB) + " MiB used")
      .warn("sudo swapoff -a; MemorySwapMax=0 of a systemd unit",
            "no request waits for pages to come back from the disk");
}

Finding check_transparent_huge_pages(const Machine& machine) {
  constexpr std::string_view kFile = "/sys/kernel/mm/transparent_hugepage/enabled";
  const Result<std::string> modes = machine.read(kFile);
  if (!modes.ok()) return unknown(modes.status().message());
  const size_t begin = modes->find('[');
  const size_t end = modes->find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) {
    return unknown(std::string(kFile) + ": got '" + *modes + "', wanted a mode in brackets");
  }
  const std::string mode = modes->substr(begin + 1, end - begin - 1);
  if (mode == "madvise") return text(mode, "for memory that asks for them");
  const std::string how = "echo madvise | sudo tee " + std::string(kFile);
  if (mode == "never") {
    return text(mode).warn(how,
                           "--region-huge-pages and caches get 2 MiB pages, so fewer TLB misses");
  }
  return text(mode, "for all, asked for or not")
      .warn(how, "memory stays as small as the touched part, without stalls for compaction");
}

Finding check_reserved_huge_pages(const Machine& machine) {
  const std::string folder = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
  const Result<uint64_t> total = machine.read_number(folder + "nr_hugepages");
  if (!total.ok()) return unknown(total.status().message());
  const Result<uint64_t> free = machine.read_number(folder + "free_hugepages");
  if (!free.ok()) return unknown(free.status().message());
  Finding found =
      number(static_cast<double>(*free), "",
             "free of " + std::to_string(*total) + " reserved, 2 MiB each; none needed");
  const Result<uint64_t> memory = meminfo_bytes(machine, "MemTotal:");
  const double reserve = static_cast<double>(*free) * 2 * kMiB;
  if (!memory.ok() || reserve < kLargeReserve * static_cast<double>(*memory)) return found;
  return std::move(found).warn("sudo sysctl vm.nr_hugepages=0",
                               "that memory is there for models and requests again");
}

Finding check_memlock(const Machine& machine) {
  const Result<std::string> limits = machine.read_line("/proc/self/limits", "Max locked memory");
  if (!limits.ok()) return unknown(limits.status().message());
  const std::string soft = limits->substr(0, limits->find(' '));
  const std::string note = "a server locks none, perf's rings do";
  if (soft == "unlimited") return text(soft, note);
  const auto bytes = parse_number(soft);
  if (!bytes) return unknown("/proc/self/limits: got '" + soft + "', wanted bytes");
  Finding found = number(static_cast<double>(*bytes), "bytes", note);
  if (*bytes >= kPerfFreeBytes) return found;
  return std::move(found).warn("ulimit -l 8192; LimitMEMLOCK=8M of a systemd unit",
                               "perf record has larger rings, and loses fewer samples");
}

}  // namespace lumen::doctor
