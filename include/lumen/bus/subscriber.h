// Subscriber: reads frames where they lie, and gives them back together.
//
//   while (subscriber.wait() == Outcome::kOk) {
//     while (auto frame = subscriber.try_take()) use(frame->data);   // a view of the ring
//     subscriber.release();                                          // of all taken frames
//   }
//
// LossySubscriber: one that never holds the publisher back; it copies, and counts the frames that
// it has missed.
//
// Threads: one at a time; release_to() may be called by another than the one that takes and waits.
// Memory: none after it was made. Errors: Outcome. Each word of the publisher's is loaded once and
// checked; a publisher that writes an impossible value is dropped (kInvalid). Payload can change
// while it is read, if the publisher breaks its word: then it is wrong, never out of bounds.
// A subscriber that dies holds the publisher back until the kernel tells of it, which is at once.
#pragma once

#include <lumen/base/backoff.h>
#include <lumen/base/check.h>
#include <lumen/base/idle_strategy.h>
#include <lumen/bus/frame.h>
#include <lumen/bus/peer.h>
#include <lumen/bus/stream_memory.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>

namespace lumen::bus {

// Where a subscriber is in its stream.
struct Position {
  uint64_t frames = 0;
  uint64_t bytes = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

// Frames of one size, type and id that share a descriptor (layout.h).
struct Run {
  uint64_t end = 0;  // the number of the frame after the last
  uint64_t id = 0;
  uint64_t size_and_type = 0;  // as a descriptor's, without kIsRun
  [[nodiscard]] uint32_t size() const noexcept { return static_cast<uint32_t>(size_and_type); }
  [[nodiscard]] uint32_t type_id() const noexcept {
    return static_cast<uint32_t>(size_and_type >> 32);
  }
};

// Frames of one size and type, `stride` bytes apart.
struct Batch {
  const std::byte* data = nullptr;
  size_t count = 0;
  size_t stride = 0;
  uint32_t size = 0;
  uint32_t type_id = 0;
};

// The parts of a subscriber.
struct SubscriberParts {
  std::shared_ptr<PublisherMemory> memory;
  std::shared_ptr<CursorMemory> cursor;
  std::shared_ptr<Peer> peer;
  Bell bell;
  // Its entry in the publisher's page, where several share one publisher.
  bool has_entry = false;
  uint32_t entry = 0;
  uint32_t generation = 0;
};

class Subscriber {
 public:
  explicit Subscriber(SubscriberParts parts) noexcept;
  Subscriber(Subscriber&& other) noexcept;
  Subscriber& operator=(Subscriber&&) = delete;

  // The next frame, if one is there; state() says why not.
  [[nodiscard]] std::optional<Frame> try_take() noexcept {
    if ((taken_frames_ == tail_seen_ || entry_ != nullptr) && !look_for(1)) return std::nullopt;
    return take();
  }
  // As many as are there and fit into `frames`: where several subscribers share a publisher, which
  // may have dropped this one, a look for all of them instead of one a frame.
  [[nodiscard]] size_t try_take(std::span<Frame> frames) noexcept {
    if (ready() < frames.size() || entry_ != nullptr) (void)look_for(1);
    const size_t count = std::min<uint64_t>(frames.size(), tail_seen_ - taken_frames_);
    for (size_t i = 0; i < count; ++i) {
      const std::optional<Frame> frame = take();
      if (!frame) return i;
      frames[i] = *frame;
    }
    return count;
  }
  // As many as are there, up to where size or type changes; at most `most`, and of more than one at
  // most `most_bytes`. count 0: none.
  [[nodiscard]] Batch try_take_batch(size_t most, size_t most_bytes = SIZE_MAX) noexcept;

  // Frames are taken up to here. With release_to(): gives back all that was taken before that.
  [[nodiscard]] Position position() const noexcept { return {taken_frames_, taken_bytes_}; }
  void release_to(Position position) noexcept {
    if (fork_count() != born_ || position == head()) return;
    // relaxed, both: the publisher's use of it comes back by the tail, which is acquired
    head_frames_.store(position.frames, std::memory_order_relaxed);
    head_bytes_.store(position.bytes, std::memory_order_relaxed);  // relaxed: as above
    // sync[bus.head_frames]: release of the descriptors
    cursor_->page().head_frames.store(position.frames, std::memory_order_release);
    // sync[bus.head]: release of the places; seq_cst against the publisher's announcement
    cursor_->page().head_bytes.exchange(position.bytes, std::memory_order_seq_cst);
    // sync[bus.asleep]: seq_cst, after the positions that were given back
    bell_.ring(memory_->page().asleep.load(std::memory_order_seq_cst));
  }
  void release() noexcept { release_to(position()); }
  // put_back(): frames that were taken after mark() were not taken after all. None of them was
  // given back.
  struct Mark {
    Position position;
    Run run;
  };
  [[nodiscard]] Mark mark() const noexcept { return {position(), run_}; }
  void put_back(const Mark& mark) noexcept {
    taken_frames_ = mark.position.frames;
    taken_bytes_ = mark.position.bytes;
    run_ = mark.run;
  }

  // Until `least` frames are there that were not taken. kOk with fewer, but at least one, where no
  // more can come; kHeld: none can, since the publisher waits for room that this subscriber holds.
  Outcome wait(uint64_t deadline_ns = UINT64_MAX, uint64_t least = 1) noexcept;

  // Frames that are there and were not taken, as last seen.
  [[nodiscard]] uint64_t ready() const noexcept { return tail_seen_ - taken_frames_; }
  [[nodiscard]] uint64_t held_frames() const noexcept { return taken_frames_ - head().frames; }
  [[nodiscard]] uint64_t held_bytes() const noexcept { return taken_bytes_ - head().bytes; }
  // kOk while frames may come; looks at the other side.
  [[nodiscard]] Outcome state() noexcept;
  [[nodiscard]] const Geometry& geometry() const noexcept { return memory_->geometry(); }
  // As long as it lives, views stay readable, after the subscriber's end too.
  [[nodiscard]] std::shared_ptr<const void> memory() const noexcept { return memory_; }
  // Readable when the publisher has rung or is gone: for an event loop, which announces a sleep by
  // announce_sleep(), looks once more, and calls woken() after; or end_sleep(), where it drains the
  // bell only when that was readable.
  [[nodiscard]] std::array<pollfd, 3> polls() const noexcept {
    return {bell_.poll(), peer_->connection_poll(), peer_->process_poll()};
  }
  void announce_sleep() noexcept {
    bell_.before_sleep();
    (void)sleep_.announce();
  }
  // Whether frames that were not taken are there now.
  [[nodiscard]] bool look_now() noexcept { return look_for(1); }
  void end_sleep() noexcept { sleep_.wake_up(); }
  void woken() noexcept {
    end_sleep();
    bell_.drain();
  }
  [[nodiscard]] Bell& bell() noexcept { return bell_; }
  [[nodiscard]] const std::shared_ptr<Peer>& peer() const noexcept { return peer_; }

 private:
  // nullopt: it can't be, and the publisher is left.
  [[nodiscard, gnu::always_inline]] std::optional<Frame> take() noexcept {
    std::optional<Frame> frame;
    uint64_t word = run_.size_and_type;
    uint64_t id = run_.id;
    if (taken_frames_ == run_.end) {
      const Descriptor& next = descriptors_[taken_frames_ & slots_mask_];
      // relaxed, both: after the look that acquired them; each is loaded once, checked and used
      word = next.size_and_type.load(std::memory_order_relaxed);
      id = next.id.load(std::memory_order_relaxed);  // relaxed: as above
      if ((word & kIsRun) != 0) {
        if (!begin_run()) return frame;
        word = run_.size_and_type;
        id = run_.id;
      } else {
        // Only the end is kept: a round trip is 4 % longer with the other words, too.
        if (payload_bytes(word & kMostSize) > capacity_ - held_bytes()) [[unlikely]] {
          invalid();
          return frame;
        }
        run_.end = taken_frames_ + 1;
      }
    }
    const uint64_t size = word & kMostSize;
    frame.emplace(Frame{{payload_ + (taken_bytes_ & (capacity_ - 1)), size},
                        static_cast<uint32_t>(word >> 32),
                        id});
    ++taken_frames_;
    taken_bytes_ += payload_bytes(size);
    fetch_ahead(payload_bytes(size));
    return frame;
  }
  // The lines of the next frame but one, which the run says are there: frames of 1 KiB, near 58 M/s
  // instead of 53. always_inline: see Publisher::fetch_ahead().
  [[gnu::always_inline]] void fetch_ahead(uint64_t stride) const noexcept {
    if (!is_fetched(stride) || run_.end - taken_frames_ < 2) return;
    const std::byte* next = payload_ + ((taken_bytes_ + stride) & (capacity_ - 1));
    for (uint64_t i = 0; i < stride; i += kPayloadAlign) __builtin_prefetch(next + i);
  }
  [[nodiscard]] Position head() const noexcept {
    // relaxed, both: see release_to()
    return {head_frames_.load(std::memory_order_relaxed),
            head_bytes_.load(std::memory_order_relaxed)};  // relaxed: as above
  }
  [[nodiscard]] bool begin_run() noexcept;
  [[nodiscard]] bool look_for(uint64_t least) noexcept;
  void look() noexcept;
  [[nodiscard]] bool attach() noexcept;
  [[nodiscard]] bool is_stuck() const noexcept;
  void invalid() noexcept;
  Outcome sleep(uint64_t deadline_ns, uint64_t least) noexcept;

  std::shared_ptr<PublisherMemory> memory_;
  std::shared_ptr<CursorMemory> cursor_;
  std::shared_ptr<Peer> peer_;
  Bell bell_;
  const Descriptor* descriptors_;
  const std::byte* payload_;
  uint64_t capacity_;
  uint64_t slots_mask_;
  // Not a Position: two neighbours are written by one vector store, whose way back into two
  // registers took 4 ns a frame.
  uint64_t taken_frames_ = 0;
  uint64_t tail_seen_ = 0;
  uint64_t taken_bytes_ = 0;
  Run run_;  // its frames are there: run_.end <= tail_seen_
  // Given back. Atomic: see Threads.
  std::atomic<uint64_t> head_frames_{0};
  std::atomic<uint64_t> head_bytes_{0};

  const SubscriberEntry* entry_ = nullptr;  // nullptr: the only one, from the beginning
  uint32_t generation_ = 0;
  bool attached_ = true;
  const uint32_t born_ = fork_count();

  SleepWord sleep_;
  uint64_t stuck_at_ = 0;  // where it last found nothing
  uint32_t empty_looks_ = 0;
  CoreDistance distance_ = start_core_distance();
  IdleStrategy idle_;
};

class LossySubscriber {
 public:
  struct Read {
    uint64_t lost = 0;  // frames that were missed since the last read
    size_t size = 0;    // of the frame; more than the buffer: only its beginning was copied
    uint32_t type_id = 0;
    uint64_t id = 0;
  };
  explicit LossySubscriber(SubscriberParts parts) noexcept;
  LossySubscriber(LossySubscriber&&) noexcept = default;
  LossySubscriber& operator=(LossySubscriber&&) = delete;

  // Copies the next frame; once it was lapped, the next that is published. nullopt: state() says
  // why.
  [[nodiscard]] std::optional<Read> try_read(std::span<std::byte> into) noexcept;
  Outcome wait(uint64_t deadline_ns = UINT64_MAX) noexcept;
  [[nodiscard]] Outcome state() noexcept;
  [[nodiscard]] uint64_t lost() const noexcept { return lost_; }
  [[nodiscard]] const std::shared_ptr<Peer>& peer() const noexcept { return parts_.peer; }

 private:
  [[nodiscard]] bool attach() noexcept;
  [[nodiscard]] bool is_lapped(Position position) const noexcept;
  [[nodiscard]] Run next_run() const noexcept;
  void skip_to_newest() noexcept;
  [[nodiscard]] bool look() noexcept;

  SubscriberParts parts_;
  uint64_t capacity_;
  uint64_t slots_;
  Position next_;
  Run run_;
  uint64_t lost_ = 0;
  uint64_t told_lost_ = 0;
  bool attached_ = false;
  const uint32_t born_ = fork_count();
  SleepWord sleep_;
  uint32_t empty_looks_ = 0;
  IdleStrategy idle_;
};

}  // namespace lumen::bus
