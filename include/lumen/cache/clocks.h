// The clocks of a ChronoCache: which one is a policy of its type.
// Threads: any may read; each cached clock says which thread may advance it. Memory: none. Errors:
// never.
//
//   clock            reads            late by at most                          a read costs
//   ExactClock       kernel's tick, TSC near a deadline   TscClock::kDriftNs (no such TSC: nothing)   4 ns, 10 (21)
//   CoarseClock      kernel's tick    4 ms (CONFIG_HZ=250)                     3 ns
//   CachedTick       a variable       the time since the caller's last tick()  0
//   BackgroundTick   a variable       a tick, and as long as its thread waits for a CPU   0
//   FakeClock        a variable       nothing: a test sets it                  0
#pragma once

#include <lumen/base/clock.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace lumen::cache {

// CLOCK_MONOTONIC from the time stamp counter: 8 ns instead of 21. The counter is set against the
// kernel's clock again every kAnchorNs, so that neither the rate that was measured nor NTP's
// corrections add up.
class TscClock {
 public:
  static constexpr uint64_t kAnchorNs = 250'000'000;
  // The largest difference of the two clocks until then: 100 parts in a million, NTP's most is 500.
  static constexpr uint64_t kDriftNs = kAnchorNs / 1'000;

  // False: the counter stops, or the kernel does not trust it. Then now() asks the kernel.
  [[nodiscard]] bool usable() const noexcept { return usable_; }

  [[nodiscard]] uint64_t now() noexcept {
#if defined(__x86_64__)
    // sync[tsc.anchor]: acquire, pairs with the release of the version's even value in anchor().
    const uint32_t before = version_.load(std::memory_order_acquire);
    const uint64_t tsc = __rdtsc();
    // sync[tsc.anchor]: acquire, so that the second look at the version stays behind them.
    const uint64_t first = anchor_tsc_.load(std::memory_order_acquire);
    const uint64_t ns = anchor_ns_.load(std::memory_order_acquire);
    const uint64_t factor = factor_.load(std::memory_order_acquire);
    // relaxed: the acquire loads above keep it behind them.
    const uint32_t after = version_.load(std::memory_order_relaxed);
    const uint64_t passed = tsc - first;
    // anchor_for_ is 0 where the counter is of no use.
    if (before == after && (before & 1) == 0 && passed < anchor_for_) [[likely]] {
      return ns + scale(passed, factor);
    }
    if (usable_) return anchor();
#endif
    return now_ns();
  }

  TscClock() noexcept {
#if defined(__x86_64__)
    if (!is_trusted()) return;
    const uint64_t ns = now_ns();
    const uint64_t tsc = __rdtsc();
    uint64_t later_ns = ns;
    while (later_ns - ns < kCalibrationNs) later_ns = now_ns();
    const uint64_t later_tsc = __rdtsc();
    set_factor(later_tsc - tsc, later_ns - ns);
    // relaxed: no other thread knows this object yet.
    anchor_tsc_.store(later_tsc, std::memory_order_relaxed);
    anchor_ns_.store(later_ns, std::memory_order_relaxed);
    usable_ = anchor_for_ != 0;
#endif
  }

 private:
  static constexpr uint64_t kCalibrationNs =
      500'000;  // 200 parts in a million, until the first anchor

#if defined(__x86_64__)
  [[nodiscard]] static uint64_t scale(uint64_t ticks, uint64_t factor) noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>(static_cast<Wide>(ticks) * factor >> 32);
  }
  // "Invariant TSC", and the kernel's own clock source, which it gives up where cores disagree.
  [[nodiscard]] static bool is_trusted() noexcept {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    if (__get_cpuid(0x80000007u, &a, &b, &c, &d) == 0 || (d & (1u << 8)) == 0) return false;
    try {
      std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
      std::string name;
      return (file >> name) && name == "tsc";
    } catch (...) {
      return false;  // the kernel's clock is right too
    }
  }
  void set_factor(uint64_t ticks, uint64_t ns) noexcept {
    if (ticks == 0 || ns == 0) return;
    __extension__ using Wide = unsigned __int128;
    const auto factor = static_cast<uint64_t>((static_cast<Wide>(ns) << 32) / ticks);
    if (factor == 0) return;
    // relaxed: published with the version, or before any reader.
    factor_.store(factor, std::memory_order_release);  // sync[tsc.anchor]
    if (anchor_for_ == 0) anchor_for_ = ((kAnchorNs << 20) / factor) << 12;
  }
  // One thread sets the anchor; the others take the kernel's time meanwhile. A call: it comes four
  // times a second.
  [[nodiscard, gnu::noinline]] uint64_t anchor() noexcept {
    const uint64_t ns = now_ns();
    const uint64_t tsc = __rdtsc();
    // relaxed: a wrong guess fails in the exchange.
    uint32_t version = version_.load(std::memory_order_relaxed);
    // sync[tsc.anchor]: acquire, so that the stores below stay behind it.
    if ((version & 1) != 0 ||
        !version_.compare_exchange_strong(version, version + 1, std::memory_order_acquire)) {
      return ns;
    }
    // relaxed: only the holder of the odd version writes them.
    const uint64_t first_tsc = anchor_tsc_.load(std::memory_order_relaxed);
    const uint64_t first_ns = anchor_ns_.load(std::memory_order_relaxed);
    if (tsc - first_tsc >= anchor_for_) {
      if (ns - first_ns >= kAnchorNs / 2) set_factor(tsc - first_tsc, ns - first_ns);
      anchor_tsc_.store(tsc, std::memory_order_release);  // sync[tsc.anchor]
      anchor_ns_.store(ns, std::memory_order_release);    // sync[tsc.anchor]
    }
    version_.store(version + 2, std::memory_order_release);  // sync[tsc.anchor]
    return ns;
  }

  std::atomic<uint32_t> version_{0};
  bool usable_ = false;
  uint64_t anchor_for_ = 0;  // ticks of the counter
  std::atomic<uint64_t> anchor_tsc_{0};
  std::atomic<uint64_t> anchor_ns_{0};
  std::atomic<uint64_t> factor_{0};  // nanoseconds a tick, times 2^32
#else
  bool usable_ = false;
#endif
};

// One for the process; measured once, half a millisecond, when the first cache asks.
[[nodiscard]] inline TscClock& tsc_clock() noexcept {
  static TscClock clock;
  return clock;
}

// A deadline is rounded down by less than its 2^-10 of the time to live.
inline constexpr uint32_t kDeadlineBits = 10;

enum class ClockKind : uint8_t { kRead, kCached, kBackground };

// On some machines the counter is read only when all loads before it have been answered (Xeon of
// 2023 as a virtual machine: a get of 10 M entries took 510 ns instead of 90, since no two could
// miss the cache at once). So a get looks at the kernel's tick first, and at the counter only where
// the deadline is less than kCoarseLateNs away.
struct ExactClock {
  static constexpr ClockKind kKind = ClockKind::kRead;
  // The kernel's tick is 1 to 10 ms late. More than this only where the whole machine stood still,
  // and until its first tick after that.
  static constexpr uint64_t kCoarseLateNs = 1'000'000'000;
  [[nodiscard]] uint64_t read_ns() const noexcept { return clock->now(); }
  [[nodiscard]] static uint64_t read_coarse_ns() noexcept { return coarse_now_ns(); }
  // A put with such a time to live counts it from the kernel's tick, which is by less late than
  // deadlines are rounded (5 ns less a put).
  [[nodiscard]] bool is_long(uint64_t ttl_ns) const noexcept { return ttl_ns >= long_ns; }
  uint64_t long_ns = coarse_step_ns() << kDeadlineBits;
  TscClock* clock = &tsc_clock();
};

// std::chrono::steady_clock as it is: for a bench, or where the counter is not wanted.
struct SteadyClock {
  static constexpr ClockKind kKind = ClockKind::kRead;
  [[nodiscard]] uint64_t read_ns() const noexcept { return now_ns(); }
};

struct CoarseClock {
  static constexpr ClockKind kKind = ClockKind::kRead;
  [[nodiscard]] uint64_t read_ns() const noexcept { return coarse_now_ns(); }
};

// Time stands still between two calls of ChronoCache::tick().
struct CachedTick {
  static constexpr ClockKind kKind = ClockKind::kCached;
  [[nodiscard]] uint64_t read_ns() const noexcept { return now_ns(); }
};

// A thread of the cache calls tick() once a tick.
struct BackgroundTick {
  static constexpr ClockKind kKind = ClockKind::kBackground;
  [[nodiscard]] uint64_t read_ns() const noexcept { return now_ns(); }
};

// Of a test: one time for all caches with this clock. It begins at a second, so that nothing is
// before 0.
struct FakeClock {
  static constexpr ClockKind kKind = ClockKind::kRead;
  static constexpr uint64_t kStartNs = 1'000'000'000;
  [[nodiscard]] uint64_t read_ns() const noexcept {
    return time_ns.load(std::memory_order_relaxed);  // relaxed: a number, it publishes nothing
  }
  static void set_ns(uint64_t ns) noexcept {
    time_ns.store(ns, std::memory_order_relaxed);  // relaxed: as above
  }
  static void advance_ns(uint64_t ns) noexcept {
    time_ns.fetch_add(ns, std::memory_order_relaxed);  // relaxed: as above
  }
  static inline std::atomic<uint64_t> time_ns{kStartNs};
};

}  // namespace lumen::cache
