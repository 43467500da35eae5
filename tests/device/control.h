// The settings that tests and the device of provider.cc share. In the process of the device:
// lumen_device_control(), found by dlsym(). Elsewhere the options of the execution provider set
// them.
// Threads: any. Memory: the library's own, for as long as it is loaded. Errors: none.
#pragma once

#include <atomic>
#include <cstdint>

namespace lumen::device {

struct DeviceControl {
  // A run takes at least so long, without the CPU. Option "run_us".
  std::atomic<uint64_t> run_us{0};
  // So many runs from now on fail. Option "failing_runs".
  std::atomic<uint32_t> failing_runs{0};
  // A run fails whose first input, of FP32, holds this whole number anywhere; 0: none does. Option
  // "failing_value".
  std::atomic<int64_t> failing_value{0};
  // Each run and each copy fails. Option "lost" = "1".
  std::atomic<bool> is_lost{false};
  // The memory that the device has, and how much of it is in use. Option "memory_bytes".
  std::atomic<uint64_t> memory_bytes{UINT64_MAX};
  std::atomic<uint64_t> used_bytes{0};
  // Blocks of the host's memory that copies go through, streams, and copies of tensors so far.
  std::atomic<uint64_t> host_blocks{0};
  std::atomic<uint64_t> streams{0};
  std::atomic<uint64_t> copies{0};
  std::atomic<uint32_t> running{0};
  std::atomic<uint32_t> most_running{0};
  std::atomic<uint64_t> runs{0};
};

}  // namespace lumen::device

extern "C" lumen::device::DeviceControl* lumen_device_control();
