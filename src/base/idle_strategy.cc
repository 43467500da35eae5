// The clock and the machine behind IdleStrategy. Threads: as in the header. Memory: none.
// Errors: where /proc/loadavg can't be read, only this process's own threads are counted.
#include <lumen/base/idle_strategy.h>

#include <lumen/base/cpu.h>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <utility>

namespace lumen {
namespace {

constexpr uint32_t kPausesPerYield = 64;
constexpr uint32_t kPausesPerClock = 8;  // 8 x 23 ns of pause beside 21 ns of clock
// Where nobody else wants the core, 16 x 116 ns. Measured on 2 cores, futex calls a 10,000 items of
// a pipeline of 3 threads / requests/s of 4 threads on the no-op path: 2 yields 11 / 165,000; 8: 5
// / 150,000; 16: 0.05 / 120,000; 64: 0.01 / 105,000.
constexpr uint32_t kMostCrowdedYields = 16;
// A yield that let no other thread run takes 0.12 to 0.3 us, one that did takes two switches and
// the run between.
constexpr uint64_t kYieldAloneNs = 2'000;
constexpr uint64_t kCalmPeriodNs = 10'000'000;
constexpr uint64_t kCrowdedPeriodNs = 2'000'000;  // a kernel thread's blink must not cost 10 ms

std::atomic<int32_t> awake_threads{0};
std::atomic<uint64_t> next_look_ns{0};
std::atomic<bool> crowded{false};
std::atomic<bool> spinning_is_allowed{true};

// Counts its thread as awake from its first idle() until the thread ends.
struct AwakeThread {
  // relaxed here and below: a number to decide by, which publishes nothing
  AwakeThread() noexcept { awake_threads.fetch_add(1, std::memory_order_relaxed); }
  ~AwakeThread() { awake_threads.fetch_sub(1, std::memory_order_relaxed); }  // relaxed: as above
};

struct Quota {
  SpinQuota spin{cgroup_cpu_thousandths().value_or(UINT32_MAX)};
  std::optional<ThrottlingMeter> throttling =
      spin.has_quota() ? std::optional<ThrottlingMeter>(std::in_place) : std::nullopt;
};

// Made by the first thread that is enrolled, since it opens files and allocates.
Quota& quota() noexcept {
  static Quota the_quota;
  return the_quota;
}

void count_this_thread() noexcept {
  thread_local AwakeThread awake;
  static_cast<void>(awake);
}

// "0.16 0.11 0.05 2/92 7911": two runnable, this thread among them. -1 when it can't be known.
int64_t runnable_threads() noexcept {
  static const int file = ::open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  std::array<char, 128> text;
  const ssize_t size = file < 0 ? -1 : ::pread(file, text.data(), text.size() - 1, 0);
  if (size <= 0) return -1;
  text[static_cast<size_t>(size)] = '\0';
  const char* field = text.data();
  for (int skipped = 0; skipped < 3; ++skipped) {
    while (*field != ' ' && *field != '\0') ++field;
    if (*field == ' ') ++field;
  }
  char* end = nullptr;
  const int64_t running = std::strtoll(field, &end, 10);
  return end != field && *end == '/' ? running : -1;
}

uint32_t affinity_count() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(::getpid(), sizeof set, &set) != 0) return 1;
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
}

// Before main: later the asking thread, or the main one, may be pinned to a single CPU.
const uint32_t cpus_at_start = affinity_count();

}  // namespace

uint32_t spinning_cpus() noexcept { return cpus_at_start; }

bool machine_is_crowded(uint64_t now) noexcept {
  // relaxed: a hint; nothing is published by it
  if (awake_threads.load(std::memory_order_relaxed) > static_cast<int32_t>(spinning_cpus())) {
    return true;
  }
  uint64_t due = next_look_ns.load(std::memory_order_relaxed);  // relaxed: as above
  // relaxed: the thread that wins the exchange looks, the others use the last answer
  if (now >= due &&
      next_look_ns.compare_exchange_strong(due, now + kCalmPeriodNs, std::memory_order_relaxed)) {
    static const int64_t online = ::sysconf(_SC_NPROCESSORS_ONLN);
    const bool is_crowded = runnable_threads() > online;
    crowded.store(is_crowded, std::memory_order_relaxed);  // relaxed: a hint
    // relaxed: a hint
    if (is_crowded) next_look_ns.store(now + kCrowdedPeriodNs, std::memory_order_relaxed);
  }
  return crowded.load(std::memory_order_relaxed);  // relaxed: a hint
}

void allow_spinning(bool allowed) noexcept {
  spinning_is_allowed.store(allowed, std::memory_order_relaxed);  // relaxed: a number to decide by
}

bool SpinQuota::is_due(uint64_t now) noexcept {
  uint64_t due = next_look_ns_.load(std::memory_order_relaxed);  // relaxed: a hint
  // relaxed: the thread that wins the exchange looks, the others use the last answer
  return has_quota_ && now >= due &&
         next_look_ns_.compare_exchange_strong(due, now + kLookPeriodNs, std::memory_order_relaxed);
}

void SpinQuota::looked(uint64_t now, uint64_t throttled_us) noexcept {
  // relaxed: only the thread that is_due() chose is here
  const uint64_t before = throttled_us_.exchange(throttled_us, std::memory_order_relaxed);
  if (throttled_us > before) {
    rests_until_ns_.store(now + kRestNs, std::memory_order_relaxed);  // relaxed: a hint
  }
}

bool SpinQuota::forbids(uint64_t now, int32_t awake) const noexcept {
  if (!has_quota_) return false;
  // relaxed: a hint
  return awake >= whole_cpus_ || now < rests_until_ns_.load(std::memory_order_relaxed);
}

bool quota_forbids_spinning(uint64_t now) noexcept {
  Quota& of_group = quota();
  if (!of_group.spin.has_quota()) return false;
  if (of_group.spin.is_due(now)) {
    if (const auto us = of_group.throttling->read_us()) of_group.spin.looked(now, *us);
  }
  // relaxed: a number to decide by
  return of_group.spin.forbids(now, awake_threads.load(std::memory_order_relaxed));
}

// The gain of a length: each gap that it covers has a wake-up less and costs itself (half of its
// bucket); each longer one costs the whole length.
uint64_t SpinBudget::spin_ns(uint64_t wake_cost) const noexcept {
  if (max_spin_ns_ == 0) return 0;
  if (arrivals_ == 0) return std::min(max_spin_ns_, wake_cost);
  const auto worth = static_cast<int64_t>(std::min(kWorthOfWaiting * wake_cost, kMaxWorthNs));
  int64_t missed = 0;
  for (const uint32_t weight : weights_) missed += weight;
  int64_t gained = 0, best_gain = 0, below = 0;
  uint64_t best = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    const int64_t bound = kBoundsNs[i];
    gained += weights_[i] * (worth - (below + bound) / 2);
    missed -= weights_[i];
    if (gained - missed * bound > best_gain) {
      best_gain = gained - missed * bound;
      best = kBoundsNs[i];
    }
    below = bound;
  }
  // Where it pays, as long as a wake-up costs: now and then a gap is a little longer.
  if (best > 0) return std::min(max_spin_ns_, std::max(best, wake_cost));
  return std::min({max_spin_ns_, wake_cost, kShortSpinNs});
}

void IdleStrategy::enrol_this_thread() noexcept {
  count_this_thread();
  static_cast<void>(quota());
}

void IdleStrategy::begin_idling() noexcept {
  count_this_thread();
  idle_since_ns_ = now_ns();
  times_.enter(ThreadState::kSpinning, idle_since_ns_);
  parked_since_work_ = false;
  spin_until_ns_ = idle_since_ns_;
  // relaxed: a number to decide by
  if (spinning_is_allowed.load(std::memory_order_relaxed) &&
      !quota_forbids_spinning(idle_since_ns_)) {
    spin_until_ns_ += spin_ns();
  }
  crowded_ = machine_is_crowded(idle_since_ns_);
  yields_ = 0;
}

void IdleStrategy::end_of_idling() noexcept {
  const uint64_t now = now_ns();
  times_.enter(ThreadState::kBusy, now);
  const uint64_t gap_ns = now - idle_since_ns_;
  // A thread that slept has seen the work a wake-up after it came; a spin would have ended before.
  const uint64_t woken_ns = parked_since_work_ ? std::min(gap_ns, wake_cost()) : 0;
  budget_.arrived_after(gap_ns - woken_ns);
  looks_ = 0;
}

// The verdict stands until work comes: a caller that looks again before it sleeps must not be told
// to spin on until the next look at the clock.
IdleStrategy::Step IdleStrategy::end_of_spin() noexcept {
  spin_until_ns_ = idle_since_ns_;
  return Step::kPark;
}

IdleStrategy::Step IdleStrategy::idle() noexcept {
  if (looks_++ == 0) begin_idling();
  // A wake-up that brought no work has had its spin already.
  if (parked_since_work_ || spin_until_ns_ == idle_since_ns_) return Step::kPark;
  if (crowded_) {
    // A yield that lets another thread run may take a whole time slice, so those are counted; where
    // none did, this core is nobody else's, and the time says how long.
    const uint64_t before = now_ns();
    if (yields_ >= kMostCrowdedYields || before >= spin_until_ns_) return end_of_spin();
    ::sched_yield();
    if (now_ns() - before > kYieldAloneNs) ++yields_;
    return Step::kYield;
  }
  if (looks_ % kPausesPerClock == 0) {
    const uint64_t now = now_ns();
    if (now >= spin_until_ns_) return end_of_spin();
    crowded_ = machine_is_crowded(now);
  }
  if (looks_ % kPausesPerYield == 0) {
    ::sched_yield();
    return Step::kYield;
  }
  cpu_pause();
  return Step::kSpin;
}

void IdleStrategy::observe(ThreadTimes times) noexcept {
  times_ = times;
  if (times_.is_kept()) times_.begin(now_ns());
}

// Beside the system call of the sleep, two looks at the clock are nothing.
void IdleStrategy::parking() noexcept {
  if (times_.is_kept()) times_.enter(ThreadState::kParked, now_ns());
  parked_since_work_ = true;
  awake_threads.fetch_sub(1, std::memory_order_relaxed);  // relaxed: a number to decide by
}

void IdleStrategy::unparked() noexcept {
  if (times_.is_kept()) times_.enter(ThreadState::kBusy, now_ns());
  awake_threads.fetch_add(1, std::memory_order_relaxed);  // relaxed: a number to decide by
}

}  // namespace lumen
