// The rivals of a batch of 256, two kinds: copies (a call takes or gives an array) and spans (items
// are written and read in the queue's own memory). Each is set against its like.
// Threads: one producer, one consumer. Memory: each queue's own. Errors: 0 or an empty span.
#pragma once

#include "contenders.h"

#include <span>

namespace lumen::bench {

// --- copies: push_n(span) and pop_n(span) say how many -------------------------------------------

template <typename T>
struct LumenSpscCopies {
  SpscQueue<T> queue;
  typename SpscQueue<T>::Producer producer = queue.producer();
  typename SpscQueue<T>::Consumer consumer = queue.consumer();
  explicit LumenSpscCopies(size_t capacity) : queue(capacity) {}
  size_t push_n(std::span<T> items) { return producer.try_push_n(items); }
  size_t pop_n(std::span<T> items) { return consumer.try_pop_n(items); }
};

template <typename T, typename Queue>
struct LumenCopies {
  Queue queue;
  explicit LumenCopies(size_t capacity) : queue(capacity) {}
  size_t push_n(std::span<T> items) { return queue.try_push_n(items); }
  size_t pop_n(std::span<T> items) { return queue.try_pop_n(items); }
};

// A std::deque and one lock a batch.
template <typename T, typename Mutex>
struct MutexDequeCopies {
  explicit MutexDequeCopies(size_t most) : capacity(most) {}
  size_t push_n(std::span<T> from) {
    const std::lock_guard lock(mutex);
    const size_t count = std::min(from.size(), capacity - items.size());
    items.insert(items.end(), from.begin(), from.begin() + static_cast<ptrdiff_t>(count));
    return count;
  }
  size_t pop_n(std::span<T> to) {
    const std::lock_guard lock(mutex);
    const size_t count = std::min(to.size(), items.size());
    const auto end = items.begin() + static_cast<ptrdiff_t>(count);
    std::copy(items.begin(), end, to.begin());
    items.erase(items.begin(), end);
    return count;
  }
  size_t capacity;
  Mutex mutex;
  std::deque<T> items;
};

#if defined(LUMEN_BENCH_CONCURRENT)
// Its bulk calls with tokens, which its author calls the fastest way. ReaderWriterQueue has none.
template <typename T>
struct MoodycamelBulk {
  moodycamel::ConcurrentQueue<T> queue;
  size_t capacity;
  moodycamel::ProducerToken in{queue};
  moodycamel::ConsumerToken out{queue};
  explicit MoodycamelBulk(size_t most) : queue(most, 1, 0), capacity(most) {}
  size_t push_n(std::span<T> items) {
    if (queue.try_enqueue_bulk(in, items.data(), items.size())) return items.size();
    return 0;
  }
  size_t pop_n(std::span<T> items) {
    return queue.try_dequeue_bulk(out, items.data(), items.size());
  }
};
#endif
#if defined(LUMEN_BENCH_BOOST)
template <typename T>
struct BoostSpscCopies {
  boost::lockfree::spsc_queue<T> queue;
  explicit BoostSpscCopies(size_t capacity) : queue(capacity) {}
  size_t push_n(std::span<T> items) { return queue.push(items.data(), items.size()); }
  size_t pop_n(std::span<T> items) { return queue.pop(items.data(), items.size()); }
};
#endif

// --- spans: fill(f) and drain(f) call f with a piece of the queue's memory and say how long it was --

template <typename T>
struct LumenSpscSpans : LumenSpscCopies<T> {
  using LumenSpscCopies<T>::LumenSpscCopies;
  template <typename Use>
  size_t fill(size_t most, Use&& use) {
    const std::span<T> room = this->producer.reserve(most);
    if (room.empty()) return 0;
    use(room);
    static_cast<void>(this->producer.commit(room.size()));
    return room.size();
  }
  template <typename Use>
  size_t drain(size_t most, Use&& use) {
    const std::span<T> items = this->consumer.peek(most);
    if (items.empty()) return 0;
    use(items);
    this->consumer.release(items.size());
    return items.size();
  }
};

// Lamport's ring: two indices, each read by the other side at each batch; the first version that
// one writes without a lock.
template <typename T>
struct PlainRingSpans {
  explicit PlainRingSpans(size_t capacity) : mask(capacity - 1), slots(new T[capacity]) {}
  template <typename Use>
  size_t fill(size_t most, Use&& use) {
    const size_t tail = tail_index.load(std::memory_order_relaxed);
    const size_t room = mask + 1 - (tail - head_index.load(std::memory_order_acquire));
    const size_t count = std::min({most, room, mask + 1 - (tail & mask)});
    if (count == 0) return 0;
    use(std::span<T>(&slots[tail & mask], count));
    tail_index.store(tail + count, std::memory_order_release);
    return count;
  }
  template <typename Use>
  size_t drain(size_t most, Use&& use) {
    const size_t head = head_index.load(std::memory_order_relaxed);
    const size_t ready = tail_index.load(std::memory_order_acquire) - head;
    const size_t count = std::min({most, ready, mask + 1 - (head & mask)});
    if (count == 0) return 0;
    use(std::span<T>(&slots[head & mask], count));
    head_index.store(head + count, std::memory_order_release);
    return count;
  }
  const size_t mask;
  const std::unique_ptr<T[]> slots;
  alignas(kFalseSharingRange) std::atomic<size_t> tail_index{0};
  alignas(kFalseSharingRange) std::atomic<size_t> head_index{0};
  char padding[kFalseSharingRange];
};

// The same with its indices under a mutex, which is not held while the items are written or read.
template <typename T, typename Mutex>
struct MutexRingSpans {
  explicit MutexRingSpans(size_t capacity) : mask(capacity - 1), slots(new T[capacity]) {}
  template <typename Use>
  size_t fill(size_t most, Use&& use) {
    return turn(tail, [&] { return mask + 1 - (tail - head); }, most, use);
  }
  template <typename Use>
  size_t drain(size_t most, Use&& use) {
    return turn(head, [&] { return tail - head; }, most, use);
  }
  template <typename Here, typename Use>
  size_t turn(size_t& index, Here&& here, size_t most, Use&& use) {
    mutex.lock();
    const size_t count = std::min({most, here(), mask + 1 - (index & mask)});
    mutex.unlock();
    if (count == 0) return 0;
    use(std::span<T>(&slots[index & mask], count));
    const std::lock_guard lock(mutex);
    index += count;
    return count;
  }
  const size_t mask;
  const std::unique_ptr<T[]> slots;
  Mutex mutex;
  size_t tail = 0;
  size_t head = 0;
};

}  // namespace lumen::bench
