// One face over all queues, so that one suite tests them: push, pop and batches from one thread.
// Threads: as the queue's. Memory: the queue's. Errors: as the queue.
#pragma once

#include <lumen/queue/mpmc_queue.h>
#include <lumen/queue/mutex_queue.h>
#include <lumen/queue/spsc_queue.h>

#include <span>
#include <utility>

namespace lumen::testing {

template <typename T, Waiting kWaiting>
class SpscBoth {
 public:
  using Item = T;
  static constexpr bool kHasBlocking = kWaiting == Waiting::kDoorbell;
  explicit SpscBoth(size_t capacity)
      : queue_(capacity), producer_(queue_.producer()), consumer_(queue_.consumer()) {}
  bool try_push(T&& value) { return producer_.try_push(std::move(value)); }
  bool try_pop(T& value) { return consumer_.try_pop(value); }
  size_t try_push_n(std::span<T> items) { return producer_.try_push_n(items); }
  size_t try_pop_n(std::span<T> items) { return consumer_.try_pop_n(items); }
  QueueOutcome push(T&& value, IdleStrategy&, uint64_t deadline_ns = UINT64_MAX) {
    return producer_.push(std::move(value), deadline_ns);
  }
  QueueOutcome pop(T& value, IdleStrategy&, uint64_t deadline_ns = UINT64_MAX) {
    return consumer_.pop(value, deadline_ns);
  }
  void close() {
    if constexpr (kHasBlocking) {
      queue_.close();
    } else {
      producer_.close();
    }
  }
  bool drained() { return consumer_.drained(); }
  bool was_closed() { return queue_.was_closed(); }
  bool was_empty() { return queue_.was_empty(); }
  size_t size_was() { return queue_.size_was(); }
  size_t capacity() { return queue_.capacity(); }

 private:
  SpscQueue<T, kWaiting> queue_;
  typename SpscQueue<T, kWaiting>::Producer producer_;
  typename SpscQueue<T, kWaiting>::Consumer consumer_;
};

template <typename Queue, typename T, bool kBlocking>
class Shared : public Queue {
 public:
  using Item = T;
  static constexpr bool kHasBlocking = kBlocking;
  using Queue::Queue;
};

template <typename T>
using SpscPlain = SpscBoth<T, Waiting::kNone>;
template <typename T>
using SpscWaiting = SpscBoth<T, Waiting::kDoorbell>;
template <typename T>
using MpmcPlain = Shared<MpmcQueue<T>, T, false>;
template <typename T>
using MpmcPadded = Shared<MpmcQueue<T, Padding::kSlot>, T, false>;
template <typename T>
using MpmcWaiting = Shared<MpmcQueue<T, Padding::kNone, Waiting::kDoorbell>, T, true>;
template <typename T>
using MutexBoth = Shared<MutexQueue<T>, T, true>;

}  // namespace lumen::testing
