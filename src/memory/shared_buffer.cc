// SharedBuffer: creation, and how a full buffer is sealed and the next one opened.
// Threads: any. Memory: all in create(). Errors: create() with a Status; Room otherwise.
#include <lumen/memory/shared_buffer.h>

#include <lumen/base/clock.h>

#include <sched.h>

#include <algorithm>
#include <bit>

namespace lumen {
namespace {

// A closer needs a few ns from fetch_add to sealing, so look a while before parking: 64 pauses are
// 1.5 µs. Longer only helps where the closer was preempted, and then it needs our CPU.
constexpr int kPausesBeforeParking = 64;
constexpr uint64_t kPollFloorNs = 20'000;  // a wake-up costs about that much
constexpr uint64_t kPollCeilingNs = 1'000'000;
constexpr uint64_t kLastFlushNs = 1'000'000'000;

void pause() noexcept { __builtin_ia32_pause(); }

}  // namespace

SharedBuffer::SharedBuffer(const Options& options)
    : options_(options),
      asymmetric_(options.asymmetric_fence && asymmetric_fence_available()),
      slots_(std::make_unique<Slot[]>(options.buffer_count)),
      writers_(std::make_unique<WriterState[]>(options.max_writers)) {
  const size_t chunks =
      options.mode == Mode::kChunked ? options.buffer_bytes / options.chunk_bytes : size_t{0};
  for (size_t i = 0; i < options.buffer_count; ++i) {
    slots_[i].word.store(pack(i, 0), std::memory_order_relaxed);  // relaxed: not shared yet
    if (chunks != 0) slots_[i].chunk_used = std::make_unique<std::atomic<uint32_t>[]>(chunks);
  }
  records_.reserve(std::max(chunks, options.max_writers) + 1);
  holes_.reserve(options.max_writers);
}

Status SharedBuffer::check(const Options& o) {
  if (o.flush == nullptr) {
    return Status::error(Code::kInvalidArgument, "SharedBuffer: no flush function; give one");
  }
  if (o.buffer_bytes == 0 || o.buffer_bytes > kMaxBufferBytes) {
    return Status::error(Code::kInvalidArgument, "SharedBuffer: buffer_bytes %zu; 1 to %zu",
                         o.buffer_bytes, kMaxBufferBytes);
  }
  if (!std::has_single_bit(o.buffer_count) || o.buffer_count < 2 || o.buffer_count > kMaxBuffers) {
    return Status::error(Code::kInvalidArgument,
                         "SharedBuffer: buffer_count %zu; a power of two from 2 to %zu",
                         o.buffer_count, kMaxBuffers);
  }
  if (o.max_writers == 0 || o.max_writers > kMaxWriters) {
    return Status::error(Code::kInvalidArgument, "SharedBuffer: max_writers %zu; 1 to %zu",
                         o.max_writers, kMaxWriters);
  }
  if (o.mode == Mode::kChunked && (o.chunk_bytes == 0 || o.buffer_bytes % o.chunk_bytes != 0 ||
                                   o.buffer_bytes / o.chunk_bytes > kMaxChunks)) {
    return Status::error(Code::kInvalidArgument,
                         "SharedBuffer: chunk_bytes %zu; it divides buffer_bytes %zu into at most "
                         "%zu chunks",
                         o.chunk_bytes, o.buffer_bytes, kMaxChunks);
  }
  return {};
}

Result<std::unique_ptr<SharedBuffer>> SharedBuffer::create(const Options& options) {
  LUMEN_RETURN_IF_ERROR(check(options));
  // Prefault: the first lap would pay for a page fault every 4 KiB, 30 times the price of a record.
  Result<Mapping> mapping =
      Mapping::create(options.buffer_bytes * options.buffer_count, {.prefault = true});
  if (!mapping.ok()) return mapping.status();
  Result<std::unique_ptr<SharedBuffer>> buffer = create(options, mapping->bytes());
  if (buffer.ok()) (*buffer)->mapping_ = std::move(*mapping);
  return buffer;
}

Result<std::unique_ptr<SharedBuffer>> SharedBuffer::create(const Options& options,
                                                           std::span<std::byte> memory) {
  LUMEN_RETURN_IF_ERROR(check(options));
  if (memory.data() == nullptr || memory.size() / options.buffer_count < options.buffer_bytes) {
    return Status::error(Code::kInvalidArgument,
                         "SharedBuffer: %zu bytes of memory for %zu buffers of %zu; give %zu",
                         memory.size(), options.buffer_count, options.buffer_bytes,
                         options.buffer_count * options.buffer_bytes);
  }
  std::unique_ptr<SharedBuffer> buffer(new SharedBuffer(options));  // alloc: at start
  for (size_t i = 0; i < options.buffer_count; ++i) {
    buffer->slots_[i].data = memory.data() + i * options.buffer_bytes;
  }
  return buffer;
}

SharedBuffer::~SharedBuffer() {
  close();
  const uint64_t longest_ns = std::max(2 * options_.stall_timeout_ns, kLastFlushNs);
  (void)flush(now_ns() + longest_ns);
}

void SharedBuffer::seal_at(uint64_t sequence, uint64_t used) noexcept {
  uint64_t open = pack(sequence, 0);
  // sync[shared_buffer.slot]: seq_cst, `used` for the flusher; also the work that sealed_bell_
  // wakes for. It fails where the flusher has sealed in our place, and then knows `used` itself.
  slot_of(sequence).word.compare_exchange_strong(
      open, pack(sequence, used + 1), std::memory_order_seq_cst, std::memory_order_relaxed);
  (void)try_make_room(sequence);
  if (options_.flush_by_writers) {
    (void)flush_ready();
  } else {
    sealed_bell_.wake();
  }
}

// Moves `word_` from the full buffer `sequence` to the next free slot. Any thread, any time: the
// CAS lets one win, and a sequence that has passed is seen as room.
SharedBuffer::Room SharedBuffer::try_make_room(uint64_t sequence) noexcept {
  // seq_cst loads: this is also the look between prepare() and wait() of room_bell_.
  // sync[shared_buffer.open]: seq_cst, pairs with the CAS below of another thread
  uint64_t current = word_.load(std::memory_order_seq_cst);
  if (sequence_of(current) != sequence) return Room::kOpen;
  if ((current & kClosedBit) != 0) return Room::kClosed;
  if (offset_of(current) <= options_.buffer_bytes) return Room::kOpen;
  // sync[shared_buffer.slot]: seq_cst, pairs with the sealing of it
  if (slot_of(sequence).word.load(std::memory_order_seq_cst) == pack(sequence, 0)) {
    return Room::kFull;  // its closer has not sealed it yet
  }
  // Up to buffer_count: the slot of `sequence` itself, flushed by now, when all others are passed.
  for (uint64_t ahead = 1; ahead <= options_.buffer_count; ++ahead) {
    const uint64_t next = sequence + ahead;
    // sync[shared_buffer.slot]: seq_cst, the flusher is done with its bytes
    const uint64_t state = slot_of(next).word.load(std::memory_order_seq_cst);
    if (state == pack(next, 1)) continue;  // quarantined: passed over
    if (state != pack(next, 0)) return Room::kFull;
    while (sequence_of(current) == sequence && (current & kClosedBit) == 0) {
      // sync[shared_buffer.open]: seq_cst, the freed slot to all threads that fetch_add after this
      if (word_.compare_exchange_weak(current, pack(next, 0), std::memory_order_seq_cst,
                                      std::memory_order_relaxed)) {
        room_bell_.wake_all();
        return Room::kOpen;
      }
    }
    return sequence_of(current) == sequence ? Room::kClosed : Room::kOpen;
  }
  return Room::kFull;
}

SharedBuffer::Room SharedBuffer::wait_for_room(uint64_t sequence) noexcept {
  const uint64_t drop_after_ns =
      options_.when_full == WhenFull::kDrop ? now_ns() + kPollCeilingNs : UINT64_MAX;
  for (int turn = 0;; ++turn) {
    Room room = try_make_room(sequence);
    if (room != Room::kFull) return room;
    if (options_.flush_by_writers && flush_ready() != 0) continue;
    // Full because the flusher lags is a drop at once; a closer between fetch_add and sealing is
    // given a millisecond: it was preempted there, and that is not a lag.
    if (options_.when_full == WhenFull::kDrop) {
      // sync[shared_buffer.slot]: acquire, pairs with the sealing
      const uint64_t state = slot_of(sequence).word.load(std::memory_order_acquire);
      if (state != pack(sequence, 0) || now_ns() >= drop_after_ns) return Room::kFull;
      ::sched_yield();
      continue;
    }
    if (turn < kPausesBeforeParking) {
      pause();
      continue;
    }
    sealed_bell_.wake();  // lets a sleeping flusher see a closer that never sealed
    const Doorbell::Ticket ticket = room_bell_.prepare();
    room = try_make_room(sequence);
    if (room != Room::kFull) {
      room_bell_.cancel();
      return room;
    }
    // Without a flusher thread the waiting writers notice a commit that comes late.
    (void)room_bell_.wait(ticket,
                          options_.flush_by_writers ? now_ns() + kPollCeilingNs : UINT64_MAX);
  }
}

// Seals the open buffer. The sequence below which everything has to be flushed for that.
uint64_t SharedBuffer::seal_open(bool for_good) noexcept {
  uint64_t current = word_.load(std::memory_order_relaxed);  // relaxed: the CAS checks it
  for (;;) {
    const uint64_t sequence = sequence_of(current);
    const uint64_t used = offset_of(current);
    if ((current & kClosedBit) != 0) return sequence + 1;
    const bool full = used > options_.buffer_bytes;
    if (full && !for_good) return sequence + 1;
    if (used == 0 && !for_good) return sequence;
    const uint64_t sealed =
        (full ? current : pack(sequence, options_.buffer_bytes + 1)) | (for_good ? kClosedBit : 0);
    // seq_cst: also the word at which the waiters of room_bell_ look; pairs with try_make_room().
    // sync[shared_buffer.open]: nothing is published, a reader only learns that it may not enter
    if (word_.compare_exchange_weak(current, sealed, std::memory_order_seq_cst,
                                    std::memory_order_relaxed)) {
      if (!full) seal_at(sequence, used);
      return sequence + 1;
    }
  }
}

void SharedBuffer::seal() noexcept { (void)seal_open(false); }

void SharedBuffer::close() noexcept {
  (void)seal_open(true);
  room_bell_.wake_all();
  sealed_bell_.wake_all();
  if (options_.flush_by_writers) (void)flush_ready();
}

bool SharedBuffer::was_closed() const noexcept {
  return (word_.load(std::memory_order_relaxed) & kClosedBit) != 0;  // relaxed: racy by its name
}

bool SharedBuffer::was_flushed(uint64_t end_sequence) const noexcept {
  // sync[shared_buffer.flushed]: seq_cst, the callback's writes; also room_bell_'s look
  const uint64_t next = next_flush_.load(std::memory_order_seq_cst) & kSequenceMask;
  // The sequence wraps at 24 bits: shifted to the top, the difference has a sign.
  return static_cast<int32_t>(static_cast<uint32_t>(next - end_sequence) << 8) >= 0;
}

bool SharedBuffer::flush(uint64_t deadline_ns) noexcept {
  const uint64_t end = seal_open(false);
  uint64_t poll_ns = kPollFloorNs;
  for (;;) {
    (void)flush_ready();
    if (was_flushed(end)) return true;
    const uint64_t now = now_ns();
    if (now >= deadline_ns) return false;
    const Doorbell::Ticket ticket = room_bell_.prepare();
    if (was_flushed(end)) {
      room_bell_.cancel();
      return true;
    }
    (void)room_bell_.wait(ticket, std::min(deadline_ns, now + poll_ns));
    poll_ns = std::min(2 * poll_ns, kPollCeilingNs);
  }
}

// Something is sealed, or should have been: the flusher polls instead of sleeping.
bool SharedBuffer::flush_is_pending() noexcept {
  // relaxed: a thread that sleeps on an old view is woken
  const uint64_t next = next_flush_.load(std::memory_order_relaxed);
  // seq_cst: the look between prepare() and wait() of sealed_bell_.
  // sync[shared_buffer.slot]: pairs with seal_at(); sync[shared_buffer.open]: with seal_open()
  const uint64_t state = slot_of(next).word.load(std::memory_order_seq_cst);
  const uint64_t open = word_.load(std::memory_order_seq_cst);
  if (sequence_of(open) == (next & kSequenceMask)) {
    return offset_of(open) > options_.buffer_bytes;
  }
  return state != pack(next, 0);
}

void SharedBuffer::run_flusher() noexcept {
  uint64_t poll_ns = kPollFloorNs;
  for (;;) {
    if (flush_ready() != 0) poll_ns = kPollFloorNs;
    // sync[shared_buffer.open]: acquire, pairs with close()
    const uint64_t open = word_.load(std::memory_order_acquire);
    if ((open & kClosedBit) != 0 && was_flushed(sequence_of(open) + 1)) return;
    const Doorbell::Ticket ticket = sealed_bell_.prepare();
    if (flush_is_pending()) {
      (void)sealed_bell_.wait(ticket, now_ns() + poll_ns);
      poll_ns = std::min(2 * poll_ns, kPollCeilingNs);
    } else {
      (void)sealed_bell_.wait(ticket);
      poll_ns = kPollFloorNs;
    }
  }
}

SharedBuffer::Stats SharedBuffer::stats() const noexcept {
  // relaxed, all of them: statistics, a moment old and not of one moment
  constexpr auto relaxed = std::memory_order_relaxed;
  Stats stats;
  stats.buffers_flushed = flushed_buffers_.load(relaxed);
  stats.bytes_flushed = flushed_bytes_.load(relaxed);
  stats.wasted_bytes = wasted_bytes_.load(relaxed);
  stats.missing_bytes = missing_bytes_.load(relaxed);
  stats.incomplete_buffers = incomplete_buffers_.load(relaxed);
  stats.quarantined_buffers = quarantined_.load(relaxed);
  const uint32_t high = writers_high_.load(relaxed);
  for (uint32_t i = 0; i < high; ++i) {
    const WriterState& state = writers_[i];
    stats.abandoned_records += state.abandoned.load(relaxed);
    stats.dropped_records += state.dropped_records.load(relaxed);
    stats.dropped_bytes += state.dropped_bytes.load(relaxed);
    stats.waits += state.waits.load(relaxed);
    stats.writers += state.thread_id.load(relaxed) != 0 ? 1 : 0;
  }
  return stats;
}

}  // namespace lumen
