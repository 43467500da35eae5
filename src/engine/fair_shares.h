// FairShares: how much of the workers' time each model has had, and which is next. Start-time fair
// queuing (Goyal, Vin, Cheng, SIGCOMM 1996): each model has a virtual time, which a request
// advances by its cost over the model's weight; the model with the least is next. A model that has
// had nothing to do for a while starts at the virtual time of the model that runs, so it saves up
// nothing, and is next at once: a light model waits for the run that has begun and for no other.
//
// The cost is predicted when a request is taken and corrected once it has run, so that shares
// follow from measured times.
//
// Bounds, after any history: no model begins before now_, and none later than one run after it. So
// of two models that compete neither waits longer than its share says and one heavy run.
//   now_ moves with each run that a worker takes, to its start. A request that joins a run moves it not: a batch is
//   one run, and would take from the others the time that they are behind it.
//   A correction adds to a model's debt up to one run of the time that was measured, however many were taken with
//   an expectation that was too low.
//   Runs on I/O threads, which are not chosen here, do not add up: the debt of a model for them is one run, and
//   the next is counted once now_ has passed that. They do not move now_ either: the models that the workers take
//   from would all lie behind it, with no order among them, and the cheaper would starve the other.
//
// Threads: start_of(), charge(), join() and settle() by any, without a lock: of two that take
// requests of the same model at the same moment both are charged; which was first does not matter.
// reset() on the control plane, while no request of the model can come. Memory: at construction.
// Errors: none.
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
  // `cost_ns`: of one request; it decides among equals until one was taken.
  void reset(uint32_t model, uint32_t weight, uint64_t cost_ns) noexcept {
    Share& share = shares_[model];
    // relaxed, all: no request of the model is on its way
    share.weight.store(std::max(weight, 1u), std::memory_order_relaxed);
    share.finish.store(0, std::memory_order_relaxed);
    share.elsewhere.store(0, std::memory_order_relaxed);
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
    // relaxed, all: a value that comes a moment late makes the choice off by one request
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
  // One more is taken, to be run in one call with the request that was charged.
  void join(uint32_t model, uint64_t ns) noexcept {
    advance(shares_[model], start_of(model).at, ns);
  }
  // The run that was charged with `charged_ns` took `ns`; one that was not charged ran elsewhere,
  // on an I/O thread.
  void settle(uint32_t model, uint64_t ns, uint64_t charged_ns) noexcept {
    Share& share = shares_[model];
    if (charged_ns == 0) return settle_elsewhere(share, ns);
    const uint64_t took = scaled(share, ns);
    const uint64_t charged = scaled(share, charged_ns);
    if (took <= charged) {
      share.finish.fetch_sub(charged - took, std::memory_order_relaxed);  // relaxed: as above
      return;
    }
    // relaxed: as above
    const uint64_t most = now_.load(std::memory_order_relaxed) + took + kStep;
    uint64_t finish = share.finish.load(std::memory_order_relaxed);  // relaxed: as above
    while (finish < most &&
           !share.finish.compare_exchange_weak(finish, std::min(finish + (took - charged), most),
                                               std::memory_order_relaxed)) {  // relaxed: as above
    }
  }

 private:
  // Fractions of a nanosecond, for weights; 2^64 of them are 36 years.
  static constexpr uint64_t kUnit = 16;
  // Virtual time goes on in steps, so that requests of a few microseconds do not each write a line
  // that all workers read. A model that begins in between is ahead by a step at most.
  static constexpr uint64_t kStep = 10'000 * kUnit;
  struct alignas(kCacheLine) Share {
    std::atomic<uint64_t> finish{0};
    std::atomic<uint64_t> elsewhere{0};  // the finish of the last counted run on an I/O thread
    std::atomic<uint64_t> cost_ns{0};
    std::atomic<uint32_t> weight{1};
  };

  [[nodiscard]] static uint64_t scaled(const Share& share, uint64_t ns) noexcept {
    return ns * kUnit / share.weight.load(std::memory_order_relaxed);  // relaxed: as above
  }
  void settle_elsewhere(Share& share, uint64_t ns) noexcept {
    const uint64_t now = now_.load(std::memory_order_relaxed);  // relaxed: as above
    // relaxed: as above; of two at once both count the same run's length, and the larger stays
    if (now <= share.elsewhere.load(std::memory_order_relaxed)) return;
    const uint64_t until = now + scaled(share, ns);
    share.elsewhere.store(until, std::memory_order_relaxed);         // relaxed: as above
    uint64_t finish = share.finish.load(std::memory_order_relaxed);  // relaxed: as above
    while (finish < until && !share.finish.compare_exchange_weak(
                                 finish, until, std::memory_order_relaxed)) {  // relaxed: as above
    }
  }
  static void advance(Share& share, uint64_t start, uint64_t ns) noexcept {
    const uint64_t more = scaled(share, ns);
    uint64_t finish = share.finish.load(std::memory_order_relaxed);  // relaxed: as above
    // relaxed: as above. The second thread adds to the first one's sum.
    if (finish > start ||
        !share.finish.compare_exchange_strong(finish, start + more, std::memory_order_relaxed)) {
      share.finish.fetch_add(more, std::memory_order_relaxed);  // relaxed: as above
    }
  }

  alignas(kFalseSharingRange) std::atomic<uint64_t> now_{0};
  std::array<Share, limits::kMaxModels> shares_;
};

}  // namespace lumen::engine
