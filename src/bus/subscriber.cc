// The slow half of Subscriber: looking for frames, and sleeping until there are some.
// One thread at a time. Memory: none. Errors: Outcome.
#include <lumen/bus/subscriber.h>

#include <lumen/base/clock.h>

#include <utility>

#include "bus/distance.h"

namespace lumen::bus {
namespace {

// A program that never waits learns of a death after so many looks in a row that found nothing:
// under a millisecond, for one poll() of 0.5 us. A peer that has just sent a frame is alive; polls
// between frames once were the 99th percentile of a round trip.
constexpr uint32_t kLooksAPoll = 4096;

}  // namespace

Subscriber::Subscriber(SubscriberParts parts) noexcept
    : memory_(std::move(parts.memory)),
      cursor_(std::move(parts.cursor)),
      peer_(std::move(parts.peer)),
      bell_(std::move(parts.bell)),
      descriptors_(memory_->descriptors()),
      payload_(memory_->payload()),
      capacity_(memory_->geometry().capacity),
      slots_mask_(memory_->geometry().slots - 1),
      generation_(parts.generation),
      attached_(!parts.has_entry),
      sleep_(&cursor_->page().asleep),
      idle_(peer_->is_on_our_only_cpu() ? 0 : IdleStrategy::kMaxSpinNs) {
  if (parts.has_entry) entry_ = &memory_->page().subscribers[parts.entry];
}

Subscriber::Subscriber(Subscriber&& other) noexcept
    : Subscriber(SubscriberParts{std::move(other.memory_), std::move(other.cursor_),
                                 std::move(other.peer_), std::move(other.bell_), false, 0,
                                 other.generation_}) {
  entry_ = other.entry_;
  attached_ = other.attached_;
  put_back(other.mark());
  tail_seen_ = other.tail_seen_;
  // relaxed, both: a move has one thread
  head_frames_.store(other.head().frames, std::memory_order_relaxed);
  head_bytes_.store(other.head().bytes, std::memory_order_relaxed);  // relaxed: as above
  sleep_ = other.sleep_;
  stuck_at_ = other.stuck_at_;
}

// Whether `least` frames are there that were not taken; renews the last seen positions.
bool Subscriber::look_for(uint64_t least) noexcept {
  if (fork_count() != born_ || peer_->state() == Outcome::kInvalid) return false;
  look();
  if (ready() >= least) return true;
  const uint64_t burst = taken_frames_ - std::exchange(stuck_at_, taken_frames_);
  if (burst != 0) empty_looks_ = 0;
  if (least == 1 && bus::keep_distance(distance_, burst)) {
    if (distance_.is_sampled()) {
      const uint64_t ns = time_of([&] { look(); });
      if (ready() != 0) distance_.took(ns);
    } else {
      look();
    }
    if (ready() != 0) return true;
  }
  if (++empty_looks_ % kLooksAPoll == 0) (void)peer_->look();
  return false;
}

void Subscriber::look() noexcept {
  if (!attached_ && !attach()) return;
  // sync[bus.tail]: acquire of the frames; seq_cst, it may be the look of a thread about to sleep.
  // Loaded once: the value that is checked is the value that is used.
  const uint64_t tail = memory_->page().tail_frames.load(std::memory_order_seq_cst);
  if (entry_ != nullptr) {
    // sync[bus.attached]: acquire; the publisher goes on over the places that a dropped one holds,
    // so this comes before the check of its tail
    const uint64_t state = entry_->state.load(std::memory_order_acquire);
    if (static_cast<uint32_t>(state) != static_cast<uint32_t>(Attachment::kAttached) ||
        state >> 32 != generation_) {
      (void)peer_->look();
      tail_seen_ = taken_frames_;
      return;
    }
  }
  const bool possible =
      tail - tail_seen_ <= slots_mask_ + 1 && tail - head().frames <= slots_mask_ + 1;
  if (!possible) [[unlikely]] {
    invalid();
    return;
  }
  tail_seen_ = tail;
}

// True once the publisher has said where this subscriber begins.
bool Subscriber::attach() noexcept {
  // sync[bus.attached]: acquire of the start
  const uint64_t state = entry_->state.load(std::memory_order_seq_cst);
  if (static_cast<uint32_t>(state) != static_cast<uint32_t>(Attachment::kAttached) ||
      state >> 32 != generation_) {
    return false;
  }
  // relaxed, both: the state was acquired
  taken_frames_ = entry_->start_frames.load(std::memory_order_relaxed);
  taken_bytes_ = entry_->start_bytes.load(std::memory_order_relaxed) &  // relaxed: as above
                 ~uint64_t{kPayloadAlign - 1};
  tail_seen_ = taken_frames_;
  run_.end = taken_frames_;
  stuck_at_ = taken_frames_;
  attached_ = true;
  release();
  return true;
}

void Subscriber::invalid() noexcept {
  peer_->quarantine();
  tail_seen_ = taken_frames_;
}

// The run that begins with the next frame, which is there. False: it can't be, and the publisher is
// left.
bool Subscriber::begin_run() noexcept {
  const Descriptor& first = descriptors_[taken_frames_ & slots_mask_];
  // relaxed, all: after the look that acquired them; each is loaded once, checked and used
  const uint64_t word = first.size_and_type.load(std::memory_order_relaxed);
  const uint64_t id = first.id.load(std::memory_order_relaxed);  // relaxed: as above
  uint64_t count = 1;
  if ((word & kIsRun) != 0) {
    const Descriptor& second = descriptors_[(taken_frames_ + 1) & slots_mask_];
    count = second.size_and_type.load(std::memory_order_relaxed);  // relaxed: as above
  }
  // A publication ends a run, so that all its frames are there. The product does not overflow:
  // its factors are at most 2^20 and 2^31.
  const bool possible = count != 0 && count <= ready() &&
                        count * payload_bytes(word & kMostSize) <= capacity_ - held_bytes();
  if (!possible) {
    invalid();
    return false;
  }
  run_ = {taken_frames_ + count, id, word & ~kIsRun};
  return true;
}

Batch Subscriber::try_take_batch(size_t most, size_t most_bytes) noexcept {
  if (ready() < most || entry_ != nullptr) (void)look_for(1);
  uint64_t left = std::min<uint64_t>(ready(), most);
  if (left == 0 || (taken_frames_ == run_.end && !begin_run())) return {};
  Batch batch{payload_ + (taken_bytes_ & (capacity_ - 1)), 0, payload_bytes(run_.size()),
              run_.size(), run_.type_id()};
  if (batch.stride != 0) left = std::min(left, std::max<uint64_t>(1, most_bytes / batch.stride));
  do {
    const uint64_t count = std::min(left, run_.end - taken_frames_);
    taken_frames_ += count;
    taken_bytes_ += count * batch.stride;
    batch.count += count;
    left -= count;
  } while (left != 0 && begin_run() && run_.size() == batch.size &&
           run_.type_id() == batch.type_id);
  return batch;
}

// The publisher sleeps for want of room and has looked since this side has last given some back.
// Where others share the publisher it may be they that hold it back, and it drops them in time.
bool Subscriber::is_stuck() const noexcept {
  if (entry_ != nullptr || (ready() == 0 && held_frames() == 0)) return false;
  const PublisherPage& page = memory_->page();
  const uint64_t asleep = page.asleep.load(std::memory_order_seq_cst);  // sync[bus.asleep]
  // sync[bus.stuck]: acquire of the look that found none
  const uint64_t stuck = page.stuck_for.load(std::memory_order_seq_cst);
  return (asleep & 1) != 0 && asleep == stuck && !bell_.has_rung_for(asleep);
}

Outcome Subscriber::state() noexcept {
  if (fork_count() != born_) return Outcome::kForked;
  if (peer_->look() == Outcome::kOk) return Outcome::kOk;
  if (peer_->state() != Outcome::kInvalid) look();  // its last publication
  return ready() != 0 && peer_->state() != Outcome::kDropped ? Outcome::kOk : peer_->state();
}

Outcome Subscriber::wait(uint64_t deadline_ns, uint64_t least) noexcept {
  least = std::max<uint64_t>(least, 1);
  for (;;) {
    if (fork_count() != born_) return Outcome::kForked;
    if ((ready() >= least && entry_ == nullptr) || look_for(least)) {
      idle_.found();
      return Outcome::kOk;
    }
    if (peer_->state() != Outcome::kOk) {
      if (const Outcome over = state(); over != Outcome::kOk) return over;
      return Outcome::kOk;  // fewer than asked for, and no more will come
    }
    if (idle_.idle() != IdleStrategy::Step::kPark) continue;
    if (is_stuck()) {
      if (look_for(least) || ready() != 0) return Outcome::kOk;
      return Outcome::kHeld;
    }
    if (deadline_ns != UINT64_MAX && now_ns() >= deadline_ns) return Outcome::kTimedOut;
    if (const Outcome slept = sleep(deadline_ns, least); slept != Outcome::kOk) return slept;
  }
}

Outcome Subscriber::sleep(uint64_t deadline_ns, uint64_t least) noexcept {
  announce_sleep();
  if (look_for(least) || is_stuck()) {
    sleep_.wake_up();
    return Outcome::kOk;
  }
  std::array<pollfd, 3> fds = polls();
  idle_.parking();
  const Woken woken = sleep_on(fds, deadline_ns);
  idle_.unparked();
  sleep_.wake_up();
  if (fds[0].revents != 0) bell_.found_rung();
  if ((fds[1].revents | fds[2].revents) != 0) (void)peer_->look();
  return woken == Woken::kInterrupted ? Outcome::kInterrupted : Outcome::kOk;
}

}  // namespace lumen::bus
