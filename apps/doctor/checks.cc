// The table of checks. Threads, memory and errors: see the header.
#include "doctor/checks.h"

namespace lumen::doctor {
namespace {

constexpr Check kChecks[] = {
    {"kernel", check_kernel},
    {"virtualisation", check_virtualisation},
    {"clock source", check_clock_source},
    {"CPUs", check_cpus},
    {"CPU quota", check_cpu_quota},
    {"CPU throttling", check_cpu_throttling},
    {"SMT", check_smt},
    {"governor", check_governor},
    {"NUMA nodes", check_numa},
    {"core distance", check_core_distance},
    {"wake-up", check_wake_up},
    {"AVX2", check_avx2},
    {"AVX-512F", check_avx512},
    {"VNNI", check_vnni},
    {"AMX", check_amx},
    {"memory", check_memory},
    {"swap", check_swap},
    {"THP", check_transparent_huge_pages},
    {"huge pages", check_reserved_huge_pages},
    {"memlock", check_memlock},
    {"/dev/shm", check_dev_shm},
    {"XDG_RUNTIME_DIR", check_runtime_dir},
    {"descriptors", check_descriptors},
    {"locale", check_locale},
    {"GPU", check_gpu},
    {"io_uring", check_io_uring},
    {"membarrier", check_membarrier},
    {"perf events", check_perf_events},
    {"hardware counters", check_hardware_counters},
};

}  // namespace

std::span<const Check> checks() { return kChecks; }

}  // namespace lumen::doctor
