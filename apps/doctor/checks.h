// The checks of `lumen doctor`: each looks at one thing of a Machine. The table names them all, in
// the order in which they are shown.
// Threads: main. Memory: strings. Errors: never; a value that can't be read is a Finding that says
// so.
#pragma once

#include "doctor/finding.h"
#include "doctor/machine.h"

#include <span>
#include <string_view>
#include <vector>

namespace lumen::doctor {

// kernel_checks.cc
[[nodiscard]] Finding check_kernel(const Machine& machine);
[[nodiscard]] Finding check_virtualisation(const Machine& machine);
[[nodiscard]] Finding check_clock_source(const Machine& machine);
[[nodiscard]] Finding check_io_uring(const Machine& machine);
[[nodiscard]] Finding check_membarrier(const Machine& machine);
[[nodiscard]] Finding check_perf_events(const Machine& machine);
[[nodiscard]] Finding check_hardware_counters(const Machine& machine);

// cpu_checks.cc
[[nodiscard]] Finding check_cpus(const Machine& machine);
[[nodiscard]] Finding check_cpu_quota(const Machine& machine);
[[nodiscard]] Finding check_cpu_throttling(const Machine& machine);
[[nodiscard]] Finding check_smt(const Machine& machine);
[[nodiscard]] Finding check_governor(const Machine& machine);
[[nodiscard]] Finding check_numa(const Machine& machine);

// latency_checks.cc: times between CPUs
[[nodiscard]] Finding check_core_distance(const Machine& machine);
[[nodiscard]] Finding check_wake_up(const Machine& machine);

// instruction_checks.cc
[[nodiscard]] Finding check_avx2(const Machine& machine);
[[nodiscard]] Finding check_avx512(const Machine& machine);
[[nodiscard]] Finding check_vnni(const Machine& machine);
[[nodiscard]] Finding check_amx(const Machine& machine);

// memory_checks.cc
[[nodiscard]] Finding check_memory(const Machine& machine);
[[nodiscard]] Finding check_swap(const Machine& machine);
[[nodiscard]] Finding check_transparent_huge_pages(const Machine& machine);
[[nodiscard]] Finding check_reserved_huge_pages(const Machine& machine);
[[nodiscard]] Finding check_memlock(const Machine& machine);

// resource_checks.cc: where the server puts its files and sockets, and the machine's resources for
// models
[[nodiscard]] Finding check_dev_shm(const Machine& machine);
[[nodiscard]] Finding check_runtime_dir(const Machine& machine);
[[nodiscard]] Finding check_descriptors(const Machine& machine);
[[nodiscard]] Finding check_locale(const Machine& machine);

// device_checks.cc
[[nodiscard]] Finding check_gpu(const Machine& machine);

// server_checks.cc: the memory of the models' instances, of each running server of this user whose
// counters file is at its default place; nothing if none runs.
[[nodiscard]] std::vector<Line> check_servers(const Machine& machine);

struct Check {
  std::string_view name;
  Finding (*run)(const Machine&);
};
[[nodiscard]] std::span<const Check> checks();

}  // namespace lumen::doctor
