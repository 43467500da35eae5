// Asymmetric fence: a store-load fence whose whole price is paid by the rare side.
// Threads: any. Memory: none, and all of it is in this header. Errors: asymmetric_fence_available()
// is false where the kernel refuses membarrier (before 4.14, or by a seccomp filter); callers then
// use seq_cst operations.
//
// The light side must store A and then load B, the heavy side store B and then load A, and one of
// them must see the other's store (Dekker). A light fence keeps the compiler from swapping the two;
// the heavy one makes every running thread of the process run a full barrier, so whichever light
// side it interrupts is either before its store (and will see B) or after it (and A is visible).
// A locked instruction in the light side would cost 4.8 ns, more than all the rest of it; the heavy
// one costs 1 to 5 µs. C++ proposal P1202 and folly's AsymmetricThreadFence describe the same pair.
// ThreadSanitizer does not see either: use them to decide which side may proceed, never to publish
// data.
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace lumen {

// Registers the process with the kernel on the first call; any later call is a load.
[[nodiscard]] inline bool asymmetric_fence_available() noexcept {
  static const bool available = [] {
    const long commands = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    return commands > 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 &&
           ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  }();
  return available;
}

// sync[asymmetric_fence]: seq_cst for the compiler alone; pairs with heavy_fence().
inline void light_fence() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }

// Only where asymmetric_fence_available(): then the kernel does not refuse it, and if it did
// nothing would be safe.
inline void heavy_fence() noexcept {
  if (::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) std::abort();
  // sync[asymmetric_fence]: seq_cst for the compiler; the system call was the barrier, for all
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace lumen
