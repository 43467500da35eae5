// CPUs: which ones this process may use, how much of them its cgroup grants, how they sit together,
// and pinning and naming of threads.
// Threads: any; each call reads the kernel anew. Memory: the heap (control plane only), but
// pinning and naming allocate nothing.
// Errors: Status for a refused pin; a value that can't be read is nullopt or left out, never an
// error.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen {

// The calling thread's affinity mask, ascending. Never empty: {0} if even that can't be read.
[[nodiscard]] std::vector<uint32_t> usable_cpus();
// The process's main thread's, by any thread.
[[nodiscard]] std::vector<uint32_t> main_thread_cpus();

// The CPU quota of the process's cgroup, v2 (cpu.max) or v1 (cpu.cfs_quota_us), the smallest of it
// and its ancestors, in whole CPUs rounded down, at least 1. nullopt: no quota.
[[nodiscard]] std::optional<uint32_t> cgroup_cpu_quota();
// The same in thousandths of a CPU, not rounded: 500 is half a CPU.
[[nodiscard]] std::optional<uint32_t> cgroup_cpu_thousandths();
// The same over given files, for tests: `mount` stands for /sys/fs/cgroup, `self` is the text of
// /proc/self/cgroup.
[[nodiscard]] std::optional<uint32_t> cgroup_cpu_quota(const std::filesystem::path& mount,
                                                       std::string_view self);
[[nodiscard]] std::optional<uint32_t> cgroup_cpu_thousandths(const std::filesystem::path& mount,
                                                             std::string_view self);

// For how long, in sum, the cgroup or one of its ancestors has held its threads back since it was
// made (cpu.stat: throttled_usec of v2, throttled_time of v1). nullopt: no such file, no quota.
[[nodiscard]] std::optional<uint64_t> cgroup_throttled_us();
[[nodiscard]] std::optional<uint64_t> cgroup_throttled_us(const std::filesystem::path& mount,
                                                          std::string_view self);

// The same for a thread that must not allocate: it opens the files once (a descriptor for each
// group that has one), and reads without a heap call (2 us a file).
class ThrottlingMeter {
 public:
  ThrottlingMeter();
  ThrottlingMeter(const std::filesystem::path& mount, std::string_view self);
  [[nodiscard]] std::optional<uint64_t> read_us() const noexcept;

 private:
  struct File {
    UniqueFd fd;
    std::string_view key;
    uint64_t divisor;
  };
  [[nodiscard]] static std::optional<uint64_t> value_of(const File& file) noexcept;

  std::vector<File> files_;
};

struct CpuPlace {
  uint32_t cpu = 0;
  uint32_t core = 0;  // same core and package: SMT siblings
  uint32_t package = 0;
  uint32_t node = 0;  // NUMA
};
// One entry for each of `cpus`, in that order. Where sysfs is silent a CPU is a core of its own.
[[nodiscard]] std::vector<CpuPlace> cpu_places(const std::vector<uint32_t>& cpus);

// How many threads can truly run at once, and why.
struct CpuBudget {
  uint32_t online = 1;            // of the machine
  uint32_t usable = 1;            // by the calling thread's affinity
  std::optional<uint32_t> quota;  // of the cgroup
  uint32_t count = 1;             // usable, cut by the quota, at least 1

  // "2 of 2 CPUs usable, cgroup quota none"
  [[nodiscard]] std::string text() const;
};
[[nodiscard]] CpuBudget cpu_budget();

// cpu_budget().count
[[nodiscard]] uint32_t usable_cpu_count();

// `count` CPUs for worker threads: from the last usable one down, one of each core before a core's
// SMT sibling, round robin when there are more workers than CPUs. CPU 0, where interrupts land by
// default, comes last.
[[nodiscard]] std::vector<uint32_t> worker_cpus(uint32_t count);
[[nodiscard]] std::vector<uint32_t> worker_cpus(uint32_t count,
                                                const std::vector<CpuPlace>& places);

[[nodiscard]] Status pin_this_thread(uint32_t cpu) noexcept;
// The thread may run on any of `cpus` and nowhere else.
[[nodiscard]] Status restrict_this_thread(std::span<const uint32_t> cpus) noexcept;
// The same of the process's main thread, by any thread.
[[nodiscard]] Status restrict_main_thread(std::span<const uint32_t> cpus) noexcept;
// How long the thread wants to run at a time. A thread that asks for less than others is let in
// sooner when it wakes, and gets no more in all. Linux 6.12 on; before that, and if the kernel
// refuses, nothing changes.
void ask_for_time_slice(uint64_t ns) noexcept;
inline constexpr uint64_t kShortestTimeSliceNs = 100'000;  // that the kernel grants
// From now on the thread runs only where no other thread wants the CPU (SCHED_IDLE). Threads and
// processes that it starts inherit this.
[[nodiscard]] Status run_this_thread_in_background() noexcept;
// Undoes it, for all threads of this process. Needs CAP_SYS_NICE or a limit of nice (RLIMIT_NICE)
// of 20 or more; without, nothing changes.
void run_all_threads_as_usual() noexcept;
// Shown by ps -L and perf; the kernel keeps 15 bytes, the rest is cut.
void name_this_thread(std::string_view name) noexcept;

}  // namespace lumen
