// The futex calls of Doorbell. Any thread; no memory; errors of the futex call are spurious wakes.
#include <lumen/base/doorbell.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace lumen {

bool Doorbell::wait(Ticket ticket, uint64_t deadline_ns) noexcept {
  bool rung = true;
  while (epoch_.load(std::memory_order_seq_cst) == ticket) {
    timespec until{static_cast<time_t>(deadline_ns / 1'000'000'000u),
                   static_cast<long>(deadline_ns % 1'000'000'000u)};
    // FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC time, FUTEX_WAIT a relative one.
    const long result = ::syscall(SYS_futex, &epoch_, FUTEX_WAIT_BITSET_PRIVATE, ticket,
                                  deadline_ns == UINT64_MAX ? nullptr : &until, nullptr,
                                  FUTEX_BITSET_MATCH_ANY);
    if (result != 0 && errno == ETIMEDOUT) {
      rung = epoch_.load(std::memory_order_seq_cst) != ticket;
      break;
    }
  }
  waiters_.fetch_sub(1, std::memory_order_relaxed);  // relaxed: see cancel()
  return rung;
}

void Doorbell::ring_slow(uint32_t count) noexcept {
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &epoch_, FUTEX_WAKE_PRIVATE,
            count > static_cast<uint32_t>(INT_MAX) ? INT_MAX : static_cast<int>(count), nullptr,
            nullptr, 0);
}

}  // namespace lumen
