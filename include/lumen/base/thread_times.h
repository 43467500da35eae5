// ThreadTimes: where a thread's time goes, in words that others may read: how long it was busy,
// polled and slept, and its state now and since when. IdleStrategy keeps it up to date, at the
// moments at which it looks at the clock anyway.
// Threads: one writes, any read. Memory: the caller's. Errors: none; a reader may see a state with
// the moment of the one before.
#pragma once

#include <atomic>
#include <cstdint>

namespace lumen {

enum class ThreadState : uint8_t { kBusy = 0, kSpinning = 1, kParked = 2 };

class ThreadTimes {
 public:
  ThreadTimes() noexcept = default;  // keeps nothing
  // Five words: ns busy, polling, asleep; the state; since when.
  explicit ThreadTimes(std::atomic<uint64_t>* words) noexcept : words_(words) {}

  [[nodiscard]] bool is_kept() const noexcept { return words_ != nullptr; }
  // The thread begins: busy. Its earlier times stay.
  void begin(uint64_t now_ns) noexcept {
    state_ = ThreadState::kBusy;
    since_ns_ = now_ns;
    note();
  }
  // Ends the spell of the state that it was in.
  void enter(ThreadState state, uint64_t now_ns) noexcept {
    if (words_ == nullptr || state == state_) return;
    std::atomic<uint64_t>& sum = words_[static_cast<size_t>(state_)];
    // relaxed: this thread alone writes it, and a reader accepts a view a moment old
    sum.store(sum.load(std::memory_order_relaxed) + (now_ns - since_ns_),
              std::memory_order_relaxed);
    state_ = state;
    since_ns_ = now_ns;
    note();
  }

 private:
  void note() noexcept {
    // relaxed, both: as above
    words_[3].store(static_cast<uint64_t>(state_), std::memory_order_relaxed);
    words_[4].store(since_ns_, std::memory_order_relaxed);
  }

  std::atomic<uint64_t>* words_ = nullptr;
  ThreadState state_ = ThreadState::kBusy;
  uint64_t since_ns_ = 0;
};

}  // namespace lumen
