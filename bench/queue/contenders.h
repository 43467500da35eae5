// Ours and the rivals behind one face: try_push(value), try_pop(value), on a queue made by
// capacity.
// Threads: as each queue's. Memory: each queue's own. Errors: false when full or empty.
// A rival whose package is missing is left out of the list (kHas... is false), not an error.
#pragma once

#include "harness.h"

#include <lumen/queue/mpmc_queue.h>
#include <lumen/queue/mutex_queue.h>
#include <lumen/queue/spsc_queue.h>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#if __has_include(<readerwriterqueue/readerwriterqueue.h>)
#include <readerwriterqueue/readerwriterqueue.h>
#define LUMEN_BENCH_READERWRITER 1
#endif
#if __has_include(<concurrentqueue/concurrentqueue.h>)
#include <concurrentqueue/concurrentqueue.h>
#define LUMEN_BENCH_CONCURRENT 1
#endif
#if __has_include(<boost/lockfree/queue.hpp>)
#include <boost/lockfree/queue.hpp>
#include <boost/lockfree/spsc_queue.hpp>
#define LUMEN_BENCH_BOOST 1
#endif
#if defined(LUMEN_BENCH_TBB)
#include <tbb/concurrent_queue.h>
#endif

namespace lumen::bench {

struct Item8 {
  uint64_t value = 0;
};
struct Item64 {
  uint64_t value = 0;
  uint64_t rest[7] = {};
};
static_assert(sizeof(Item64) == 64);

template <typename T>
struct LumenSpsc {
  SpscQueue<T> queue;
  // Taken on the thread that uses them, so that the handle lies in its own stack and registers.
  struct Pusher {
    typename SpscQueue<T>::Producer handle;
    bool try_push(const T& item) { return handle.try_push(T(item)); }
  };
  struct Popper {
    typename SpscQueue<T>::Consumer handle;
    bool try_pop(T& item) { return handle.try_pop(item); }
  };
  explicit LumenSpsc(size_t capacity) : queue(capacity) {}
  Pusher pusher() { return {queue.producer()}; }
  Popper popper() { return {queue.consumer()}; }
};

// All others: the queue itself is both sides' handle.
template <typename Derived, typename T>
struct SelfHandled {
  struct Handle {
    Derived* self;
    bool try_push(const T& item) { return self->push_one(item); }
    bool try_pop(T& item) { return self->pop_one(item); }
  };
  Handle pusher() { return {static_cast<Derived*>(this)}; }
  Handle popper() { return {static_cast<Derived*>(this)}; }
};

template <typename T, typename Queue>
struct LumenShared : SelfHandled<LumenShared<T, Queue>, T> {
  Queue queue;
  explicit LumenShared(size_t capacity) : queue(capacity) {}
  bool push_one(const T& item) { return queue.try_push(T(item)); }
  bool pop_one(T& item) { return queue.try_pop(item); }
};
template <typename T>
using LumenMpmc = LumenShared<T, MpmcQueue<T>>;
template <typename T>
using LumenMpmcPadded = LumenShared<T, MpmcQueue<T, Padding::kSlot>>;
template <typename T>
using LumenMutex = LumenShared<T, MutexQueue<T>>;

// std::mutex never spins; ours do, so one rival may: as long as a short wait of ours takes, then it
// sleeps.
class SpinningMutex {
 public:
  void lock() {
    for (int i = 0; i < 100; ++i) {
      if (mutex_.try_lock()) return;
      cpu_pause();
    }
    mutex_.lock();
  }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// The naive version: the one that one writes first.
template <typename T, typename Mutex = std::mutex>
struct MutexDeque : SelfHandled<MutexDeque<T, Mutex>, T> {
  explicit MutexDeque(size_t most) : capacity(most) {}
  bool push_one(const T& item) {
    const std::lock_guard lock(mutex);
    if (items.size() == capacity) return false;
    items.push_back(item);
    return true;
  }
  bool pop_one(T& item) {
    const std::lock_guard lock(mutex);
    if (items.empty()) return false;
    item = items.front();
    items.pop_front();
    return true;
  }
  size_t capacity;
  Mutex mutex;
  std::deque<T> items;
};
template <typename T>
using SpinningMutexDeque = MutexDeque<T, SpinningMutex>;
template <typename T>
using PlainMutexDeque = MutexDeque<T>;

// Vyukov's bounded MPMC ring as the textbook has it: no back-off, no padding of slots.
template <typename T>
struct PlainVyukov : SelfHandled<PlainVyukov<T>, T> {
  struct Cell {
    std::atomic<size_t> sequence;
    T data;
  };
  explicit PlainVyukov(size_t capacity) : mask(capacity - 1), cells(new Cell[capacity]) {
    for (size_t i = 0; i < capacity; ++i) cells[i].sequence.store(i, std::memory_order_relaxed);
  }
  bool push_one(const T& item) {
    size_t position = tail.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells[position & mask];
      const size_t sequence = cell.sequence.load(std::memory_order_acquire);
      const auto ahead = static_cast<intptr_t>(sequence - position);
      if (ahead == 0) {
        if (tail.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
          cell.data = item;
          cell.sequence.store(position + 1, std::memory_order_release);
          return true;
        }
      } else if (ahead < 0) {
        return false;
      } else {
        position = tail.load(std::memory_order_relaxed);
      }
    }
  }
  bool pop_one(T& item) {
    size_t position = head.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells[position & mask];
      const size_t sequence = cell.sequence.load(std::memory_order_acquire);
      const auto ahead = static_cast<intptr_t>(sequence - (position + 1));
      if (ahead == 0) {
        if (head.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
          item = cell.data;
          cell.sequence.store(position + mask + 1, std::memory_order_release);
          return true;
        }
      } else if (ahead < 0) {
        return false;
      } else {
        position = head.load(std::memory_order_relaxed);
      }
    }
  }
  const size_t mask;
  const std::unique_ptr<Cell[]> cells;
  alignas(kCacheLine) std::atomic<size_t> tail{0};
  alignas(kCacheLine) std::atomic<size_t> head{0};
  char padding[kCacheLine];
};

#if defined(LUMEN_BENCH_READERWRITER)
template <typename T>
struct MoodycamelSpsc : SelfHandled<MoodycamelSpsc<T>, T> {
  moodycamel::ReaderWriterQueue<T> queue;
  explicit MoodycamelSpsc(size_t capacity) : queue(capacity) {}
  bool push_one(const T& item) { return queue.try_enqueue(item); }
  bool pop_one(T& item) { return queue.try_dequeue(item); }
};
#endif
#if defined(LUMEN_BENCH_CONCURRENT)
template <typename T>
struct MoodycamelMpmc {
  moodycamel::ConcurrentQueue<T> queue;
  size_t capacity;
  explicit MoodycamelMpmc(size_t most) : queue(most, 2, 2), capacity(most) {}
  // With tokens, which is how its author says it is fast. Blocks stay with the token that took
  // them, so a second producer may find none although the queue is empty: then it allocates.
  struct Pusher {
    MoodycamelMpmc* self;
    moodycamel::ProducerToken token;
    bool try_push(const T& item) {
      if (self->queue.try_enqueue(token, item)) return true;
      return self->queue.size_approx() < self->capacity && self->queue.enqueue(token, item);
    }
  };
  struct Popper {
    moodycamel::ConcurrentQueue<T>* queue;
    moodycamel::ConsumerToken token;
    bool try_pop(T& item) { return queue->try_dequeue(token, item); }
  };
  Pusher pusher() { return {this, moodycamel::ProducerToken(queue)}; }
  Popper popper() { return {&queue, moodycamel::ConsumerToken(queue)}; }
};
#endif
#if defined(LUMEN_BENCH_BOOST)
template <typename T>
struct BoostSpsc : SelfHandled<BoostSpsc<T>, T> {
  boost::lockfree::spsc_queue<T> queue;
  explicit BoostSpsc(size_t capacity) : queue(capacity) {}
  bool push_one(const T& item) { return queue.push(item); }
  bool pop_one(T& item) { return queue.pop(item); }
};
template <typename T>
struct BoostMpmc : SelfHandled<BoostMpmc<T>, T> {
  boost::lockfree::queue<T, boost::lockfree::fixed_sized<true>> queue;
  // Its node indices have 16 bits.
  explicit BoostMpmc(size_t capacity) : queue(std::min<size_t>(capacity, 65'534)) {}
  bool push_one(const T& item) { return queue.bounded_push(item); }
  bool pop_one(T& item) { return queue.pop(item); }
};
#endif
#if defined(LUMEN_BENCH_TBB)
template <typename T>
struct TbbBounded : SelfHandled<TbbBounded<T>, T> {
  tbb::concurrent_bounded_queue<T> queue;
  explicit TbbBounded(size_t capacity) { queue.set_capacity(static_cast<ptrdiff_t>(capacity)); }
  bool push_one(const T& item) { return queue.try_push(item); }
  bool pop_one(T& item) { return queue.try_pop(item); }
};
#endif

}  // namespace lumen::bench
