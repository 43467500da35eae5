// FairShares: how much of the workers' time each model has had, and who is next. Start-time fair queuing
// (Goyal, Vin, Cheng, SIGCOMM 1996): each model has a virtual time, which a request advances by its cost
// over the model's weight; the model with the least is next. A model that has had nothing to do for a
// while starts at the virtual time of whoever runs, so it saves up nothing, and is next at once: a
// light model waits for the run that has begun and for no other.
//
// The cost is predicted when a request is taken and corrected once it has run, so that shares follow from
// what was measured.
//
// Threads: start_of(), charge() and settle() by any, without a lock: of two that take requests of the same
// model at the same moment both are charged; which was first does not matter. reset() on the control plane,
// while no request of the model can come. Memory: at construction. Errors: none.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/limits.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace lumen::engine {

class FairShares {
 public:
  // `cost_ns`: of one request, for who is first among equals until one was taken.
  void reset(uint32_t model, uint32_t weight, uint64_t cost_ns) noexcept {
    Share& share = shares_[model];
    // relaxed, all: no request of the model is on its way
    share.weight.store(std::max(weight, 1u), std::memory_order_relaxed);
    share.finish.store(0, std::memory_order_relaxed);
    share.cost_ns.store(cost_ns, std::memory_order_relaxed);
  }

  // The virtual time at which the next request of `model` would begin; the least is next, and among
  // equals the model whose requests cost the least.
  struct Start {
    uint64_t at = UINT64_MAX;
    uint64_t cost_ns = UINT64_MAX;
    [[nodiscard]] auto operator<=>(const Start&) const = default;
  };
  [[nodiscard]] Start start_of(uint32_t model) const noexcept {
    const Share& share = shares_[model];
    // relaxed, all: what comes a moment late makes the choice off by one request
    const uint64_t finish = share.finish.load(std::memory_order_relaxed);
    return {std::max(finish, now_.load(std::memory_order_relaxed)),
            share.cost_ns.load(std::memory_order_relaxed)};
  }
  // A request of `model` was taken, which is expected to take so long.
  void charge(uint32_t model, uint64_t ns) noexcept {
    const uint64_t start = start_of(model).at;
    // relaxed, all: as above; of two updates at once one is lost, and the next one is larger
    if (start > now_.load(std::memory_order_relaxed) + kStep) {
      now_.store(start, std::memory_order_relaxed);
    }
    Share& share = shares_[model];
    share.cost_ns.store(ns, std::memory_order_relaxed);  // relaxed: as above
    advance(share, start, ns);
  }
  // What was charged with `charged_ns` took `ns`; one that was not charged ran elsewhere, on an I/O thread.
  void settle(uint32_t model, uint64_t ns, uint64_t charged_ns) noexcept {
    Share& share = shares_[model];
    if (charged_ns == 0) return advance(share, start_of(model).at, ns);
    // relaxed: as above. What it is too much is taken back: modulo 2^64.
    share.finish.fetch_add(scaled(share, ns) - scaled(share, charged_ns),
                           std::memory_order_relaxed);
  }

 private:
  // Fractions of a nanosecond, for weights; 2^64 of them are 36 years.
  static constexpr uint64_t kUnit = 16;
  // Virtual time goes on in steps, so that requests of a few microseconds do not each write a line that all
  // workers read. Whoever begins in between is ahead by a step at most.
  static constexpr uint64_t kStep = 10'000 * kUnit;
  struct alignas(kCacheLine) Share {
    std::atomic<uint64_t> finish{0};
    std::atomic<uint64_t> cost_ns{0};
    std::atomic<uint32_t> weight{1};
  };

  [[nodiscard]] static uint64_t scaled(const Share& share, uint64_t ns) noexcept {
    return ns * kUnit / share.weight.load(std::memory_order_relaxed);  // relaxed: as above
  }
  static void advance(Share& share, uint64_t start, uint64_t ns) noexcept {
    const uint64_t more = scaled(share, ns);
    uint64_t finish = share.finish.load(std::memory_order_relaxed);  // relaxed: as above
    // relaxed: as above. Who comes second adds to what the first has made of it.
    if (finish > start ||
        !share.finish.compare_exchange_strong(finish, start + more, std::memory_order_relaxed)) {
      share.finish.fetch_add(more, std::memory_order_relaxed);  // relaxed: as above
    }
  }

  alignas(kFalseSharingRange) std::atomic<uint64_t> now_{0};
  std::array<Share, limits::kMaxModels> shares_;
};

}  // namespace lumen::engine
