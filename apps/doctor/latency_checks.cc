// Checks that measure: how far CPUs are from each other, and the time to wake a thread.
// Threads, memory and errors: see checks.h.
#include "doctor/checks.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lumen::doctor {
namespace {

// Each takes 2 ms; 6 CPUs have 15 pairs.
constexpr size_t kMaxPairs = 16;
// Between the times of near cores (25 to 65 ns) and far ones (100 to 300), as the benches cut them.
constexpr uint64_t kFarNs = 75;
// Machines of both kinds have shown 2 to 20 us; above, a CPU comes from a deep idle state.
constexpr uint64_t kSlowWakeUpNs = 30'000;

using Pair = std::pair<uint32_t, uint32_t>;

// All, or as many as there is time for, spread over all.
std::vector<Pair> pairs_of(const std::vector<uint32_t>& cpus) {
  std::vector<Pair> all;
  for (size_t a = 0; a < cpus.size(); ++a) {
    for (size_t b = a + 1; b < cpus.size(); ++b) all.emplace_back(cpus[a], cpus[b]);
  }
  if (all.size() <= kMaxPairs) return all;
  std::vector<Pair> some;
  some.reserve(kMaxPairs);
  for (size_t i = 0; i < kMaxPairs; ++i) some.push_back(all[i * all.size() / kMaxPairs]);
  return some;
}

std::string text_of(const Pair& pair) {
  return std::to_string(pair.first) + "," + std::to_string(pair.second);
}

}  // namespace

Finding check_core_distance(const Machine& machine) {
  const Result<std::vector<uint32_t>> usable = machine.usable_cpus();
  if (!usable.ok()) return unknown(usable.status().message());
  if (usable->size() < 2) return unknown("one CPU has no distance");
  std::vector<std::pair<uint64_t, Pair>> found;
  const std::vector<Pair> pairs = pairs_of(*usable);
  for (const Pair& pair : pairs) {
    if (const auto ns = machine.core_distance_ns(pair.first, pair.second))
      found.emplace_back(*ns, pair);
  }
  if (found.empty()) return unknown("other programs kept the CPUs busy; try again");
  const auto [least, most] = std::ranges::minmax(found);
  const bool is_far = most.first >= kFarNs;
  std::string note = is_far ? "far" : "near";
  note += found.size() == 1
              ? ": CPUs " + text_of(most.second)
              : ": the farthest of " + std::to_string(found.size()) + " pairs, CPUs " +
                    text_of(most.second) + "; the nearest: " + std::to_string(least.first) + " ns";
  Finding shown = number(static_cast<double>(most.first), "ns", std::move(note));
  if (!is_far) return shown;
  if (least.first < kFarNs) {
    return std::move(shown).warn("taskset -c " + text_of(least.second) + " lumen serve",
                                 "a hand-off between threads takes a third of the time or less");
  }
  return std::move(shown).warn("--queue-type inline; virsh vcpupin: the virtual CPUs on one socket",
                               "inline hands nothing between threads; near cores do it in a third");
}

Finding check_wake_up(const Machine& machine) {
  const Result<std::vector<uint32_t>> usable = machine.usable_cpus();
  if (!usable.ok()) return unknown(usable.status().message());
  if (usable->size() < 2) return unknown("one CPU has no other to be woken from");
  const auto ns = machine.wake_up_ns(usable->front(), usable->back());
  if (!ns) return unknown("other programs kept the CPUs busy; try again");
  Finding found = number(static_cast<double>(*ns), "ns", "from the call until the sleeper runs");
  if (*ns < kSlowWakeUpNs) return found;
  const bool is_virtual = !machine.cpu_features().hypervisor.empty();
  return std::move(found).warn(
      is_virtual ? "sudo modprobe cpuidle-haltpoll force=1" : "sudo cpupower idle-set -D 10",
      "a request that meets a sleeping thread waits so much less");
}

}  // namespace lumen::doctor
