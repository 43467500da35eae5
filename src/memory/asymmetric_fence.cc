// membarrier behind the asymmetric fence. Any thread; no memory.
// Errors: available() is false; heavy_fence() failing after registration is a bug of ours.
#include <lumen/memory/asymmetric_fence.h>

#include <lumen/base/check.h>

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lumen {
namespace {
long membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0); }
}  // namespace

bool asymmetric_fence_available() noexcept {
  static const bool available = [] {
    const long commands = membarrier(MEMBARRIER_CMD_QUERY);
    return commands > 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 &&
           membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  }();
  return available;
}

void heavy_fence() noexcept {
  LUMEN_CHECK(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0);
  // sync[asymmetric_fence]: seq_cst for the compiler; the system call was the barrier, for all
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace lumen
