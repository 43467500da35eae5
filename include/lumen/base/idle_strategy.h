// IdleStrategy: what a thread does between two looks that found nothing: pause, yield, then park.
// Threads: one IdleStrategy a thread, not shared. Memory: none.
// Says no: it never sleeps itself; Step::kPark says that the caller should (await() below does).
//
// How long to spin is measured, not configured. While work arrives within max_spin_ns of the last
// (500 µs), the bound is twice the running mean of those gaps, and never below what a wake-up costs
// here (wake_cost_ns(): 20 µs on some machines, 2 on others), for spinning that long costs at most
// as much as the wake-up that it may save. When the mean gap is far above that, spinning would win
// nothing: the bound falls to kShortSpinNs.
// It never spins when there are more runnable threads than cores: neither when the awake Lumen
// threads of this process alone are more (exact, checked at each look at the clock), nor when
// /proc/loadavg says so of the machine (looked at every 10 ms by one thread, 3 µs a look). Then
// each look is followed by a yield, which gives the core to whoever waits for it: until 16 yields
// have let somebody run, or the bound is over. Without those yields a pipeline of 3 threads on 2
// cores parks after each batch (one futex call of 6 µs for every 140 items, measured); with 16 of any
// kind a worker alone on its core, on a machine whose other core was busy, found 6 % of its requests
// only after a wake-up.
// A thread that is killed alone stays counted as awake: then fewer spin, and nothing else.
// Every 64 pauses it yields (116 ns) anyway: two spinning threads that the kernel has packed on one
// CPU would else hand over only once a time slice (0.13 M messages/s seen).
#pragma once

#include <lumen/base/clock.h>
#include <lumen/base/doorbell.h>

#include <algorithm>
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
// More runnable threads than cores, as above; `now` decides whether it is time to look again.
[[nodiscard]] bool machine_is_crowded(uint64_t now) noexcept;

// The numbers alone, free of clock and machine, so that a test can drive them.
class SpinBudget {
 public:
  static constexpr uint64_t kShortSpinNs = 2'000;
  explicit SpinBudget(uint64_t max_spin_ns) noexcept : max_spin_ns_(max_spin_ns) {}

  // Work came `gap_ns` after the thread ran out of it.
  void arrived_after(uint64_t gap_ns) noexcept {
    // One long pause says nothing about the next gap: cut, so that eight short ones outweigh it.
    const uint64_t sample = std::min(gap_ns, 8 * max_spin_ns_);
    mean_gap_ns_ = mean_gap_ns_ - mean_gap_ns_ / 8 + sample / 8;
  }
  [[nodiscard]] uint64_t spin_ns(uint64_t wake_cost) const noexcept {
    if (max_spin_ns_ == 0) return 0;
    if (mean_gap_ns_ <= max_spin_ns_) {
      return std::min(max_spin_ns_, std::max(2 * mean_gap_ns_, wake_cost));
    }
    return std::min({max_spin_ns_, wake_cost, kShortSpinNs});
  }
  [[nodiscard]] uint64_t mean_gap_ns() const noexcept { return mean_gap_ns_; }

 private:
  uint64_t max_spin_ns_;
  uint64_t mean_gap_ns_ = 0;  // the optimist's start: the first wait spins as long as a wake costs
};

class IdleStrategy {
 public:
  enum class Step : uint8_t { kSpin, kYield, kPark };
  static constexpr uint64_t kMaxSpinNs = 500'000;

  // `max_spin_ns` 0: always park at once.
  explicit IdleStrategy(uint64_t max_spin_ns = kMaxSpinNs) noexcept : budget_(max_spin_ns) {}

  // Counts the calling thread among the awake ones, which its first idle() would do otherwise. The C
  // library allocates for that once a thread: call it where allocating is still allowed.
  static void enrol_this_thread() noexcept;
  // A look has found nothing. kSpin: it has paused a little, kYield: it has yielded: look again.
  // kPark: time to sleep.
  [[nodiscard]] Step idle() noexcept;
  // A look has found work, perhaps after idle() calls.
  void found() noexcept {
    if (looks_ != 0) end_of_idling();
  }
  // Woken, and what it waits for is on its way, so that spinning is due once more; no gap is
  // learnt.
  void expect_soon() noexcept { looks_ = 0; }
  // Around the sleep itself: a parked thread is not runnable.
  void parking() noexcept;
  void unparked() noexcept;

  [[nodiscard]] const SpinBudget& budget() const noexcept { return budget_; }

 private:
  void begin_idling() noexcept;
  void end_of_idling() noexcept;
  [[nodiscard]] Step end_of_spin() noexcept;

  SpinBudget budget_;
  uint32_t looks_ = 0;  // since work was last found
  bool parked_since_work_ = false;
  bool crowded_ = false;
  uint32_t yields_ = 0;
  uint64_t idle_since_ns_ = 0;
  uint64_t spin_until_ns_ = 0;
};

// Waits until look() is true or `deadline_ns` has passed; false in the latter case alone. look()
// must read what it looks at by seq_cst loads (or read-modify-writes), and whoever makes it true
// must ring `bell` after.
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
    const bool rung = bell.wait(ticket, deadline_ns);
    idle.unparked();
    if (!rung) {
      // The ring may have gone to another while the work is ours, so a last look decides.
      if (!look()) return false;
      break;
    }
  }
  idle.found();
  return true;
}

}  // namespace lumen
