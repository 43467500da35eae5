// The clock and the machine behind IdleStrategy. Threads: as in the header. Memory: none.
// Says no: where /proc/loadavg can't be read, only this process's own threads are counted.
#include <lumen/base/idle_strategy.h>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>

namespace lumen {
namespace {

constexpr uint32_t kPausesPerYield = 64;
constexpr uint32_t kPausesPerClock = 8;  // 8 x 23 ns of pause beside 21 ns of clock
// Where nobody else wants the core, 16 x 116 ns. Measured on 2 cores, futex calls a 10,000 items of
// a pipeline of 3 threads / requests/s of 4 threads on the no-op path: 2 yields 11 / 165,000; 8: 5
// / 150,000; 16: 0.05 / 120,000; 64: 0.01 / 105,000.
constexpr uint32_t kMostCrowdedYields = 16;
// A yield that let nobody run takes 0.12 to 0.3 us, one that did takes two switches and what ran between.
constexpr uint64_t kYieldAloneNs = 2'000;
constexpr uint64_t kCalmPeriodNs = 10'000'000;
constexpr uint64_t kCrowdedPeriodNs = 2'000'000;  // a kernel thread's blink must not cost 10 ms

std::atomic<int32_t> awake_threads{0};
std::atomic<uint64_t> next_look_ns{0};
std::atomic<bool> crowded{false};

// Counts its thread as awake from its first idle() until the thread ends.
struct AwakeThread {
  // relaxed here and below: a number to decide by, which publishes nothing
  AwakeThread() noexcept { awake_threads.fetch_add(1, std::memory_order_relaxed); }
  ~AwakeThread() { awake_threads.fetch_sub(1, std::memory_order_relaxed); }  // relaxed: as above
};

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
  // relaxed: whoever wins the exchange looks, the others use the last answer
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

void IdleStrategy::enrol_this_thread() noexcept { count_this_thread(); }

void IdleStrategy::begin_idling() noexcept {
  count_this_thread();
  idle_since_ns_ = now_ns();
  parked_since_work_ = false;
  spin_until_ns_ = idle_since_ns_ + budget_.spin_ns(wake_cost_ns());
  crowded_ = machine_is_crowded(idle_since_ns_);
  yields_ = 0;
}

void IdleStrategy::end_of_idling() noexcept {
  budget_.arrived_after(now_ns() - idle_since_ns_);
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

void IdleStrategy::parking() noexcept {
  parked_since_work_ = true;
  awake_threads.fetch_sub(1, std::memory_order_relaxed);  // relaxed: a number to decide by
}

void IdleStrategy::unparked() noexcept {
  awake_threads.fetch_add(1, std::memory_order_relaxed);  // relaxed: a number to decide by
}

}  // namespace lumen
