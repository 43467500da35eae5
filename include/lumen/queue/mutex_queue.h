// MutexQueue: the simple queue that the others are compared with: a ring under a mutex, with two
// condition variables. The server's queue type `naive` is this one.
// Threads: any may push, pop and close. Memory: one array at construction.
// Errors: try_* return false or 0 when full, empty or closed; they wait for the mutex alone.
//
// The comparison is fair: it is bounded and allocates nothing, as the others; it notifies only
// where a thread waits, and after the mutex is free, so that the woken one does not run into it
// (POSIX allows both). A thread that dies inside holds the mutex from then on and blocks everyone:
// the lock-free queues exist for that.
#pragma once

#include <lumen/base/idle_strategy.h>
#include <lumen/queue/queue_types.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>

namespace lumen {

template <QueueItem T>
class MutexQueue {
 public:
  // `capacity` is a power of two, as of the others.
  explicit MutexQueue(size_t capacity)
      : mask_(checked_capacity(capacity, 1) - 1), slots_(capacity) {}
  ~MutexQueue() {
    for (; head_ != tail_; ++head_) std::destroy_at(slots_.get() + (head_ & mask_));
  }
  MutexQueue(const MutexQueue&) = delete;
  MutexQueue& operator=(const MutexQueue&) = delete;

  // On false `value` is untouched.
  [[nodiscard]] bool try_push(T&& value) noexcept { return try_push_n({&value, 1}) == 1; }
  [[nodiscard]] bool try_pop(T& value) noexcept { return try_pop_n({&value, 1}) == 1; }

  [[nodiscard]] size_t try_push_n(std::span<T> items) noexcept {
    std::unique_lock lock(mutex_);
    if (closed_) return 0;
    return fill(lock, items);
  }
  [[nodiscard]] size_t try_pop_n(std::span<T> items) noexcept {
    std::unique_lock lock(mutex_);
    return empty(lock, items);
  }

  // Waits for room; `value` is untouched unless kOk.
  QueueOutcome push(T&& value, uint64_t deadline_ns = UINT64_MAX) noexcept {
    std::unique_lock lock(mutex_);
    if (!wait(lock, not_full_, pushers_waiting_, deadline_ns,
              [&] { return closed_ || tail_ - head_ <= mask_; })) {
      return QueueOutcome::kTimedOut;
    }
    if (closed_) return QueueOutcome::kClosed;
    fill(lock, {&value, 1});
    return QueueOutcome::kOk;
  }
  // Waits for an item. kClosed: closed, and nothing is left.
  QueueOutcome pop(T& value, uint64_t deadline_ns = UINT64_MAX) noexcept {
    std::unique_lock lock(mutex_);
    if (!wait(lock, not_empty_, poppers_waiting_, deadline_ns,
              [&] { return closed_ || tail_ != head_; })) {
      return QueueOutcome::kTimedOut;
    }
    return empty(lock, {&value, 1}) == 1 ? QueueOutcome::kOk : QueueOutcome::kClosed;
  }
  // For a thread that waits for another event too. It reads interrupts(), looks for the event, and
  // pops: an interrupt() after the reading ends the pop, as kTimedOut unless there is an item.
  [[nodiscard]] uint64_t interrupts() const noexcept {
    const std::lock_guard lock(mutex_);
    return interrupts_;
  }
  QueueOutcome pop_unless_interrupted(T& value, uint64_t interrupts,
                                      uint64_t deadline_ns = UINT64_MAX) noexcept {
    std::unique_lock lock(mutex_);
    (void)wait(lock, not_empty_, poppers_waiting_, deadline_ns,
               [&] { return closed_ || tail_ != head_ || interrupts_ != interrupts; });
    const bool is_closed = closed_;
    if (empty(lock, {&value, 1}) == 1) return QueueOutcome::kOk;
    return is_closed ? QueueOutcome::kClosed : QueueOutcome::kTimedOut;
  }
  void interrupt() noexcept {
    {
      const std::lock_guard lock(mutex_);
      ++interrupts_;
    }
    not_empty_.notify_all();
  }
  // The faces of the other queues, whose blocking forms take the thread's idle strategy.
  QueueOutcome push(T&& value, IdleStrategy&, uint64_t deadline_ns = UINT64_MAX) noexcept {
    return push(std::move(value), deadline_ns);
  }
  QueueOutcome pop(T& value, IdleStrategy&, uint64_t deadline_ns = UINT64_MAX) noexcept {
    return pop(value, deadline_ns);
  }

  // No push succeeds from here on; all that was accepted is still popped; everyone is woken.
  void close() noexcept {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    not_empty_.notify_all();
    not_full_.notify_all();
  }

  [[nodiscard]] size_t capacity() const noexcept { return mask_ + 1; }
  [[nodiscard]] size_t size_was() const noexcept {
    const std::lock_guard lock(mutex_);
    return tail_ - head_;
  }
  [[nodiscard]] bool was_empty() const noexcept { return size_was() == 0; }
  [[nodiscard]] bool was_closed() const noexcept {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  [[nodiscard]] bool drained() const noexcept {
    const std::lock_guard lock(mutex_);
    return closed_ && head_ == tail_;
  }

 private:
  size_t fill(std::unique_lock<std::mutex>& lock, std::span<T> items) noexcept {
    const size_t count = std::min(items.size(), mask_ + 1 - (tail_ - head_));
    for (size_t i = 0; i < count; ++i) {
      std::construct_at(slots_.get() + (tail_++ & mask_), std::move(items[i]));
    }
    notify(lock, not_empty_, poppers_waiting_, count);
    return count;
  }
  size_t empty(std::unique_lock<std::mutex>& lock, std::span<T> items) noexcept {
    const size_t count = std::min(items.size(), tail_ - head_);
    for (size_t i = 0; i < count; ++i) {
      T* slot = slots_.get() + (head_++ & mask_);
      items[i] = std::move(*slot);
      std::destroy_at(slot);
    }
    notify(lock, not_full_, pushers_waiting_, count);
    return count;
  }
  static void notify(std::unique_lock<std::mutex>& lock, std::condition_variable& condition,
                     size_t waiting, size_t count) noexcept {
    lock.unlock();
    if (count == 1 && waiting != 0) condition.notify_one();
    if (count > 1 && waiting != 0) condition.notify_all();
  }
  template <typename Ready>
  static bool wait(std::unique_lock<std::mutex>& lock, std::condition_variable& condition,
                   size_t& waiting, uint64_t deadline_ns, Ready&& ready) noexcept {
    using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC on Linux, as all our deadlines
    ++waiting;
    bool is_ready = true;
    if (deadline_ns > kLatestNs) {
      condition.wait(lock, ready);
    } else {
      const Clock::time_point deadline{std::chrono::nanoseconds(deadline_ns)};
      is_ready = condition.wait_until(lock, deadline, ready);
    }
    --waiting;
    return is_ready;
  }

  // The largest time of steady_clock, whose count of nanoseconds is signed: a larger one would lie
  // in the past.
  static constexpr uint64_t kLatestNs = INT64_MAX;

  const size_t mask_;
  const RawSlots<T> slots_;
  mutable std::mutex mutex_;
  std::condition_variable not_empty_;
  std::condition_variable not_full_;
  size_t tail_ = 0;
  size_t head_ = 0;
  size_t pushers_waiting_ = 0;
  size_t poppers_waiting_ = 0;
  uint64_t interrupts_ = 0;
  bool closed_ = false;
};

}  // namespace lumen
