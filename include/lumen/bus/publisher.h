// Publisher: writes frames in place into the ring of a stream.
//
//   if (auto place = publisher.try_reserve(1024)) {
//     fill(place.bytes);
//     publisher.commit(1024, kType);      // not seen by subscribers yet, no bell
//   }
//   publisher.flush();                    // all committed frames are published; sleeping subscribers are woken
//
// Threads: one at a time. Memory: none after it was made, except for a new subscriber.
// Errors: Outcome. A subscriber's words are checked; one that writes an impossible value is dropped
// and told so.
//
// Waiting for room spins, then sleeps, and reads the subscribers' words only: committed frames are
// published once before, and nothing of the subscribers' side is written or rung in that loop. A
// publisher that dies leaves at most frames that were not published; subscribers drain the others.
#pragma once

#include <lumen/base/backoff.h>
#include <lumen/base/check.h>
#include <lumen/base/idle_strategy.h>
#include <lumen/bus/frame.h>
#include <lumen/bus/peer.h>
#include <lumen/bus/stream_memory.h>

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lumen::bus {

// One subscriber, as the publisher has it, and those that a listener has accepted meanwhile:
// src/bus/subscriber_link.h.
struct SubscriberLink;
class PendingSubscribers;

class Publisher {
 public:
  struct [[nodiscard]] Place {
    Outcome outcome = Outcome::kNotNow;
    std::span<std::byte> bytes{};  // starts at a multiple of 64
    explicit operator bool() const noexcept { return outcome == Outcome::kOk; }
  };
  // `count` frames of one size, one behind the other, `stride` bytes apart.
  struct [[nodiscard]] Places {
    Outcome outcome = Outcome::kNotNow;
    std::byte* data = nullptr;
    size_t stride = 0;
    size_t count = 0;
    explicit operator bool() const noexcept { return outcome == Outcome::kOk; }
  };

  // Over one subscriber, for ever.
  Publisher(std::shared_ptr<PublisherMemory> memory, std::unique_ptr<SubscriberLink> link);
  // Over those that come and go. Without any, frames are dropped.
  Publisher(std::shared_ptr<PublisherMemory> memory, std::shared_ptr<PendingSubscribers> pending);
  Publisher(Publisher&&) noexcept;
  Publisher& operator=(Publisher&&) = delete;
  ~Publisher();  // publishes the committed frames

  // One at a time; the next one takes the place of one that was not committed.
  [[nodiscard]] Place try_reserve(size_t size) noexcept {
    const Places places = try_reserve_batch(size, 1);
    return {places.outcome, {places.data, places ? size : 0}};
  }
  // As many as there is room for, at most `most` and at least one.
  [[nodiscard]] Places try_reserve_batch(size_t size, size_t most) noexcept {
    const uint64_t stride = payload_bytes(size);
    if (!has_room(stride) || fork_count() != born_) [[unlikely]] {
      if (const Outcome outcome = make_room(stride); outcome != Outcome::kOk) return {outcome};
    }
    size_t count = 1;
    if (most > 1) {
      count = std::min<uint64_t>(most, frames_until_ - tail_frames_);
      if (stride != 0) count = std::min<uint64_t>(count, (bytes_until_ - tail_bytes_) / stride);
    }
    return {Outcome::kOk, payload_ + (tail_bytes_ & bytes_mask_), stride, count};
  }
  // Waits for room.
  [[nodiscard]] Place reserve(size_t size, uint64_t deadline_ns = UINT64_MAX) noexcept;
  [[nodiscard]] Places reserve_batch(size_t size, size_t most,
                                     uint64_t deadline_ns = UINT64_MAX) noexcept;

  // The frame at the reserved place; `size` at most the reserved one.
  void commit(size_t size, uint32_t type_id, uint64_t id = 0) noexcept {
    commit_batch(size, 1, type_id, id);
  }
  // The first `count` places that try_reserve_batch() gave.
  void commit_batch(size_t size, size_t count, uint32_t type_id, uint64_t id = 0) noexcept {
    const uint64_t stride = payload_bytes(size);
    LUMEN_DCHECK(frames_until_ - tail_frames_ >= count &&
                 bytes_until_ - tail_bytes_ >= stride * count);
    const uint64_t word = size | uint64_t{type_id} << 32;
    if (word != run_.size_and_type || id != run_.id) begin_run(word, id);
    tail_bytes_ += stride * count;
    tail_frames_ += count;
    fetch_ahead(stride, count);
  }
  // The reserved place is not sent. (Nothing to do: the next reservation takes it.)
  void abandon() noexcept {}
  // Subscribers see all that was committed; those that sleep are woken.
  void flush() noexcept;

  // For an event loop that lacks room, over one subscriber: after announce_sleep() and another look
  // by try_reserve() that finds none, bell() is readable once the subscriber has given some back.
  // end_sleep() once for each announcement.
  void announce_sleep() noexcept {
    bell().before_sleep();
    (void)sleep_.announce();
  }
  void end_sleep() noexcept { sleep_.wake_up(); }
  [[nodiscard]] Bell& bell() noexcept;

  // Copies `data` into a frame of its own and publishes it.
  Outcome send(std::span<const std::byte> data, uint32_t type_id, uint64_t id = 0,
               uint64_t deadline_ns = UINT64_MAX) noexcept;

  // Until so many are attached; kTimedOut, kInterrupted.
  Outcome wait_for_subscribers(size_t count, uint64_t deadline_ns = UINT64_MAX) noexcept;
  // kOk while frames reach somebody, or somebody may come.
  [[nodiscard]] Outcome state() noexcept;
  [[nodiscard]] size_t subscribers() const noexcept { return links_.size(); }
  [[nodiscard]] uint64_t published_frames() const noexcept { return published_frames_; }
  // How often it had to wait for room. Any thread.
  [[nodiscard]] uint64_t stalls() const noexcept {
    return memory_->page().stalls.load(std::memory_order_relaxed);  // relaxed: a statistic
  }
  [[nodiscard]] const Geometry& geometry() const noexcept { return memory_->geometry(); }
  // Frames that were committed and that the slowest subscriber has not given back, as last seen.
  [[nodiscard]] uint64_t unread_were() const noexcept {
    return tail_frames_ + memory_->geometry().slots - frames_until_;
  }

 private:
  // Committed frames that share a descriptor: those from `start` to tail_frames_.
  struct Run {
    uint64_t size_and_type = 0;  // as a descriptor's, without kIsRun
    uint64_t start = 0;          // between two that are written together: see tail_frames_
    uint64_t id = 0;
  };
  // The row of the type of the last run that has ended.
  struct Counted {
    TypeCounter* row = nullptr;
    uint32_t type_id = 0;
  };

  [[nodiscard]] bool has_room(uint64_t stride) const noexcept {
    return bytes_until_ - tail_bytes_ >= stride && frames_until_ != tail_frames_;
  }
  // The frame that is committed has another size, type or id than those before it. A call, since
  // inside the loop of a stream it cost frames that are alike 20 %.
  void begin_run(uint64_t size_and_type, uint64_t id) noexcept;
  void describe_run() noexcept;
  void end_run() noexcept;
  [[nodiscard]] TypeCounter* row_of(uint32_t type_id) noexcept;
  [[nodiscard]] TypeCounter* find_row(uint32_t type_id) noexcept;
  // The subscriber's core has the lines that are written next, from when it read them a lap ago.
  // They are asked for 8 frames early: frames of 1 KiB, near 58 M/s instead of 38 (16 early: 54,
  // 32: 46). Of frames of one line the processor asks early enough itself where cores are near:
  // asked for 16 early they went from 390 to 365, far from 74 to 95. always_inline: as a function
  // that only prefetches g++ 12 takes it for one without effect, and drops it.
  [[gnu::always_inline]] void fetch_ahead(uint64_t stride, uint64_t count) noexcept {
    constexpr uint64_t kFramesAhead = 8;
    if (!is_fetched(stride) || bytes_until_ - tail_bytes_ <= (kFramesAhead + 1) * stride) return;
    const uint64_t bytes = std::min(count, kFramesAhead) * stride;
    const uint64_t end = tail_bytes_ + (kFramesAhead + 1) * stride;
    const std::byte* next = payload_ + ((end - bytes) & bytes_mask_);
    for (uint64_t i = 0; i < bytes; i += kPayloadAlign) __builtin_prefetch(next + i, 1);
  }
  // has_room() was false: looks at the subscribers. kNotNow, or the cause that has ended the
  // stream.
  [[nodiscard]] Outcome make_room(uint64_t stride) noexcept;
  void look() noexcept;
  void look_at_peers() noexcept;
  [[nodiscard]] bool look_at(SubscriberLink& link) noexcept;
  void claim(uint64_t stride) noexcept;
  void renew_room() noexcept;
  Outcome wait_for_room(uint64_t stride, uint64_t deadline_ns) noexcept;
  Outcome sleep(uint64_t stride, uint64_t deadline_ns) noexcept;
  [[nodiscard]] uint64_t drop_holders(uint64_t stride, uint64_t now) noexcept;
  void publish() noexcept;
  void ring_all() noexcept;
  void attach_pending() noexcept;
  void attach(SubscriberLink& link) noexcept;
  void let_go_of_gone() noexcept;
  void take_rings_away() noexcept;
  void list_polls();
  void after_poll() noexcept;

  std::shared_ptr<PublisherMemory> memory_;
  Descriptor* descriptors_;
  std::byte* payload_;
  uint64_t bytes_mask_;
  uint64_t slots_mask_;
  // Two members that each frame changes are no neighbours: both would be written by one vector
  // store, whose way back into two registers takes longer than all else.
  uint64_t tail_frames_ = 0;  // committed
  uint64_t frames_until_;     // room as last seen: commit while tail_frames_ != frames_until_,
  uint64_t tail_bytes_ = 0;
  uint64_t bytes_until_;  // and tail_bytes_ + payload <= bytes_until_
  uint64_t published_frames_ = 0;
  uint64_t published_bytes_ = 0;
  Run run_;
  Counted counted_;

  std::vector<std::unique_ptr<SubscriberLink>> links_;
  std::shared_ptr<PendingSubscribers> pending_;  // nullptr: one subscriber, for ever
  uint32_t pending_version_ = 0;
  uint64_t room_frames_until_ = 0;  // given back by subscribers
  uint64_t room_bytes_until_ = 0;
  bool has_lapped_ = false;  // some subscriber does not hold back: of that room only claimed places
  uint64_t claimed_bytes_ = 0;
  uint64_t claimed_frames_ = 0;
  Outcome over_ = Outcome::kOk;
  const uint32_t born_ = fork_count();

  std::vector<pollfd> polls_;
  SleepWord sleep_;
  uint64_t stuck_at_ = 0;             // where it last lacked room
  uint64_t stalled_at_ = UINT64_MAX;  // the frame for which there is no room, since then
  uint64_t stalled_since_ns_ = 0;
  uint32_t empty_looks_ = 0;
  CoreDistance distance_ = start_core_distance();
  IdleStrategy idle_;
};

}  // namespace lumen::bus
