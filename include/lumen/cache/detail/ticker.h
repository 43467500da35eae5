// Ticker: the time of a cache, as its clock policy has it, and the thread of BackgroundTick.
// Threads: any may read; OneThread caches have no atomic here. Memory: a thread's. Errors:
// std::system_error when no thread can be made.
#pragma once

#include <lumen/cache/clocks.h>
#include <lumen/cache/detail/access.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

namespace lumen::cache {

// Calls a function again and again until it is stopped; between the calls it sleeps.
class TickThread {
 public:
  template <typename Tick>
  void start(std::chrono::nanoseconds period, Tick tick) {
    thread_ = std::thread([this, period, tick] {
      std::unique_lock lock(mutex_);
      while (!stopped_) {
        wake_.wait_for(lock, period);  // one that ends early is one more tick
        tick();
      }
    });
  }
  void stop() noexcept {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopped_ = false;
  std::thread thread_;
};
struct NoThread {};

// A moment `ticks` later than another.
template <typename Moment>
struct Ahead {
  const Moment& moment;
  const uint64_t ticks;
  [[nodiscard]] bool has_come(uint64_t deadline) const noexcept {
    return moment.has_come(deadline - std::min(deadline, ticks));
  }
};
template <typename Moment>
Ahead(const Moment&, uint64_t) -> Ahead<Moment>;

template <typename Clock, bool kShared>
class Ticker {
 public:
  static constexpr bool kReads = Clock::kKind == ClockKind::kRead;
  static constexpr bool kOwnThread = Clock::kKind == ClockKind::kBackground;
  static_assert(kShared || !kOwnThread,
                "BackgroundTick is a second thread: not for a OneThread cache, use CachedTick");

  // A tick is 2^tick_bits ns.
  explicit Ticker(uint32_t tick_bits) noexcept : tick_bits_(tick_bits) { advance(); }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  [[nodiscard]] uint64_t now_ns() const noexcept {
    if constexpr (kReads) {
      return clock_.read_ns();
    } else {
      return load_cell<kShared>(now_ns_);
    }
  }
  // The moment that a time to live is counted from: now, or a little before.
  [[nodiscard]] uint64_t start_ns(uint64_t ttl_ns) const noexcept {
    if constexpr (requires { clock_.is_long(ttl_ns); }) {
      if (clock_.is_long(ttl_ns)) return clock_.read_coarse_ns();
    }
    return now_ns();
  }
  [[nodiscard]] uint64_t now_tick() const noexcept {
    if constexpr (kReads) {
      return clock_.read_ns() >> tick_bits_;
    } else {
      return load_cell<kShared>(now_tick_);
    }
  }
  // Now, as a deadline in ticks is held against it: has_come(deadline). A clock that is read is
  // read there, so not where nothing was found.
  struct Tick {
    uint64_t now;
    [[nodiscard]] bool has_come(uint64_t deadline) const noexcept { return deadline <= now; }
  };
  struct CoarseFirst {
    const Ticker& ticker;
    [[nodiscard]] bool has_come(uint64_t deadline) const noexcept {
      const uint64_t early = ticker.clock_.read_coarse_ns() >> ticker.tick_bits_;
      if (deadline <= early) return true;
      if (deadline - early > (Clock::kCoarseLateNs >> ticker.tick_bits_) + 1) [[likely]]
        return false;
      return deadline <= ticker.now_tick();
    }
  };
  [[nodiscard]] auto moment() const noexcept {
    if constexpr (requires { Clock::kCoarseLateNs; }) {
      return CoarseFirst{*this};
    } else {
      return Tick{now_tick()};
    }
  }
  // A cached clock shows the present from here on.
  void advance() noexcept {
    if constexpr (!kReads) {
      const uint64_t ns = clock_.read_ns();
      store_cell<kShared>(now_ns_, ns);
      store_cell<kShared>(now_tick_, ns >> tick_bits_);
    }
  }

  template <typename Tick>
  void start(Tick&& tick) {
    if constexpr (kOwnThread) {
      thread_.start(std::chrono::nanoseconds(uint64_t{1} << tick_bits_), std::forward<Tick>(tick));
    }
  }
  void stop() noexcept {
    if constexpr (kOwnThread) thread_.stop();
  }

 private:
  uint32_t tick_bits_;
  [[no_unique_address]] Clock clock_;
  uint64_t now_ns_ = 0;
  uint64_t now_tick_ = 0;
  [[no_unique_address]] std::conditional_t<kOwnThread, TickThread, NoThread> thread_;
};

}  // namespace lumen::cache
