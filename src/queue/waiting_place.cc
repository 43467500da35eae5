// The futex calls of WaitingPlace. Threads: any. Memory: none.
// Errors: an error of the futex call other than a timeout is a spurious wake-up, looked at again.
#include <lumen/queue/waiting_place.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace lumen {

bool WaitingPlace::wait(Ticket ticket, uint32_t waiting_class, uint64_t deadline_ns) noexcept {
  const timespec until{static_cast<time_t>(deadline_ns / 1'000'000'000u),
                       static_cast<long>(deadline_ns % 1'000'000'000u)};
  // sync[place.epoch]: acquire of the waker's change, and of its earlier publications
  while (epoch_.load(std::memory_order_acquire) == ticket) {
    const long result =
        ::syscall(SYS_futex, &epoch_, FUTEX_WAIT_BITSET_PRIVATE, ticket,
                  deadline_ns == UINT64_MAX ? nullptr : &until, nullptr, bit(waiting_class));
    // A wake-up for this class: the epoch has changed, unless 2^32 wakes have passed.
    if (result == 0) return true;
    if (errno == ETIMEDOUT) {
      // sync[place.epoch]: acquire, as above
      return epoch_.load(std::memory_order_acquire) != ticket;
    }
  }
  return true;
}

void WaitingPlace::wake_slow(uint32_t classes) noexcept {
  // sync[place.asleep]: seq_cst, the waker that clears a bit is the one that wakes
  const uint32_t woken = asleep_.fetch_and(~classes, std::memory_order_seq_cst) & classes;
  if (woken == 0) return;
  // sync[place.epoch]: seq_cst, after the clear (see the invariant)
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  wakes_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a statistic
  ::syscall(SYS_futex, &epoch_, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, nullptr, nullptr, woken);
}

}  // namespace lumen
