// MpmcQueue: bounded multi-producer multi-consumer ring (Dmitry Vyukov's, 1024cores.net, 2010).
// Threads: any may push, pop and close. Memory: one array at construction.
// Errors: try_* return false or 0 when full, empty or closed; they wait for nobody.
//
//   slots  [turn|value] [turn|value] ...     slot i serves the positions i, i + capacity, ...
//   turn == position                         free: the producer of that position may fill it
//   turn == position + 1                     filled: the consumer of that position may empty it,
//                                            which sets turn to position + capacity
//
// Invariant: a position is claimed by one compare-and-swap on tail (head), and only after the slot
// was seen free (filled) for it; so between claim and publication the slot is its claimer's alone.
// Order: the claims order nothing. The store of turn releases the value (the empty slot), the load
// of turn acquires it. With Waiting::kDoorbell claims and turns are seq_cst, because a sleeper
// announces itself and then looks once more: of the two orders, one sees the other. Cost: a
// compare-and-swap (5 ns) and the slot's line from the other core (25 to 45 ns for 4 slots of 8
// bytes). After a lost compare-and-swap the thread backs off (base/backoff.h: 17 -> 55 M/s at 2 and
// 2). try_push_n and try_pop_n pay one compare-and-swap for the whole batch, and write its turns
// from the last to the first: a thread that sees the first sees the batch whole, and does not come
// back for every few slots of it (450 -> 530 M/s in batches of 256). tests/spin/mpmc_batch.pml
// models that. A thread that finds nothing after a burst pauses once, at most 1.5 µs between near
// cores, to keep its distance (base/backoff.h: 77 -> 175 M/s at 1 and 1, 60 -> 155 with 64 bytes).
// Each side learns the distance of the cores from its own looks (base/core_distance.h).
// Padding::kSlot gives each slot lines of its own: neighbours that are filled and emptied at the
// same moment no longer share one, for 4 times the memory at 8 bytes (5 % at 65,536 slots); for the
// bench. The top bit of tail is `closed`: a push has claimed its position before it, or fails. A
// thread that dies (or is held) between claiming a slot and publishing it blocks that slot:
// consumers see the queue as empty from there on, producers see it full one lap later. Items before
// that slot are still popped, nothing is torn, and when a held thread goes on, so does all else.
#pragma once

#include <lumen/base/backoff.h>
#include <lumen/base/idle_strategy.h>
#include <lumen/queue/queue_types.h>
#include <lumen/queue/ring_side.h>

#include <algorithm>
#include <atomic>
#include <span>

namespace lumen {

enum class Padding : uint8_t { kNone, kSlot };

template <QueueItem T, Padding kPadding = Padding::kNone, Waiting kWaiting = Waiting::kNone>
class MpmcQueue {
  static constexpr bool kBlocking = kWaiting == Waiting::kDoorbell;
  static constexpr bool kSpans = std::is_trivially_copyable_v<T>;
  static constexpr size_t kClosedBit = ~(~size_t{0} >> 1);
  // sync[mpmc.slot]: the orders of the turn and of the claims, as the header says
  static constexpr auto kLook = kBlocking ? std::memory_order_seq_cst : std::memory_order_acquire;
  static constexpr auto kPublish =
      kBlocking ? std::memory_order_seq_cst : std::memory_order_release;
  static constexpr auto kClaim = kBlocking ? std::memory_order_seq_cst : std::memory_order_relaxed;

 public:
  // `capacity` is a power of two, at least 2.
  explicit MpmcQueue(size_t capacity) : mask_(checked_capacity(capacity, 2) - 1), slots_(capacity) {
    for (size_t i = 0; i < capacity; ++i) {
      std::construct_at(&slots_.get()[i].turn, i);
    }
  }
  // No other thread may be in here, nor have died between claim and publication.
  ~MpmcQueue() {
    // relaxed: nobody else is here
    const size_t tail = tail_side_.index.load(std::memory_order_relaxed) & ~kClosedBit;
    for (size_t i = head_side_.index.load(std::memory_order_relaxed); i != tail;
         ++i) {  // relaxed: as above
      std::destroy_at(slot(i).value());
    }
  }
  MpmcQueue(const MpmcQueue&) = delete;
  MpmcQueue& operator=(const MpmcQueue&) = delete;

  // On false `value` is untouched.
  [[nodiscard]] bool try_push(T&& value) noexcept {
    const Claim claim = claim_free(1);
    if (claim.count == 0) return false;
    fill(slot(claim.position), claim.position + 1, std::move(value));
    after_push(claim.position + 1, 1);
    return true;
  }
  // On false `value` is untouched.
  [[nodiscard]] bool try_pop(T& value) noexcept {
    const Claim claim = claim_filled(1);
    if (claim.count == 0) return false;
    take(slot(claim.position), claim.position + capacity(), value);
    after_pop(claim.position + 1, 1);
    return true;
  }

  // Moves as many of `items` as fit, from the first on, into consecutive positions, where they are
  // seen all at once. 0: full or closed.
  [[nodiscard]] size_t try_push_n(std::span<T> items) noexcept {
    const Claim claim = claim_free(items.size());
    const size_t turn = claim.position + 1;
    from_last(claim.position, claim.count,
              [&](Slot& slot, size_t i) { fill(slot, turn + i, std::move(items[i])); });
    if (claim.count != 0) after_push(claim.position + claim.count, claim.count);
    return claim.count;
  }
  // Moves as many as there are, from consecutive positions, into `items` from its first on.
  [[nodiscard]] size_t try_pop_n(std::span<T> items) noexcept {
    const Claim claim = claim_filled(items.size());
    const size_t turn = claim.position + capacity();
    from_last(claim.position, claim.count,
              [&](Slot& slot, size_t i) { take(slot, turn + i, items[i]); });
    if (claim.count != 0) after_pop(claim.position + claim.count, claim.count);
    return claim.count;
  }

  // A run of claimed positions, filled (reserve) or read (peek) in place and given on by done(),
  // exactly once. Until then it blocks the queue, as a dead thread would.
  class Run {
   public:
    Run(Run&& other) noexcept
        : queue_(other.queue_),
          position_(other.position_),
          count_(std::exchange(other.count_, 0)),
          filling_(other.filling_) {}
    Run& operator=(Run&&) = delete;
    ~Run() { LUMEN_CHECK(count_ == 0); }
    [[nodiscard]] size_t size() const noexcept { return count_; }
    // Of its first item, counted since construction: the slot is that modulo capacity().
    [[nodiscard]] size_t position() const noexcept { return position_; }
    [[nodiscard]] T& operator[](size_t i) const noexcept {
      return *queue_->slot(position_ + i).value();
    }
    void done() noexcept { queue_->end_run(position_, std::exchange(count_, 0), filling_); }

   private:
    friend class MpmcQueue;
    Run(MpmcQueue* queue, size_t position, size_t count, bool filling) noexcept
        : queue_(queue), position_(position), count_(count), filling_(filling) {}
    MpmcQueue* queue_;
    size_t position_;
    size_t count_;
    bool filling_;
  };
  // Up to `most` free positions, their bytes as they were left; size() 0: full or closed.
  [[nodiscard]] Run reserve(size_t most) noexcept
    requires kSpans
  {
    const Claim claim = claim_free(most);
    return Run(this, claim.position, claim.count, true);
  }
  // Up to `most` items; size() 0: empty.
  [[nodiscard]] Run peek(size_t most) noexcept
    requires kSpans
  {
    const Claim claim = claim_filled(most);
    return Run(this, claim.position, claim.count, false);
  }

  // Waits for room; `value` is untouched unless kOk. `idle` is the calling thread's own.
  QueueOutcome push(T&& value, IdleStrategy& idle, uint64_t deadline_ns = UINT64_MAX) noexcept
    requires kBlocking
  {
    bool pushed = false;
    const bool settled = await(not_full_, idle, deadline_ns, [&] {
      return (pushed = try_push(std::move(value))) || closed_look();
    });
    if (!settled) return QueueOutcome::kTimedOut;
    return pushed ? QueueOutcome::kOk : QueueOutcome::kClosed;
  }
  // Waits for an item. kClosed: closed, and nothing is left.
  QueueOutcome pop(T& value, IdleStrategy& idle, uint64_t deadline_ns = UINT64_MAX) noexcept
    requires kBlocking
  {
    bool popped = false;
    const bool settled = await(not_empty_, idle, deadline_ns,
                               [&] { return (popped = try_pop(value)) || drained(); });
    if (!settled) return QueueOutcome::kTimedOut;
    return popped ? QueueOutcome::kOk : QueueOutcome::kClosed;
  }

  // No push succeeds from here on; all that was accepted is still popped; everyone is woken.
  void close() noexcept {
    // sync[mpmc.closing]: seq_cst before the wakes below, so that a thread that pops later sees it
    closing_.store(true, std::memory_order_seq_cst);
    // sync[mpmc.tail]: seq_cst against a sleeper's look; a claim now fails its compare-and-swap
    tail_side_.index.fetch_or(kClosedBit, std::memory_order_seq_cst);
    if constexpr (kBlocking) {
      not_empty_.wake_all();
      not_full_.wake_all();
    }
  }
  // True: closed, and nothing is left nor will come. False while an accepted item is on its way.
  [[nodiscard]] bool drained() const noexcept {
    // sync[mpmc.tail]: seq_cst, it may be the look of a thread that is about to sleep
    const size_t tail = tail_side_.index.load(std::memory_order_seq_cst);
    if ((tail & kClosedBit) == 0) return false;
    // sync[mpmc.head]: as above
    return head_side_.index.load(std::memory_order_seq_cst) == (tail & ~kClosedBit);
  }

  [[nodiscard]] size_t capacity() const noexcept { return mask_ + 1; }
  [[nodiscard]] bool was_closed() const noexcept {
    const size_t tail = tail_side_.index.load(std::memory_order_relaxed);  // relaxed: racy by name
    return (tail & kClosedBit) != 0;
  }
  // Racy: the position of the oldest item a moment ago, whether it is there or still to come.
  [[nodiscard]] size_t oldest_position_was() const noexcept {
    return head_side_.index.load(std::memory_order_relaxed);  // relaxed: a hint
  }
  // Racy: the size of a moment ago, for statistics.
  [[nodiscard]] size_t size_was() const noexcept {
    const size_t tail =
        tail_side_.index.load(std::memory_order_relaxed) & ~kClosedBit;    // relaxed: a statistic
    const size_t head = head_side_.index.load(std::memory_order_relaxed);  // relaxed: a statistic
    return tail > head ? std::min(tail - head, capacity()) : 0;
  }
  [[nodiscard]] bool was_empty() const noexcept { return size_was() == 0; }
  // Racy: how many slept on an empty (full) queue and were not woken for, a moment ago.
  [[nodiscard]] uint32_t consumers_slept() const noexcept
    requires kBlocking
  {
    return not_empty_.waiters_were();
  }
  [[nodiscard]] uint32_t producers_slept() const noexcept
    requires kBlocking
  {
    return not_full_.waiters_were();
  }

 private:
  struct alignas(kPadding == Padding::kSlot ? kCacheLine : alignof(size_t)) Slot {
    std::atomic<size_t> turn;
    alignas(T) std::byte storage[sizeof(T)];
    T* value() noexcept { return std::launder(reinterpret_cast<T*>(storage)); }
  };
  static_assert(kPadding == Padding::kNone || sizeof(Slot) % kCacheLine == 0);
  static_assert(sizeof(T) != 8 || kPadding != Padding::kNone || sizeof(Slot) == 16);

  struct Claim {
    size_t position;
    size_t count;
  };

  Slot& slot(size_t position) const noexcept { return slots_.get()[position & mask_]; }

  // Calls use(slot, i) for the i-th position from `position` on, the last one first. In two pieces,
  // since the ring may end within: a mask for each slot took twice the time of the copy.
  template <typename Use>
  void from_last(size_t position, size_t count, Use&& use) const noexcept {
    Slot* const begin = slots_.get();
    Slot* const here = &slot(position);
    const size_t first = std::min(count, capacity() - (position & mask_));
    for (size_t i = count; i != first; --i) use(begin[i - 1 - first], i - 1);
#pragma GCC unroll 4
    for (size_t i = first; i != 0; --i) use(here[i - 1], i - 1);
  }
  // Whether these slots have the turns from `turn` on. One branch for four: 470 -> 520 M/s.
  static constexpr size_t kGroup = 4;
  static bool has_turns(const Slot* group, size_t turn) noexcept {
    size_t unlike = 0;
    // sync[mpmc.slot]: acquire, as in claim()
#pragma GCC unroll 4
    for (size_t i = 0; i < kGroup; ++i) unlike |= group[i].turn.load(kLook) ^ (turn + i);
    return unlike == 0;
  }
  // How many positions from `position` on have turn `position + offset`, up to `most`; the first
  // has.
  size_t run_length(size_t position, size_t offset, size_t most) const noexcept {
    size_t count = 1;
    while (count < most) {
      const size_t next = position + count;
      const Slot& here = slot(next);
      // The ring does not end within a group that begins at a multiple of its size.
      if (next % kGroup == 0 && most - count >= kGroup && has_turns(&here, next + offset)) {
        count += kGroup;
      } else if (here.turn.load(kLook) == next + offset) {  // sync[mpmc.slot]: as above
        ++count;
      } else {
        break;
      }
    }
    return count;
  }

  // Claims up to `most` consecutive positions of `index` whose slots have the turn position +
  // offset.
  Claim claim(RingSide& side, size_t offset, size_t most) noexcept {
    if (most == 0) return {0, 0};
    most = std::min(most, capacity());
    Backoff backoff;
    bool waited = false;
    size_t position = side.index.load(std::memory_order_relaxed);  // relaxed: the CAS checks it
    for (;;) {
      // sync[mpmc.slot]: acquire, the last user of the slot has left it
      const Slot& first = slot(position);
      const size_t turn = first.turn.load(kLook);
      const auto ahead = static_cast<intptr_t>(turn - (position + offset));
      if (ahead == 0) {
        const size_t count = most == 1 ? 1 : run_length(position, offset, most);
        // relaxed without doorbells: claiming orders nothing, the slot's turn does
        // sync[mpmc.head]: seq_cst with them, against drained()
        if (side.index.compare_exchange_weak(position, position + count, kClaim,
                                             std::memory_order_relaxed)) {
          return {position, count};
        }
        side.lost(backoff, position);
      } else if (ahead < 0) {
        // full (the item of one lap ago is still there), empty, or closed
        if (waited || !side.kept_distance(position, first.turn, turn, capacity() / most))
          return {0, 0};
        waited = true;
      }
      position = side.index.load(std::memory_order_relaxed);  // relaxed: as above
      if ((position & kClosedBit) != 0) return {0, 0};
    }
  }
  Claim claim_free(size_t most) noexcept { return claim(tail_side_, 0, most); }
  Claim claim_filled(size_t most) noexcept { return claim(head_side_, 1, most); }

  static void publish(Slot& slot, size_t turn) noexcept {
    // sync[mpmc.slot]: release, the work in the slot is done
    if constexpr (kBlocking) {
      slot.turn.exchange(turn, kPublish);
    } else {
      slot.turn.store(turn, kPublish);
    }
  }
  static void fill(Slot& slot, size_t turn, T&& value) noexcept {
    std::construct_at(slot.value(), std::move(value));
    publish(slot, turn);
  }
  static void take(Slot& slot, size_t turn, T& into) noexcept {
    into = std::move(*slot.value());
    std::destroy_at(slot.value());
    publish(slot, turn);
  }
  // A wake may have gone to a sleeper that could do nothing yet, since the position before was
  // claimed and not published. So a thread that takes or fills a position, and sees that the next
  // is ready too, wakes one more sleeper of its own side. If none sleeps: a load of a line that is
  // never written.
  template <typename Sleepers>
  void pass_on(Sleepers& own_side, size_t next, size_t offset) noexcept {
    // sync[mpmc.slot]: as in claim()
    if (own_side.waiters_were() != 0 && slot(next).turn.load(kLook) == next + offset) {
      own_side.wake_published();
    }
  }
  // `next`: the position after the `count` that were filled (emptied).
  void after_push(size_t next, size_t count) noexcept {
    if constexpr (kBlocking) {
      not_empty_.wake_published(static_cast<uint32_t>(count));
      pass_on(not_full_, next, 0);
    }
  }
  void after_pop(size_t next, size_t count) noexcept {
    if constexpr (kBlocking) {
      not_full_.wake_published(static_cast<uint32_t>(count));
      pass_on(not_empty_, next, 1);
      // The sleepers of a closed queue that has just become empty have no other thread to wake
      // them. sync[mpmc.closing]: seq_cst after the claim; a thread that reads false here leaves it
      // to close()'s wake
      if (closing_.load(std::memory_order_seq_cst) && drained()) not_empty_.wake_all();
    }
  }
  void end_run(size_t position, size_t count, bool filling) noexcept {
    const size_t turn = position + (filling ? 1 : capacity());
    from_last(position, count, [&](Slot& slot, size_t i) { publish(slot, turn + i); });
    if (count == 0) return;
    filling ? after_push(position + count, count) : after_pop(position + count, count);
  }
  bool closed_look() const noexcept {
    // sync[mpmc.tail]: seq_cst, the look of a thread that is about to sleep
    return (tail_side_.index.load(std::memory_order_seq_cst) & kClosedBit) != 0;
  }

  const size_t mask_;
  const RawSlots<Slot> slots_;
  std::atomic<bool> closing_{false};  // beside members that are never written
  RingSide tail_side_;
  RingSide head_side_;
  struct NoDoorbell {};
  using Bell = std::conditional_t<kBlocking, Doorbell, NoDoorbell>;
  alignas(kFalseSharingRange) Bell not_empty_;
  alignas(kFalseSharingRange) Bell not_full_;
};

// Members that are never written, the producers' side, the consumers' side and the bells are 128
// bytes apart.
static_assert(alignof(MpmcQueue<int>) == kFalseSharingRange);
static_assert(sizeof(MpmcQueue<int>) == 5 * kFalseSharingRange);
static_assert(sizeof(MpmcQueue<int, Padding::kNone, Waiting::kDoorbell>) == 5 * kFalseSharingRange);

}  // namespace lumen
