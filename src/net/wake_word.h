// WakeWord: whether a loop is awake, asleep in the kernel, or told of work: a word of three states
// that the loop's thread and those that call wake() share.
// Threads: wake(): any; the others: the loop's. Memory: none.
//
// wake() makes it kWoken, and only the one that finds kAsleep has to end the sleep in the kernel.
// kWoken stays until the loop is where on_wake() and on_turn_end() both follow in the same turn: a
// wake() that comes behind them keeps the next wait from sleeping. With two states, awake and
// asleep, such a wake() was lost: a change of the engine's configuration then hung.
#pragma once

#include <lumen/base/cache_line.h>

#include <atomic>
#include <cstdint>

namespace lumen::net {

class WakeWord {
 public:
  // True: the loop sleeps, or is about to, and the caller has to end that in the kernel.
  [[nodiscard]] bool wake() noexcept {
    // sync[loop.wake_state]: see begin_sleep() and served()
    return state_.exchange(kWoken, std::memory_order_acq_rel) == kAsleep;
  }
  // A wake() came that may not be served yet.
  [[nodiscard]] bool was_woken() const noexcept {
    // sync[loop.wake_state]: acquire; pairs with wake()
    return state_.load(std::memory_order_acquire) == kWoken;
  }
  // on_wake() and on_turn_end() both follow in this turn and see the causes of the wake() calls so
  // far.
  void served() noexcept {
    // The load spares the exchange, 20 cycles, in most turns.
    // sync[loop.wake_state]: acquire; an exchange, not a store, so that a wake() just before it is
    // acquired
    if (was_woken()) state_.exchange(kAwake, std::memory_order_acq_rel);
  }
  // False: a wake() came, so the loop must not sleep.
  [[nodiscard]] bool begin_sleep() noexcept {
    uint32_t awake = kAwake;
    // sync[loop.wake_state]: both sides are read-modify-writes of one word, so one comes first: if
    // wake() does, this finds kWoken and does not sleep; if this does, wake() finds kAsleep
    return state_.compare_exchange_strong(awake, kAsleep, std::memory_order_acq_rel,
                                          std::memory_order_acquire);
  }
  void end_sleep() noexcept {
    // sync[loop.wake_state]: an exchange, not a store, so that a wake() is acquired. It may be
    // forgotten here, since on_wake() and on_turn_end() follow in this turn.
    state_.exchange(kAwake, std::memory_order_acq_rel);
  }

 private:
  enum State : uint32_t {
    kAwake,
    kAsleep,  // the owner is in, or about to enter, the kernel's wait
    kWoken,   // wake() was called, and its cause may not be served yet
  };
  alignas(kFalseSharingRange) std::atomic<uint32_t> state_{kAwake};
};

}  // namespace lumen::net
