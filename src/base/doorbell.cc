// The slow half of Doorbell: tokens and futex calls. Any thread; no memory.
// Errors: an error of the futex call other than a timeout is a spurious wake-up, looked at again.
#include <lumen/base/doorbell.h>

#include <lumen/base/clock.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>

namespace lumen {
namespace {

constexpr uint64_t kFirstWakeCostNs = 20'000;
// A sleeper whose core was busy with another thread says nothing about the machine's wake-up.
constexpr uint64_t kLongestWakeSampleNs = 100'000;

std::atomic<uint64_t> wake_cost{kFirstWakeCostNs};

void record_wake(uint64_t cost_ns) noexcept {
  // relaxed: a statistic; a sample lost between load and store only slows the mean
  const uint64_t mean = wake_cost.load(std::memory_order_relaxed);
  const uint64_t sample = std::min(cost_ns, kLongestWakeSampleNs);
  wake_cost.store(mean - mean / 8 + sample / 8, std::memory_order_relaxed);  // relaxed: as above
}

template <FutexScope kScope>
constexpr int futex_operation(int operation) noexcept {
  return kScope == FutexScope::kProcess ? operation | FUTEX_PRIVATE_FLAG : operation;
}

}  // namespace

uint64_t wake_cost_ns() noexcept {
  return wake_cost.load(std::memory_order_relaxed);  // relaxed: a statistic
}

template <FutexScope kScope>
bool BasicDoorbell<kScope>::take_token() noexcept {
  // sync[doorbell.state]: acquire of the waker's release
  uint64_t state = state_.load(std::memory_order_acquire);
  while (tokens_of(state) != 0) {
    // sync[doorbell.state]: as above; on failure the state is looked at anew
    if (state_.compare_exchange_weak(state, state - kOneToken, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      return true;
    }
  }
  return false;
}

template <FutexScope kScope>
bool BasicDoorbell<kScope>::leave() noexcept {
  // sync[doorbell.state]: acquire of the waker's release, should a token be taken
  uint64_t state = state_.load(std::memory_order_acquire);
  for (;;) {
    const bool all_promised = waiters_of(state) == 0;
    const uint64_t next = state - (all_promised ? kOneToken : kOneWaiter);
    // sync[doorbell.state]: as above
    if (state_.compare_exchange_weak(state, next, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      return all_promised;
    }
  }
}

template <FutexScope kScope>
bool BasicDoorbell<kScope>::wait(Ticket, uint64_t deadline_ns) noexcept {
  const timespec until{static_cast<time_t>(deadline_ns / 1'000'000'000u),
                       static_cast<long>(deadline_ns % 1'000'000'000u)};
  bool slept = false;
  while (!take_token()) {
    // FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC time, FUTEX_WAIT a relative one.
    const long result =
        ::syscall(SYS_futex, &state_, futex_operation<kScope>(FUTEX_WAIT_BITSET), 0,
                  deadline_ns == UINT64_MAX ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY);
    slept = result == 0;
    if (result != 0 && errno == ETIMEDOUT) return leave();
  }
  if (slept) {
    // relaxed: a statistic; with several wakers it may belong to a later wake, never to the future
    const uint64_t rung_at_ns = woken_at_ns_.load(std::memory_order_relaxed);
    const uint64_t now = now_ns();
    if (now > rung_at_ns) record_wake(now - rung_at_ns);
  }
  return true;
}

template <FutexScope kScope>
void BasicDoorbell<kScope>::wake_slow(uint32_t count) noexcept {
  // relaxed: the compare-and-swap below checks it
  uint64_t state = state_.load(std::memory_order_relaxed);
  uint32_t promised = 0;
  do {
    promised = std::min(count, waiters_of(state));
    if (promised == 0) return;
    // sync[doorbell.state]: release to the waiter that takes the token
    // relaxed: on failure the new value is only tried again
  } while (!state_.compare_exchange_weak(state,
                                         state - promised * kOneWaiter + promised * kOneToken,
                                         std::memory_order_release, std::memory_order_relaxed));
  woken_at_ns_.store(now_ns(), std::memory_order_relaxed);  // relaxed: a statistic
  ::syscall(SYS_futex, &state_, futex_operation<kScope>(FUTEX_WAKE),
            static_cast<int>(std::min<uint32_t>(promised, INT_MAX)), nullptr, nullptr, 0);
}

template class BasicDoorbell<FutexScope::kProcess>;
template class BasicDoorbell<FutexScope::kShared>;

}  // namespace lumen
