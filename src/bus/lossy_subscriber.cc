// LossySubscriber: copies frames while the publisher goes on, and finds out after whether it was in
// time. One thread at a time. Memory: none. Errors: Outcome.
//
// The publisher says where it is going to write (claimed_bytes, claimed_frames) before it does. So:
// copy, then load the claims; bytes less than a ring behind them were whole when they were copied.
// As Linux's and Lamport's sequence locks do ("Concurrent reading and writing", CACM 1977), with a
// position as number.
#include <lumen/base/clock.h>
#include <lumen/bus/subscriber.h>

#include <cstring>
#include <utility>

namespace lumen::bus {
namespace {

constexpr uint32_t kLooksAPoll = 4096;  // as Subscriber's
// A publisher that laps a reader this often while it copies one frame is not one that it can
// follow.
constexpr int kTriesARead = 64;

// Word by word with acquire, so that later loads see later values; on x86 a plain load.
void copy_while_written(std::byte* to, const std::byte* from, size_t bytes) noexcept {
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    auto& word = *reinterpret_cast<const std::atomic<uint64_t>*>(from + at);
    const uint64_t value =
        word.load(std::memory_order_acquire);  // sync[bus.claimed]: before the claims
    std::memcpy(to + at, &value, sizeof(value));
  }
  if (at == bytes) return;
  // A frame's place is a multiple of 64 bytes, so the whole word is inside the ring.
  auto& word = *reinterpret_cast<const std::atomic<uint64_t>*>(from + at);
  const uint64_t value = word.load(std::memory_order_acquire);  // sync[bus.claimed]: as above
  std::memcpy(to + at, &value, bytes - at);
}

}  // namespace

LossySubscriber::LossySubscriber(SubscriberParts parts) noexcept
    : parts_(std::move(parts)),
      capacity_(parts_.memory->geometry().capacity),
      slots_(parts_.memory->geometry().slots),
      sleep_(&parts_.cursor->page().asleep),
      idle_(parts_.peer->is_on_our_only_cpu() ? 0 : IdleStrategy::kMaxSpinNs) {}

bool LossySubscriber::attach() noexcept {
  if (attached_) return true;
  const SubscriberEntry& entry = parts_.memory->page().subscribers[parts_.entry];
  // sync[bus.attached]: acquire of the start
  const uint64_t state = entry.state.load(std::memory_order_seq_cst);
  if (static_cast<uint32_t>(state) != static_cast<uint32_t>(Attachment::kAttached) ||
      state >> 32 != parts_.generation) {
    return false;
  }
  // relaxed, both: the state was acquired
  next_ = {entry.start_frames.load(std::memory_order_relaxed),
           entry.start_bytes.load(std::memory_order_relaxed)};  // relaxed: as above
  run_.end = next_.frames;
  attached_ = true;
  return true;
}

bool LossySubscriber::is_lapped(Position position) const noexcept {
  const PublisherPage& page = parts_.memory->page();
  // sync[bus.claimed]: acquire, after the copy
  const uint64_t bytes = page.claimed_bytes.load(std::memory_order_acquire);
  const uint64_t frames = page.claimed_frames.load(std::memory_order_acquire);  // sync[bus.claimed]
  const bool bytes_there = bytes <= position.bytes || bytes - position.bytes <= capacity_;
  const bool frame_there = frames <= position.frames || frames - position.frames <= slots_;
  return !bytes_there || !frame_there;
}

// To the next frame to be published: two words that belong together, read in the opposite order of
// their writing. A publisher that keeps changing them is tried again by the next call.
void LossySubscriber::skip_to_newest() noexcept {
  const PublisherPage& page = parts_.memory->page();
  for (int i = 0; i < kTriesARead; ++i) {
    const uint64_t after = page.settled_bytes.load(std::memory_order_acquire);  // sync[bus.settled]
    const uint64_t frames = page.tail_frames.load(std::memory_order_acquire);   // sync[bus.tail]
    const uint64_t before = page.tail_bytes.load(std::memory_order_acquire);    // sync[bus.tail]
    if (after != before) continue;
    lost_ += frames - next_.frames;
    next_ = {frames, before};
    run_.end = frames;  // each publication begins a run
    return;
  }
}

bool LossySubscriber::look() noexcept {
  if (fork_count() != born_ || parts_.peer->state() == Outcome::kInvalid || !attach()) return false;
  // sync[bus.tail]: acquire of the frames; seq_cst, it may be the look of a thread about to sleep
  const uint64_t tail = parts_.memory->page().tail_frames.load(std::memory_order_seq_cst);
  if (tail != next_.frames) return true;
  if (++empty_looks_ % kLooksAPoll == 0) (void)parts_.peer->look();
  return false;
}

// The run that begins with the next frame. Its words may have been written over.
Run LossySubscriber::next_run() const noexcept {
  const Descriptor* descriptors = parts_.memory->descriptors();
  const Descriptor& first = descriptors[next_.frames & (slots_ - 1)];
  // sync[bus.claimed]: acquire, all, before the claims are looked at
  const uint64_t word = first.size_and_type.load(std::memory_order_acquire);
  const uint64_t id = first.id.load(std::memory_order_acquire);  // sync[bus.claimed]: as above
  uint64_t count = 1;
  if ((word & kIsRun) != 0) {
    const Descriptor& second = descriptors[(next_.frames + 1) & (slots_ - 1)];
    // sync[bus.claimed]: as above
    count = second.size_and_type.load(std::memory_order_acquire);
  }
  return {next_.frames + count, id, word & ~kIsRun};
}

std::optional<LossySubscriber::Read> LossySubscriber::try_read(std::span<std::byte> into) noexcept {
  for (int i = 0; i < kTriesARead && look(); ++i) {
    const Run run = next_.frames == run_.end ? next_run() : run_;
    const size_t copied = std::min<uint64_t>({run.size(), into.size(), capacity_});
    const uint64_t offset = next_.bytes & (capacity_ - 1) & ~uint64_t{kPayloadAlign - 1};
    copy_while_written(into.data(), parts_.memory->payload() + offset, copied);
    if (is_lapped(next_)) {
      skip_to_newest();
      continue;
    }
    const uint64_t left = run.end - next_.frames;
    if (run.size() > capacity_ || left == 0 || left > slots_) {
      parts_.peer->quarantine();
      return std::nullopt;
    }
    run_ = run;
    ++next_.frames;
    next_.bytes += payload_bytes(run.size());
    parts_.cursor->page().lost.store(lost_, std::memory_order_relaxed);  // relaxed: a statistic
    return Read{lost_ - std::exchange(told_lost_, lost_), run.size(), run.type_id(), run.id};
  }
  return std::nullopt;
}

Outcome LossySubscriber::state() noexcept {
  if (fork_count() != born_) return Outcome::kForked;
  const Outcome over = parts_.peer->look();
  return over != Outcome::kOk && over != Outcome::kInvalid && look() ? Outcome::kOk : over;
}

Outcome LossySubscriber::wait(uint64_t deadline_ns) noexcept {
  for (;;) {
    if (fork_count() != born_) return Outcome::kForked;
    if (parts_.peer->state() != Outcome::kOk) return state();
    if (look()) {
      idle_.found();
      return Outcome::kOk;
    }
    if (idle_.idle() != IdleStrategy::Step::kPark) continue;
    if (deadline_ns != UINT64_MAX && now_ns() >= deadline_ns) return Outcome::kTimedOut;
    parts_.bell.before_sleep();
    sleep_.announce();
    std::array<pollfd, 3> fds = {parts_.bell.poll(), parts_.peer->connection_poll(),
                                 parts_.peer->process_poll()};
    if (!look()) {
      idle_.parking();
      const Woken woken = sleep_on(fds, deadline_ns);
      idle_.unparked();
      if (woken == Woken::kInterrupted) {
        sleep_.wake_up();
        return Outcome::kInterrupted;
      }
      if (fds[0].revents != 0) parts_.bell.found_rung();
      if ((fds[1].revents | fds[2].revents) != 0) (void)parts_.peer->look();
    }
    sleep_.wake_up();
  }
}

}  // namespace lumen::bus
