// this_machine(): the Machine whose answers are the kernel's and the CPU's. Control plane; see the
// header.
#include "doctor/machine.h"
#include "doctor/probes.h"

#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace lumen::doctor {
namespace {

Result<FileSystem> file_system_of(const std::filesystem::path& path) {
  struct statfs found{};
  if (::statfs(path.c_str(), &found) != 0) {
    const int error = errno;
    return Status::error(error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kForbidden,
                         "%s: %s", path.c_str(), std::generic_category().message(error).c_str());
  }
  const auto block = static_cast<uint64_t>(found.f_bsize);
  return FileSystem{.is_tmpfs = found.f_type == TMPFS_MAGIC,
                    .bytes = found.f_blocks * block,
                    .free_bytes = found.f_bavail * block};
}

}  // namespace

Machine this_machine(uint64_t descriptors_needed) {
  Machine machine;
  if (const char* folder = std::getenv("XDG_RUNTIME_DIR")) machine.runtime_dir = folder;
  machine.user = ::geteuid();
  machine.descriptors_needed = descriptors_needed;
  machine.file_system = file_system_of;
  machine.is_writable = [](const std::filesystem::path& path) {
    return ::access(path.c_str(), W_OK) == 0;
  };
  machine.cpu_features = read_cpu_features;
  machine.amx_permission = try_amx;
  machine.io_uring = try_io_uring;
  machine.membarrier = try_membarrier;
  machine.has_locale = has_locale;
  machine.has_library = has_library;
  machine.hardware_counter = try_hardware_counter;
  machine.clock_read_ns = measure_clock_read_ns;
  machine.core_distance_ns = measure_core_distance_ns;
  machine.wake_up_ns = measure_wake_up_ns;
  return machine;
}

}  // namespace lumen::doctor
