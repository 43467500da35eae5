// IdleStrategy: the steps of a thread between two looks that found nothing: pause, yield, park.
// Threads: one IdleStrategy a thread, not shared. Memory: none.
// Errors: it never sleeps itself; Step::kPark says that the caller should (await() below does).
//
// How long a thread spins depends on the costs and the savings of spinning, both in time
// (SpinBudget). A gap that ends while the thread spins has cost that much CPU and has spared a
// wake-up, which a request would wait for (wake_cost_ns(): 20 µs on some machines, 2 on others);
// one that outlasts the spin has cost the spin and spared nothing. A spared wake-up is worth five
// times its length in CPU, at most 100 µs: so spinning takes at most a tenth of a core at 1,000
// wake-ups a second, for any pattern of them. The thread spins as long as would have gained most
// over the last gaps, and not at all (2 µs) where no length gains: for gaps of 60 µs, as a fast
// client leaves, it spins; at 2,100 requests a second, whose gaps are 400 µs, it sleeps. Before, it
// spun through any gap of less than 500 µs. A server with one worker and a small MLP, 2 cores: at
// 2,100 requests a second 1.00 core then, 0.15 now, 0.15 without spinning; one client in a closed
// loop has a median of 37 µs then and now, 96 without.
// It never spins when there are more runnable threads than cores: neither when the awake Lumen
// threads of this process alone are more (exact, checked at each look at the clock), nor when
// /proc/loadavg says so of the machine (looked at every 10 ms by one thread, 3 µs a look). Then
// each look is followed by a yield, which gives the core to a thread that waits for it: until 16
// yields have let another thread run, or the bound is over. Without those yields a pipeline of 3
// threads on 2 cores parks after each batch (one futex call of 6 µs for every 140 items, measured);
// with 16 yields of any kind a worker alone on its core, on a machine whose other core was busy,
// found 6 % of its requests only after a wake-up. It spins only within a cgroup's quota: if there
// is one, a thread spins only while fewer threads of ours are awake than the quota's whole CPUs, so
// that one of them is left for those that work, and for 10 s not at all once the kernel has held
// the group back (cpu.stat, looked at every 100 ms).
// Quota and affinity are read once.
// A thread that is killed alone stays counted as awake: then fewer spin, and nothing else.
// Every 64 pauses it yields (116 ns) anyway: two spinning threads that the kernel has packed on one
// CPU would else hand over only once a time slice (0.13 M messages/s seen).
#pragma once

#include <lumen/base/clock.h>
#include <lumen/base/doorbell.h>
#include <lumen/base/thread_times.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lumen {

// A hint to the core that this is a spin loop; 23 ns on Zen 5, 40 on Skylake and later.
inline void cpu_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The CPUs that this process was started on (sched_getaffinity before main): as many threads may
// spin at once.
[[nodiscard]] uint32_t spinning_cpus() noexcept;
// False: no thread of this process spins from now on; each sleeps as soon as it has nothing to do.
void allow_spinning(bool allowed) noexcept;
// Whether the quota of the cgroup, as above, leaves nothing to spin on.
[[nodiscard]] bool quota_forbids_spinning(uint64_t now) noexcept;
// More runnable threads than cores, as above; `now` decides whether it is time to look again.
[[nodiscard]] bool machine_is_crowded(uint64_t now) noexcept;

// How a cgroup's quota bears on spinning; the numbers alone, so that a test can drive them.
class SpinQuota {
 public:
  static constexpr uint64_t kLookPeriodNs = 100'000'000;  // of the quota itself, as a rule
  static constexpr uint64_t kRestNs = 10'000'000'000;     // after a throttling
  // `thousandths` of a CPU; UINT32_MAX: no quota.
  explicit SpinQuota(uint32_t thousandths) noexcept
      : whole_cpus_(static_cast<int32_t>(thousandths / 1000)),
        has_quota_(thousandths != UINT32_MAX) {}

  [[nodiscard]] bool has_quota() const noexcept { return has_quota_; }
  // True for one caller a period: that caller then reads the sum of throttled time and calls
  // looked().
  [[nodiscard]] bool is_due(uint64_t now) noexcept;
  void looked(uint64_t now, uint64_t throttled_us) noexcept;
  [[nodiscard]] bool forbids(uint64_t now, int32_t awake) const noexcept;

 private:
  const int32_t whole_cpus_;
  const bool has_quota_;
  // All relaxed: hints, which publish nothing.
  std::atomic<uint64_t> next_look_ns_{0};
  std::atomic<uint64_t> throttled_us_{UINT64_MAX};  // UINT64_MAX: not looked yet
  std::atomic<uint64_t> rests_until_ns_{0};
};

// The cost and the savings of spinning over the last gaps between works, and so how long to spin.
// Numbers alone, free of clock and machine, so that a test can drive them.
class SpinBudget {
 public:
  static constexpr uint64_t kShortSpinNs = 2'000;
  // CPU time that a nanosecond of a request's waiting is worth. Below 4 a client over TCP, whose
  // requests come 60 to 100 µs apart, would be woken for at 20 µs a wake-up.
  static constexpr uint64_t kWorthOfWaiting = 5;
  static constexpr uint64_t kMaxWorthNs = 100'000;

  explicit SpinBudget(uint64_t max_spin_ns) noexcept : max_spin_ns_(max_spin_ns) {}

  // Work came `gap_ns` after the thread ran out of it.
  void arrived_after(uint64_t gap_ns) noexcept {
    size_t bucket = 0;
    while (bucket < kBuckets && kBoundsNs[bucket] < gap_ns) ++bucket;
    for (uint32_t& weight : weights_) weight -= weight / kMemory;
    weights_[bucket] += kUnit;
    ++arrivals_;
  }
  // The length that would have gained most over the gaps so far.
  [[nodiscard]] uint64_t spin_ns(uint64_t wake_cost) const noexcept;
  [[nodiscard]] uint64_t arrivals() const noexcept { return arrivals_; }

 private:
  // Half octaves: a spin that is 1.4 times too long wastes little. Gaps above the last count as
  // misses.
  static constexpr size_t kBuckets = 12;
  static constexpr std::array<uint32_t, kBuckets> kBoundsNs = {
      2'000, 3'000, 4'000, 6'000, 8'000, 12'000, 16'000, 24'000, 32'000, 48'000, 72'000, 100'000};
  // An exponential mean over about so many gaps: at fewer, chance lets Poisson arrivals look like
  // short gaps.
  static constexpr uint32_t kMemory = 32;
  static constexpr uint32_t kUnit = 1u << 20;  // rounding is far below

  uint64_t max_spin_ns_;
  uint64_t arrivals_ = 0;
  std::array<uint32_t, kBuckets + 1> weights_{};  // the last: longer than all bounds
};

class IdleStrategy {
 public:
  enum class Step : uint8_t { kSpin, kYield, kPark };
  static constexpr uint64_t kMaxSpinNs = SpinBudget::kMaxWorthNs;

  // A sleep in the kernel that another CPU's interrupt ends: 20 to 60 µs on virtual machines, and
  // nothing here measures it. Doorbells do measure theirs, which is 3 µs where waker and sleeper
  // share a CPU.
  static constexpr uint64_t kKernelWakeCostNs = 20'000;

  // `max_spin_ns` 0: always park at once. `least_wake_cost_ns`: the least cost of a wake-up, if it
  // is not a doorbell's.
  explicit IdleStrategy(uint64_t max_spin_ns = kMaxSpinNs, uint64_t least_wake_cost_ns = 0) noexcept
      : budget_(max_spin_ns), least_wake_cost_ns_(least_wake_cost_ns) {}

  // Counts the calling thread among the awake ones, which its first idle() would do otherwise. The
  // C library allocates for that once a thread: call it where allocating is still allowed.
  static void enrol_this_thread() noexcept;
  // A look has found nothing. kSpin: it has paused a little, kYield: it has yielded: look again.
  // kPark: time to sleep.
  [[nodiscard]] Step idle() noexcept;
  // A look has found work, perhaps after idle() calls.
  void found() noexcept {
    if (looks_ != 0) end_of_idling();
  }
  // Woken, and the awaited event is on its way, so that spinning is due once more; no gap is
  // learnt.
  void expect_soon() noexcept { looks_ = 0; }
  // From now on, on the thread that waits: keeps `times` up to date.
  void observe(ThreadTimes times) noexcept;
  // Around the sleep itself: a parked thread is not runnable.
  void parking() noexcept;
  void unparked() noexcept;

  [[nodiscard]] const SpinBudget& budget() const noexcept { return budget_; }
  // How long it would spin now, were it allowed.
  [[nodiscard]] uint64_t spin_ns() const noexcept { return budget_.spin_ns(wake_cost()); }

 private:
  void begin_idling() noexcept;
  void end_of_idling() noexcept;
  [[nodiscard]] Step end_of_spin() noexcept;
  [[nodiscard]] uint64_t wake_cost() const noexcept {
    return std::max(wake_cost_ns(), least_wake_cost_ns_);
  }

  SpinBudget budget_;
  uint64_t least_wake_cost_ns_;
  uint32_t looks_ = 0;  // since work was last found
  bool parked_since_work_ = false;
  bool crowded_ = false;
  uint32_t yields_ = 0;
  uint64_t idle_since_ns_ = 0;
  uint64_t spin_until_ns_ = 0;
  ThreadTimes times_;
};

// Waits until look() is true or `deadline_ns` has passed; false in the latter case alone. look()
// must use seq_cst loads (or read-modify-writes), and the thread that makes it true must wake
// `bell` afterwards.
template <FutexScope kScope, typename Look>
[[nodiscard]] bool await(BasicDoorbell<kScope>& bell, IdleStrategy& idle, uint64_t deadline_ns,
                         Look&& look) noexcept {
  for (;;) {
    if (look()) break;
    if (idle.idle() != IdleStrategy::Step::kPark) continue;
    if (deadline_ns != UINT64_MAX && now_ns() >= deadline_ns) return false;
    const auto ticket = bell.prepare();
    if (look()) {
      bell.cancel();
      break;
    }
    idle.parking();
    const bool woken = bell.wait(ticket, deadline_ns);
    idle.unparked();
    if (!woken) {
      // The wake may have gone to another while the work is ours, so a last look decides.
      if (!look()) return false;
      break;
    }
  }
  idle.found();
  return true;
}

}  // namespace lumen
