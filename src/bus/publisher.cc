// The slow half of Publisher: looking for room, sleeping, subscribers that come and go.
// One thread at a time. Memory: when a subscriber is attached. Errors: Outcome.
#include <lumen/bus/publisher.h>

#include <lumen/base/clock.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bus/distance.h"
#include "bus/subscriber_link.h"

namespace lumen::bus {
namespace {

// How far ahead room is claimed from subscribers that are lapped: a part of the ring, so that a
// claim, a locked store, is made once for many frames.
constexpr uint64_t kClaimsARing = 16;
// A program that never waits learns of a death after so many looks in a row that found nothing:
// under a millisecond, for one poll() of 0.5 us.
constexpr uint32_t kLooksAPoll = 4096;

// Where the row of a type is looked for first. Knuth 6.4
size_t first_row(uint32_t type_id) noexcept {
  return uint64_t{type_id * 0x9e3779b1u} * (kCountedTypes - 1) >> 32;
}

}  // namespace

Publisher::Publisher(std::shared_ptr<PublisherMemory> memory, std::unique_ptr<SubscriberLink> link)
    : Publisher(std::move(memory), std::shared_ptr<PendingSubscribers>()) {
  attach(*link);
  links_.push_back(std::move(link));
  look();
}

Publisher::Publisher(std::shared_ptr<PublisherMemory> memory,
                     std::shared_ptr<PendingSubscribers> pending)
    : memory_(std::move(memory)),
      descriptors_(memory_->descriptors()),
      payload_(memory_->payload()),
      bytes_mask_(memory_->geometry().capacity - 1),
      slots_mask_(memory_->geometry().slots - 1),
      frames_until_(memory_->geometry().slots),
      bytes_until_(memory_->geometry().capacity),
      pending_(std::move(pending)),
      sleep_(&memory_->page().asleep) {
  counted_.row = find_row(0);
}

Publisher::Publisher(Publisher&&) noexcept = default;

Publisher::~Publisher() {
  if (memory_ != nullptr) flush();  // nullptr: moved from
}

Bell& Publisher::bell() noexcept { return links_.front()->bell; }

Publisher::Place Publisher::reserve(size_t size, uint64_t deadline_ns) noexcept {
  const Places places = reserve_batch(size, 1, deadline_ns);
  return {places.outcome, {places.data, places ? size : 0}};
}

Publisher::Places Publisher::reserve_batch(size_t size, size_t most,
                                           uint64_t deadline_ns) noexcept {
  const Places places = try_reserve_batch(size, most);
  if (places.outcome != Outcome::kNotNow) return places;
  if (const Outcome waited = wait_for_room(payload_bytes(size), deadline_ns);
      waited != Outcome::kOk) {
    return {waited};
  }
  return try_reserve_batch(size, most);
}

Outcome Publisher::send(std::span<const std::byte> data, uint32_t type_id, uint64_t id,
                        uint64_t deadline_ns) noexcept {
  const Place place = reserve(data.size(), deadline_ns);
  if (!place) return place.outcome;
  if (!data.empty()) std::memcpy(place.bytes.data(), data.data(), data.size());
  commit(data.size(), type_id, id);
  flush();
  return Outcome::kOk;
}

void Publisher::flush() noexcept {
  if (published_frames_ == tail_frames_ || fork_count() != born_) return;
  if (pending_ != nullptr && pending_->version() != pending_version_) attach_pending();
  publish();
  ring_all();
}

// Writes the descriptor of the run that flush() publishes, or that another follows.
inline void Publisher::describe_run() noexcept {
  const uint64_t count = tail_frames_ - run_.start;
  if (count == 0) return;
  Descriptor& first = descriptors_[run_.start & slots_mask_];
  const uint64_t is_run = count == 1 ? 0 : kIsRun;
  // relaxed, all: publish() publishes them
  first.size_and_type.store(run_.size_and_type | is_run, std::memory_order_relaxed);
  first.id.store(run_.id, std::memory_order_relaxed);  // relaxed: as above
  if (count == 1) return;
  Descriptor& second = descriptors_[(run_.start + 1) & slots_mask_];
  second.size_and_type.store(count, std::memory_order_relaxed);  // relaxed: as above
}

inline TypeCounter* Publisher::row_of(uint32_t type_id) noexcept {
  TypeCounter* row = &memory_->page().types[first_row(type_id)];
  // relaxed: a statistic that this thread alone writes
  const uint64_t key = row->key.load(std::memory_order_relaxed);
  return key == (kUsedRow | type_id) ? row : find_row(type_id);
}

// After describe_run(): the next run begins at tail_frames_, with the same size, type and id until
// a frame of others is committed.
inline void Publisher::end_run() noexcept {
  const uint64_t count = tail_frames_ - run_.start;
  run_.start = tail_frames_;
  const auto type_id = static_cast<uint32_t>(run_.size_and_type >> 32);
  if (type_id != counted_.type_id) counted_ = {row_of(type_id), type_id};
  TypeCounter& row = *counted_.row;
  // relaxed, all: statistics that this thread alone writes
  const uint64_t frames = row.frames.load(std::memory_order_relaxed);
  const uint64_t bytes = row.bytes.load(std::memory_order_relaxed);  // relaxed: as above
  row.frames.store(frames + count, std::memory_order_relaxed);       // relaxed: as above
  // relaxed: as above
  row.bytes.store(bytes + count * (run_.size_and_type & kMostSize), std::memory_order_relaxed);
}

void Publisher::begin_run(uint64_t size_and_type, uint64_t id) noexcept {
  if (tail_frames_ != run_.start) {  // else, after a flush, there is no run to end
    describe_run();
    end_run();
    // As fetch_ahead(), of the descriptor and of a frame of one line. Frames of 32 bytes with types
    // in turns: far 67 M/s instead of 38, near 170 instead of 175.
    constexpr uint64_t kFramesAhead = 16;
    __builtin_prefetch(&descriptors_[(tail_frames_ + kFramesAhead) & slots_mask_], 1);
    const uint64_t ahead = tail_bytes_ + kFramesAhead * kPayloadAlign;
    if (ahead < bytes_until_) __builtin_prefetch(payload_ + (ahead & bytes_mask_), 1);
  }
  run_.size_and_type = size_and_type;
  run_.id = id;
}

void Publisher::publish() noexcept {
  PublisherPage& page = memory_->page();
  describe_run();
  page.tail_bytes.store(tail_bytes_,
                        std::memory_order_relaxed);  // relaxed: published by the next one
  // sync[bus.tail]: release of the frames to the subscribers' look; seq_cst against their
  // announcement
  page.tail_frames.exchange(tail_frames_, std::memory_order_seq_cst);
  if (has_lapped_) {
    // sync[bus.settled]: release, read before tail_frames by a subscriber that was lapped
    page.settled_bytes.store(tail_bytes_, std::memory_order_release);
  }
  published_frames_ = tail_frames_;
  published_bytes_ = tail_bytes_;
  end_run();
}

void Publisher::ring_all() noexcept {
  for (const auto& link : links_) {
    // sync[bus.asleep]: seq_cst, after the publication
    link->bell.ring(link->cursor->page().asleep.load(std::memory_order_seq_cst));
  }
}

Outcome Publisher::make_room(uint64_t stride) noexcept {
  if (fork_count() != born_) return Outcome::kForked;
  if (stride > memory_->geometry().capacity) return Outcome::kTooLarge;
  look();
  const uint64_t burst = tail_frames_ - std::exchange(stuck_at_, tail_frames_);
  if (burst != 0) empty_looks_ = 0;
  // After a burst the subscribers get some lines ahead before they are looked at again.
  if (!has_room(stride) && bus::keep_distance(distance_, burst)) {
    if (distance_.is_sampled()) {
      const uint64_t ns = time_of([&] { look(); });
      if (has_room(stride)) distance_.took(ns);
    } else {
      look();
    }
  }
  if (has_lapped_ && !has_room(stride)) claim(stride);
  if (over_ == Outcome::kOk && has_room(stride)) return Outcome::kOk;
  if (over_ == Outcome::kOk && stalled_at_ != tail_frames_) {
    stalled_at_ = tail_frames_;
    stalled_since_ns_ = now_ns();
  }
  if (++empty_looks_ % kLooksAPoll == 0) {
    (void)drop_holders(stride, now_ns());
    look_at_peers();
  }
  return over_ != Outcome::kOk ? over_ : Outcome::kNotNow;
}

// The places that all subscribers that hold it back have given back. Without one: the published
// end, since the next subscriber begins there.
void Publisher::look() noexcept {
  if (pending_ != nullptr && pending_->version() != pending_version_) attach_pending();
  uint64_t least_bytes = published_bytes_;
  uint64_t least_frames = published_frames_;
  bool some_gone = false;
  for (const auto& link : links_) {
    if (link->peer->state() != Outcome::kOk || !look_at(*link)) {
      some_gone = true;
    } else if (link->holds_back) {
      least_bytes = std::min(least_bytes, link->head_bytes);
      least_frames = std::min(least_frames, link->head_frames);
    }
  }
  if (some_gone) let_go_of_gone();
  const bool is_over = over_ != Outcome::kOk;  // no room any more
  room_bytes_until_ = is_over ? tail_bytes_ : least_bytes + memory_->geometry().capacity;
  room_frames_until_ = is_over ? tail_frames_ : least_frames + memory_->geometry().slots;
  renew_room();
}

void Publisher::renew_room() noexcept {
  bytes_until_ = room_bytes_until_;
  frames_until_ = room_frames_until_;
  if (!has_lapped_) return;
  bytes_until_ = std::clamp(claimed_bytes_, tail_bytes_, bytes_until_);
  frames_until_ = std::clamp(claimed_frames_, tail_frames_, frames_until_);
}

// False: it says an impossible value.
bool Publisher::look_at(SubscriberLink& link) noexcept {
  const CursorPage& page = link.cursor->page();
  // sync[bus.head]: acquire of the places; seq_cst, it may be the look of a thread about to sleep.
  // Each word is loaded once: the value that is checked is the value that is used.
  const uint64_t bytes = page.head_bytes.load(std::memory_order_seq_cst);
  // sync[bus.head_frames]: acquire of the descriptors
  const uint64_t frames = page.head_frames.load(std::memory_order_acquire);
  if (!link.has_moved) {
    // It has not seen its start yet, or its second word is still to come.
    if (bytes == 0 && (frames == 0 || link.head_bytes != 0)) return true;
    link.has_moved = true;
  }
  const bool possible = bytes - link.head_bytes <= published_bytes_ - link.head_bytes &&
                        frames - link.head_frames <= published_frames_ - link.head_frames &&
                        bytes % kPayloadAlign == 0;
  if (!possible && link.holds_back) {
    link.peer->quarantine();
    return false;
  }
  link.head_bytes = bytes;
  link.head_frames = frames;
  return true;
}

// Some more of the room, so that lapped subscribers know the bytes that they may not read any more.
void Publisher::claim(uint64_t stride) noexcept {
  const Geometry& geometry = memory_->geometry();
  if (room_bytes_until_ - tail_bytes_ < stride || room_frames_until_ == tail_frames_) return;
  claimed_bytes_ =
      std::min(room_bytes_until_, tail_bytes_ + std::max(stride, geometry.capacity / kClaimsARing));
  claimed_frames_ = std::min(room_frames_until_,
                             tail_frames_ + std::max<uint64_t>(1, geometry.slots / kClaimsARing));
  PublisherPage& page = memory_->page();
  // sync[bus.claimed]: before the frames are written; acquire keeps those writes behind it
  page.claimed_frames.exchange(claimed_frames_, std::memory_order_seq_cst);
  page.claimed_bytes.exchange(claimed_bytes_, std::memory_order_seq_cst);  // sync[bus.claimed]
  renew_room();
}

void Publisher::look_at_peers() noexcept {
  for (const auto& link : links_) (void)link->peer->look();
  look();
}

Outcome Publisher::wait_for_room(uint64_t stride, uint64_t deadline_ns) noexcept {
  if (fork_count() != born_) return Outcome::kForked;
  flush();  // once: no subscriber gives room for frames that it can't see
  PublisherPage& page = memory_->page();
  page.stalls.store(stalls() + 1, std::memory_order_relaxed);  // relaxed: a statistic
  for (;;) {
    const Outcome outcome = make_room(stride);
    if (outcome != Outcome::kNotNow) {
      idle_.found();
      return outcome;
    }
    if (idle_.idle() != IdleStrategy::Step::kPark) continue;
    const uint64_t now = now_ns();
    const uint64_t drop_at = drop_holders(stride, now);
    if (now >= deadline_ns) return Outcome::kTimedOut;
    if (const Outcome slept = sleep(stride, std::min(deadline_ns, drop_at)); slept != Outcome::kOk)
      return slept;
  }
}

// Announces itself, looks once more, and sleeps until somebody rings or is gone.
Outcome Publisher::sleep(uint64_t stride, uint64_t deadline_ns) noexcept {
  take_rings_away();
  const uint64_t word = sleep_.announce();
  const Outcome outcome = make_room(stride);
  if (outcome != Outcome::kNotNow) {
    sleep_.wake_up();
    return Outcome::kOk;  // the caller looks again and finds the cause
  }
  // sync[bus.stuck]: release; a subscriber that holds frames and waits for more finds that none
  // will come
  memory_->page().stuck_for.store(word, std::memory_order_seq_cst);
  ring_all();
  list_polls();
  idle_.parking();
  const Woken woken = sleep_on(polls_, deadline_ns);
  idle_.unparked();
  sleep_.wake_up();
  after_poll();
  return woken == Woken::kInterrupted ? Outcome::kInterrupted : Outcome::kOk;
}

// Subscribers for whose sake there is no room, for longer than they may, are dropped. When to look
// again.
uint64_t Publisher::drop_holders(uint64_t stride, uint64_t now) noexcept {
  PublisherPage& page = memory_->page();
  const Geometry& geometry = memory_->geometry();
  uint64_t next = UINT64_MAX;
  for (const auto& link : links_) {
    if (!link->holds_back || link->max_hold_ns == UINT64_MAX) continue;
    const bool holds = tail_bytes_ + stride - link->head_bytes > geometry.capacity ||
                       tail_frames_ - link->head_frames == geometry.slots;
    if (!holds) continue;
    const uint64_t until = stalled_since_ns_ + link->max_hold_ns;
    if (now < until) {
      next = std::min(next, until);
      continue;
    }
    link->peer->close(Goodbye::kDropped);
    // sync[bus.attached]: release; the subscriber sees it before the ring is written on
    page.subscribers[link->entry].state.store(
        uint64_t{link->generation} << 32 | static_cast<uint32_t>(Attachment::kDropped),
        std::memory_order_seq_cst);
    // relaxed: a statistic, written by this thread alone
    page.dropped.store(page.dropped.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  return next;
}

void Publisher::attach_pending() noexcept {
  pending_version_ = pending_->version();
  for (auto& link : pending_->take()) {
    attach(*link);
    links_.push_back(std::move(link));
  }
  let_go_of_gone();
}

// It begins with the next frame that is published.
void Publisher::attach(SubscriberLink& link) noexcept {
  if (link.peer->is_on_our_only_cpu()) idle_ = IdleStrategy(0);
  link.head_bytes = published_bytes_;
  link.head_frames = published_frames_;
  if (!link.holds_back) {
    has_lapped_ = true;
    renew_room();  // from here on nothing is written that is not claimed
    // sync[bus.settled]: as in publish()
    memory_->page().settled_bytes.store(published_bytes_, std::memory_order_release);
  }
  SubscriberEntry& entry = memory_->page().subscribers[link.entry];
  entry.start_frames.store(published_frames_, std::memory_order_relaxed);  // relaxed: see state
  entry.start_bytes.store(published_bytes_, std::memory_order_relaxed);    // relaxed: see state
  // sync[bus.attached]: release of the start
  entry.state.store(uint64_t{link.generation} << 32 | static_cast<uint32_t>(Attachment::kAttached),
                    std::memory_order_seq_cst);
  // sync[bus.asleep]: seq_cst, after the entry was published
  link.bell.ring(link.cursor->page().asleep.load(std::memory_order_seq_cst));
}

void Publisher::let_go_of_gone() noexcept {
  if (pending_ == nullptr) {
    over_ = links_.empty() ? over_ : links_.front()->peer->state();
    return;
  }
  std::erase_if(links_, [](const auto& link) { return link->peer->state() != Outcome::kOk; });
  has_lapped_ =
      std::any_of(links_.begin(), links_.end(), [](const auto& link) { return !link->holds_back; });
}

// For the descriptors of list_polls(), in the same order.
void Publisher::after_poll() noexcept {
  size_t at = 0;
  if (pending_ != nullptr && polls_[at++].revents != 0) pending_->drain();
  for (const auto& link : links_) {
    if (polls_[at].revents != 0) link->bell.found_rung();
    if ((polls_[at + 1].revents | polls_[at + 2].revents) != 0) (void)link->peer->look();
    at += 3;
  }
}

void Publisher::take_rings_away() noexcept {
  for (const auto& link : links_) link->bell.before_sleep();
}

void Publisher::list_polls() {
  polls_.clear();
  if (pending_ != nullptr) polls_.push_back(pending_->poll());
  for (const auto& link : links_) {
    polls_.push_back(link->bell.poll());
    polls_.push_back(link->peer->connection_poll());
    polls_.push_back(link->peer->process_poll());
  }
}

Outcome Publisher::wait_for_subscribers(size_t count, uint64_t deadline_ns) noexcept {
  while (links_.size() < count) {
    if (fork_count() != born_) return Outcome::kForked;
    if (over_ != Outcome::kOk) return over_;
    look();
    if (links_.size() >= count) break;
    take_rings_away();
    list_polls();
    const Woken woken = sleep_on(polls_, deadline_ns);
    if (woken == Woken::kInterrupted) return Outcome::kInterrupted;
    if (woken == Woken::kTimedOut) return Outcome::kTimedOut;
    after_poll();
  }
  return Outcome::kOk;
}

Outcome Publisher::state() noexcept {
  if (fork_count() != born_) return Outcome::kForked;
  look_at_peers();
  return over_;
}

// The row of `type_id`; the last one for all types that found none.
TypeCounter* Publisher::find_row(uint32_t type_id) noexcept {
  constexpr size_t kLast = kCountedTypes - 1;
  auto& rows = memory_->page().types;
  size_t row = first_row(type_id);
  for (size_t looked = 0;; ++looked, row = (row + 1) % kLast) {
    // relaxed: a statistic that this thread alone writes
    const uint64_t key = rows[row].key.load(std::memory_order_relaxed);
    if (key == 0 || key == (kUsedRow | type_id)) break;
    if (looked == kLast) {
      row = kLast;
      break;
    }
  }
  // relaxed: as above
  rows[row].key.store(row == kLast ? kUsedRow : kUsedRow | type_id, std::memory_order_relaxed);
  return &rows[row];
}

}  // namespace lumen::bus
