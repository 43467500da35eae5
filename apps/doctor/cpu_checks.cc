// Checks of the CPUs that this process may use. Threads, memory and errors: see checks.h.
#include "doctor/checks.h"

#include <lumen/base/cpu.h>

#include <algorithm>
#include <cstdio>
#include <set>

namespace lumen::doctor {
namespace {

constexpr std::string_view kCpuFolder = "/sys/devices/system/cpu/";
constexpr std::string_view kGroups = "/proc/self/cgroup";
constexpr std::string_view kGroupMount = "/sys/fs/cgroup";

std::string cpu_file(uint32_t cpu, std::string_view name) {
  return std::string(kCpuFolder) + "cpu" + std::to_string(cpu) + "/" + std::string(name);
}

std::filesystem::path mount_of(const Machine& machine) {
  return machine.root / std::filesystem::path(kGroupMount).relative_path();
}

// The text of /proc/self/cgroup, or why it can't be read.
Result<std::string> read_groups(const Machine& machine) {
  Result<std::string> groups = machine.read(kGroups);
  if (!groups.ok()) return groups.status();
  if (machine.exists(kGroupMount)) return groups;
  return Status::error(Code::kNotFound, "%s: not mounted", kGroupMount.data());
}

}  // namespace

Finding check_cpus(const Machine& machine) {
  const Result<std::vector<uint32_t>> usable = machine.usable_cpus();
  if (!usable.ok()) return unknown(usable.status().message());
  const Result<std::string> list = machine.read(std::string(kCpuFolder) + "online");
  const auto online = list.ok() ? parse_cpu_list(*list) : std::nullopt;
  std::string note = online
                         ? "usable, of " + std::to_string(online->size()) + " online"
                         : "usable; online not readable: " + std::string(list.status().message());
  Finding found = number(static_cast<double>(usable->size()), "", std::move(note));
  if (usable->size() > 1) return found;
  const bool is_bound = online && online->size() > 1;
  return std::move(found).warn(
      is_bound ? "taskset -c 0,1 lumen serve; docker run --cpuset-cpus 0,1" : "use 2 CPUs or more",
      "the I/O thread and the worker run at once, and may poll");
}

Finding check_cpu_quota(const Machine& machine) {
  const Result<std::string> groups = read_groups(machine);
  if (!groups.ok()) return unknown(groups.status().message());
  const auto quota = cgroup_cpu_thousandths(mount_of(machine), *groups);
  if (!quota) return text("none");
  Finding found = number(*quota / 1000.0, "CPUs", "of the cgroup");
  const Result<std::vector<uint32_t>> usable = machine.usable_cpus();
  if (usable.ok() && *quota >= usable->size() * 1000) return found;
  return std::move(found).warn(
      "docker run --cpuset-cpus instead of --cpus; Kubernetes: CPU manager policy static",
      "CPUs of its own: a used-up quota stops all threads for up to 100 ms");
}

Finding check_cpu_throttling(const Machine& machine) {
  const Result<std::string> groups = read_groups(machine);
  if (!groups.ok()) return unknown(groups.status().message());
  const auto us = cgroup_throttled_us(mount_of(machine), *groups);
  if (!us) return unknown("no cpu.stat of the cgroup counts it");
  Finding found = number(static_cast<double>(*us) * 1000, "ns", "held back by the cgroup so far");
  if (*us == 0) return found;
  return std::move(found).warn("raise the quota: docker run --cpus, cpu.max of the cgroup",
                               "no request waits until the quota's next period");
}

Finding check_smt(const Machine& machine) {
  const Result<std::vector<uint32_t>> usable = machine.usable_cpus();
  if (!usable.ok()) return unknown(usable.status().message());
  std::set<std::vector<uint32_t>> cores;
  for (const uint32_t cpu : *usable) {
    const std::string file = cpu_file(cpu, "topology/thread_siblings_list");
    const Result<std::string> list = machine.read(file);
    if (!list.ok()) return unknown(list.status().message());
    const auto siblings = parse_cpu_list(*list);
    if (!siblings) return unknown(file + ": got '" + *list + "', wanted a list of CPUs");
    cores.insert(*siblings);
  }
  const std::string count = std::to_string(cores.size());
  if (cores.size() == usable->size()) return text("no siblings in use", "a core for each CPU");
  return text("siblings in use", std::to_string(usable->size()) + " CPUs on " + count + " cores")
      .warn("lumen serve --thread-count " + count,
            "a worker has its core for itself; two on one share its units and caches");
}

Finding check_governor(const Machine& machine) {
  const Result<std::vector<uint32_t>> usable = machine.usable_cpus();
  if (!usable.ok()) return unknown(usable.status().message());
  if (!machine.exists(kCpuFolder)) return unknown(std::string(kCpuFolder) + ": not mounted");
  std::set<std::string> governors;
  for (const uint32_t cpu : *usable) {
    const Result<std::string> governor = machine.read(cpu_file(cpu, "cpufreq/scaling_governor"));
    if (governor.ok()) {
      governors.insert(*governor);
    } else if (governor.status().code() != Code::kNotFound) {
      return unknown(governor.status().message());
    }
  }
  if (governors.empty()) return text("none", "no cpufreq, as on most virtual machines");
  std::string names;
  for (const std::string& name : governors) names += (names.empty() ? "" : ", ") + name;
  if (names == "performance") return text(names);
  return text(names).warn("sudo cpupower frequency-set -g performance",
                          "a request after a pause runs at full clock at once");
}

Finding check_numa(const Machine& machine) {
  const Result<std::vector<uint32_t>> usable = machine.usable_cpus();
  if (!usable.ok()) return unknown(usable.status().message());
  constexpr std::string_view kNodes = "/sys/devices/system/node/";
  const Result<std::string> list = machine.read(std::string(kNodes) + "online");
  if (!list.ok()) return unknown(list.status().message());
  const auto nodes = parse_cpu_list(*list);
  if (!nodes) return unknown(std::string(kNodes) + "online: got '" + *list + "', wanted a list");
  std::vector<uint32_t> in_use;
  for (const uint32_t node : *nodes) {
    const std::string file = std::string(kNodes) + "node" + std::to_string(node) + "/cpulist";
    const Result<std::string> cpus = machine.read(file);
    if (!cpus.ok()) return unknown(cpus.status().message());
    const auto of_node = parse_cpu_list(*cpus);  // none: a node that is memory alone
    if (of_node && std::ranges::find_first_of(*of_node, *usable) != of_node->end()) {
      in_use.push_back(node);
    }
  }
  Finding found =
      number(static_cast<double>(in_use.size()), "", "in use, of " + std::to_string(nodes->size()));
  if (in_use.size() < 2) return found;
  const std::string first = std::to_string(in_use.front());
  return std::move(found).warn(
      "numactl --cpunodebind=" + first + " --membind=" + first + " lumen serve",
      "threads and their memory stay on one node");
}

}  // namespace lumen::doctor
