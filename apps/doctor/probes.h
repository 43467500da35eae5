// The probes behind a Machine: the kernel's limits and the distance of two CPUs, found by trying.
// Threads: any; distance and wake-ups are measured by two of their own, which end with the call.
// Memory: stacks. Errors: an errno, or nullopt where a thread or a CPU was not to be had.
#pragma once

#include "doctor/machine.h"

#include <cstdint>
#include <optional>

namespace lumen::doctor {

[[nodiscard]] CpuFeatures read_cpu_features();
// Asks for the registers of AMX, for this process alone.
[[nodiscard]] int try_amx() noexcept;
[[nodiscard]] int try_io_uring() noexcept;
[[nodiscard]] int try_membarrier() noexcept;
[[nodiscard]] bool has_locale(const char* name) noexcept;
[[nodiscard]] bool has_library(const char* name) noexcept;
// Counts cycles of this process in user space.
[[nodiscard]] int try_hardware_counter() noexcept;
// The quickest of some runs: other work of the CPU only adds.
[[nodiscard]] uint64_t measure_clock_read_ns() noexcept;
// One way, the quickest of some runs; a millisecond or two, 50 on a busy machine.
[[nodiscard]] std::optional<uint64_t> measure_core_distance_ns(uint32_t a, uint32_t b);
// The median from wake() until the sleeper runs; 50 ms.
[[nodiscard]] std::optional<uint64_t> measure_wake_up_ns(uint32_t waker, uint32_t sleeper);

}  // namespace lumen::doctor
