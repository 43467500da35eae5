// SpscQueue: bounded ring between one producer and one consumer thread.
// Threads: one at a time holds the Producer, one the Consumer (CHECKed); close() and observers any.
// Memory: one array at construction. Errors: try_* return false or 0 when full, empty or closed.
//
//   slots  [ . . a b c d . . ]     head: next to pop, written by the consumer alone
//              ^head   ^tail       tail: next to fill, written by the producer alone
//
// Invariant: head <= tail <= head + capacity; [head, tail) are constructed; positions never wrap
// (2^63 items). A handle keeps its own position in itself and a copy of the other side's, so that
// in steady state an operation touches the slot and its own index only: 1 to 3 ns. The copy is
// renewed when it says full or empty; that is the one load of the other side's line, up to 300 ns,
// shared by all items that came meanwhile. After a run of items a handle waits before that load, so
// that it finds as many again, and asks for the slots that it knows to be its own before it gets
// there (queue/index_looks.h).
// Order: the producer's store to tail releases the item, the consumer's load acquires it; head in
// the other direction releases the empty slot. With Waiting::kDoorbell both publications are
// seq_cst read-modify-writes, because a sleeper announces itself and then looks once more: of the
// two orders, one sees the other. The top bit of tail is `closed`, so a push that races with
// close() has either published before it or fails: nothing that was accepted is lost.
// A thread that dies in here leaves at most its own item unpublished: the other side sees the
// queue empty (full) from there on, never a torn item. Nothing is shared but the two indices.
#pragma once

#include <lumen/base/idle_strategy.h>
#include <lumen/queue/index_looks.h>
#include <lumen/queue/queue_types.h>

#include <algorithm>
#include <atomic>
#include <span>

namespace lumen {

template <QueueItem T, Waiting kWaiting = Waiting::kNone>
class SpscQueue {
  static constexpr bool kBlocking = kWaiting == Waiting::kDoorbell;
  static constexpr bool kSpans = std::is_trivially_copyable_v<T>;
  static constexpr size_t kClosedBit = ~(~size_t{0} >> 1);

 public:
  class Producer;
  class Consumer;

  // `capacity` is a power of two, at least 1.
  explicit SpscQueue(size_t capacity)
      : mask_(checked_capacity(capacity, 1) - 1), slots_(capacity) {}
  ~SpscQueue() {
    LUMEN_CHECK(!producer_taken_ && !consumer_taken_);
    // relaxed: both roles have been returned, nobody else is here
    const size_t tail = tail_.load(std::memory_order_relaxed) & ~kClosedBit;
    for (size_t i = head_.load(std::memory_order_relaxed); i != tail; ++i) {  // relaxed: as above
      std::destroy_at(slots_.get() + (i & mask_));
    }
  }
  SpscQueue(const SpscQueue&) = delete;
  SpscQueue& operator=(const SpscQueue&) = delete;

  // The roles. A second handle at the same time is our own bug; a returned one may be taken again,
  // by another thread too.
  [[nodiscard]] Producer producer() noexcept { return Producer(*this); }
  [[nodiscard]] Consumer consumer() noexcept { return Consumer(*this); }

  // No push succeeds from here on; all that was accepted is still popped; everyone is woken.
  // Without doorbells, Producer::close() does it.
  void close() noexcept
    requires kBlocking
  {
    // sync[spsc.tail]: seq_cst against a sleeper's look; a push now fails its compare-and-swap
    tail_.fetch_or(kClosedBit, std::memory_order_seq_cst);
    not_empty_.wake_all();
    not_full_.wake_all();
  }

  [[nodiscard]] size_t capacity() const noexcept { return mask_ + 1; }
  [[nodiscard]] bool was_closed() const noexcept {
    return (tail_.load(std::memory_order_relaxed) & kClosedBit) != 0;  // relaxed: racy by name
  }
  [[nodiscard]] size_t size_was() const noexcept {
    const size_t head = head_.load(std::memory_order_relaxed);  // relaxed: racy by name
    const size_t tail = tail_.load(std::memory_order_relaxed) & ~kClosedBit;  // relaxed: as above
    return std::min(tail - std::min(head, tail), capacity());
  }
  [[nodiscard]] bool was_empty() const noexcept { return size_was() == 0; }

 private:
  const size_t mask_;
  const RawSlots<T> slots_;
  alignas(kFalseSharingRange) std::atomic<size_t> tail_{0};
  std::atomic<bool> producer_taken_{false};
  alignas(kFalseSharingRange) std::atomic<size_t> head_{0};
  std::atomic<bool> consumer_taken_{false};
  // Woken by the other side, so apart from the lines above; empty where there is no waiting.
  struct NoDoorbell {};
  using Bell = std::conditional_t<kBlocking, Doorbell, NoDoorbell>;
  alignas(kFalseSharingRange) Bell not_empty_;
  alignas(kFalseSharingRange) Bell not_full_;
};

template <QueueItem T, Waiting kWaiting>
class SpscQueue<T, kWaiting>::Producer {
 public:
  Producer(Producer&& other) noexcept
      : queue_(std::exchange(other.queue_, nullptr)),
        slots_(other.slots_),
        mask_(other.mask_),
        tail_(other.tail_),
        head_seen_(other.head_seen_),
        looks_(other.looks_),
        closed_(other.closed_),
        idle_(other.idle_) {}
  Producer& operator=(Producer&&) = delete;
  ~Producer() {
    if (queue_ == nullptr) return;
    // sync[spsc.producer]: release to the next holder of the role
    queue_->producer_taken_.store(false, std::memory_order_release);
  }

  // On false `value` is untouched.
  [[nodiscard]] bool try_push(T&& value) noexcept {
    if (tail_ - head_seen_ == mask_ + 1 && !found_room()) return false;
    fetch_ahead<Fetch::kToWrite>(slots_, mask_, tail_, head_seen_ + mask_ + 1);
    T* slot = std::construct_at(slots_ + (tail_ & mask_), std::move(value));
    if (publish(1)) return true;
    value = std::move(*slot);  // closed meanwhile
    std::destroy_at(slot);
    return false;
  }

  // Moves as many of `items` as fit, from the first on, published at once. 0: full or closed.
  [[nodiscard]] size_t try_push_n(std::span<T> items) noexcept {
    const size_t count = std::min(items.size(), room_for(items.size()));
    if (count == 0 || (kBlocking && queue_->was_closed())) return 0;
    const size_t first = std::min(count, mask_ + 1 - (tail_ & mask_));
    T* slot = slots_ + (tail_ & mask_);
    std::uninitialized_move_n(items.data(), first, slot);
    std::uninitialized_move_n(items.data() + first, count - first, slots_);
    if (publish(count)) return count;
    std::move(slot, slot + first, items.data());  // closed meanwhile
    std::move(slots_, slots_ + (count - first), items.data() + first);
    std::destroy_n(slot, first);
    std::destroy_n(slots_, count - first);
    return 0;
  }

  // Up to `most` free places in one piece (the ring's end may cut it), to be filled in place.
  [[nodiscard]] std::span<T> reserve(size_t most) noexcept
    requires kSpans
  {
    const size_t here = tail_ & mask_;
    return {slots_ + here, std::min({most, room_for(most), mask_ + 1 - here})};
  }
  // Publishes the first `count` of them. False: closed.
  bool commit(size_t count) noexcept
    requires kSpans
  {
    LUMEN_DCHECK(count <= mask_ + 1 - (tail_ - head_seen_));
    return publish(count);
  }

  // Waits for room. `value` is untouched unless kOk.
  QueueOutcome push(T&& value, uint64_t deadline_ns = UINT64_MAX) noexcept
    requires kBlocking
  {
    if (try_push(std::move(value))) return QueueOutcome::kOk;
    bool pushed = false;
    // NOLINTBEGIN(bugprone-use-after-move): a push that fails leaves it untouched
    const bool settled = await(queue_->not_full_, idle_, deadline_ns, [&] {
      // sync[spsc.tail]: seq_cst, the look of a thread that is about to sleep
      return (pushed = try_push(std::move(value))) ||
             (queue_->tail_.load(std::memory_order_seq_cst) & kClosedBit) != 0;
    });
    // NOLINTEND(bugprone-use-after-move)
    if (!settled) return QueueOutcome::kTimedOut;
    return pushed ? QueueOutcome::kOk : QueueOutcome::kClosed;
  }

  // The end of the stream: items in it are still popped.
  void close() noexcept {
    if constexpr (kBlocking) {
      queue_->close();
    } else {
      // sync[spsc.tail]: release, the last items with it
      queue_->tail_.store(tail_ | kClosedBit, std::memory_order_release);
      head_seen_ = tail_ - (mask_ + 1);  // full for ever
      closed_ = true;
    }
  }

 private:
  friend class SpscQueue;
  explicit Producer(SpscQueue& queue) noexcept
      : queue_(&queue), slots_(queue.slots_.get()), mask_(queue.mask_) {
    // sync[spsc.producer]: acquire from the last holder of the role
    LUMEN_CHECK(!queue.producer_taken_.exchange(true, std::memory_order_acquire));
    // relaxed: written by holders of this role alone
    const size_t tail = queue.tail_.load(std::memory_order_relaxed);
    tail_ = tail & ~kClosedBit;
    closed_ = (tail & kClosedBit) != 0;
    // sync[spsc.head]: acquire, the slots up to there are empty
    head_seen_ = closed_ ? tail_ - (mask_ + 1) : queue.head_.load(std::memory_order_acquire);
  }

  [[nodiscard]] size_t room_for(size_t wanted) noexcept {
    size_t free = mask_ + 1 - (tail_ - head_seen_);
    if (free >= wanted || closed_) return free;
    look();
    return mask_ + 1 - (tail_ - head_seen_);
  }
  void look() noexcept {
    // sync[spsc.head]: acquire, the consumer has left those slots; seq_cst where it may be the look
    // of a thread that is about to sleep
    head_seen_ =
        queue_->head_.load(kBlocking ? std::memory_order_seq_cst : std::memory_order_acquire);
  }
  // All the room that it knew of is used up.
  bool found_room() noexcept {
    return !closed_ && looks_.look_again(tail_, mask_ + 1, [&] {
      look();
      return tail_ - head_seen_ != mask_ + 1;
    });
  }
  // False: closed.
  bool publish(size_t count) noexcept {
    if constexpr (kBlocking) {
      size_t expected = tail_;
      // sync[spsc.tail]: release of the items; seq_cst against the consumer's announcement
      if (!queue_->tail_.compare_exchange_strong(expected, tail_ + count,
                                                 std::memory_order_seq_cst)) {
        return false;
      }
      tail_ += count;
      queue_->not_empty_.wake_published();
    } else {
      tail_ += count;
      // sync[spsc.tail]: release, the items are there for the consumer
      queue_->tail_.store(tail_, std::memory_order_release);
    }
    return true;
  }

  SpscQueue* queue_;
  T* slots_;
  size_t mask_;
  size_t tail_ = 0;
  size_t head_seen_ = 0;
  IndexLooks looks_;
  bool closed_ = false;  // without doorbells: by this role
  IdleStrategy idle_;
};

template <QueueItem T, Waiting kWaiting>
class SpscQueue<T, kWaiting>::Consumer {
 public:
  Consumer(Consumer&& other) noexcept
      : queue_(std::exchange(other.queue_, nullptr)),
        slots_(other.slots_),
        mask_(other.mask_),
        head_(other.head_),
        tail_seen_(other.tail_seen_),
        looks_(other.looks_),
        idle_(other.idle_) {}
  Consumer& operator=(Consumer&&) = delete;
  ~Consumer() {
    if (queue_ == nullptr) return;
    // sync[spsc.consumer]: release to the next holder of the role
    queue_->consumer_taken_.store(false, std::memory_order_release);
  }

  // On false `value` is untouched.
  [[nodiscard]] bool try_pop(T& value) noexcept {
    if (tail_seen_ == head_ && !found_items()) return false;
    fetch_ahead<Fetch::kToRead>(slots_, mask_, head_, tail_seen_);
    T* slot = slots_ + (head_ & mask_);
    value = std::move(*slot);
    std::destroy_at(slot);
    leave(1);
    return true;
  }

  // Moves as many as there are into `items`, from its first on.
  [[nodiscard]] size_t try_pop_n(std::span<T> items) noexcept {
    const size_t count = std::min(items.size(), ready_for(items.size()));
    if (count == 0) return 0;
    T* slot = slots_ + (head_ & mask_);
    const size_t first = std::min(count, mask_ + 1 - (head_ & mask_));
    std::move(slot, slot + first, items.data());
    std::move(slots_, slots_ + (count - first), items.data() + first);
    std::destroy_n(slot, first);
    std::destroy_n(slots_, count - first);
    leave(count);
    return count;
  }

  // Up to `most` items in one piece (the ring's end may cut it), to be read in place.
  [[nodiscard]] std::span<T> peek(size_t most) noexcept
    requires kSpans
  {
    const size_t here = head_ & mask_;
    return {slots_ + here, std::min({most, ready_for(most), mask_ + 1 - here})};
  }
  // Gives the first `count` of them back.
  void release(size_t count) noexcept
    requires kSpans
  {
    LUMEN_DCHECK(count <= tail_seen_ - head_);
    leave(count);
  }

  // Waits for an item. kClosed: closed, and nothing is left.
  QueueOutcome pop(T& value, uint64_t deadline_ns = UINT64_MAX) noexcept
    requires kBlocking
  {
    if (try_pop(value)) return QueueOutcome::kOk;
    bool popped = false;
    const bool settled = await(queue_->not_empty_, idle_, deadline_ns,
                               [&] { return (popped = try_pop(value)) || drained(); });
    if (!settled) return QueueOutcome::kTimedOut;
    return popped ? QueueOutcome::kOk : QueueOutcome::kClosed;
  }

  // True: closed, and nothing is left nor will come.
  [[nodiscard]] bool drained() const noexcept {
    // sync[spsc.tail]: seq_cst, it may be the look of a thread that is about to sleep
    return queue_->tail_.load(std::memory_order_seq_cst) == (head_ | kClosedBit);
  }

 private:
  friend class SpscQueue;
  explicit Consumer(SpscQueue& queue) noexcept
      : queue_(&queue), slots_(queue.slots_.get()), mask_(queue.mask_) {
    // sync[spsc.consumer]: acquire from the last holder of the role
    LUMEN_CHECK(!queue.consumer_taken_.exchange(true, std::memory_order_acquire));
    head_ = queue.head_.load(std::memory_order_relaxed);  // relaxed: written by this role alone
    tail_seen_ = head_;
  }

  [[nodiscard]] size_t ready_for(size_t wanted) noexcept {
    const size_t ready = tail_seen_ - head_;
    if (ready >= wanted) return ready;
    look();
    return tail_seen_ - head_;
  }
  void look() noexcept {
    // sync[spsc.tail]: acquire of the items; seq_cst where it may be the look of a thread that is
    // about to sleep
    tail_seen_ =
        queue_->tail_.load(kBlocking ? std::memory_order_seq_cst : std::memory_order_acquire) &
        ~kClosedBit;
  }
  // All the items that it knew of are taken.
  bool found_items() noexcept {
    return looks_.look_again(head_, mask_ + 1, [&] {
      look();
      return tail_seen_ != head_;
    });
  }
  void leave(size_t count) noexcept {
    head_ += count;
    if constexpr (kBlocking) {
      // sync[spsc.head]: release of the slots; seq_cst against the producer's announcement
      queue_->head_.exchange(head_, std::memory_order_seq_cst);
      queue_->not_full_.wake_published();
    } else {
      // sync[spsc.head]: release, the slots are free for the producer
      queue_->head_.store(head_, std::memory_order_release);
    }
  }

  SpscQueue* queue_;
  T* slots_;
  size_t mask_;
  size_t head_ = 0;
  size_t tail_seen_ = 0;
  IndexLooks looks_;
  IdleStrategy idle_;
};

// tail, head and the bells are 128 bytes apart, so that neither side's writes take the other's line
// along (Intel's prefetcher fetches lines in pairs).
static_assert(alignof(SpscQueue<int>) == kFalseSharingRange);
static_assert(sizeof(SpscQueue<int>) == 5 * kFalseSharingRange);
static_assert(sizeof(SpscQueue<int, Waiting::kDoorbell>) == 5 * kFalseSharingRange);

}  // namespace lumen
