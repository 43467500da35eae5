// SharedBuffer: many threads reserve and commit records of any size in fixed raw buffers without a
// lock; a full buffer is swapped for a free one and handed to a flush callback, in order, once.
// Threads: any number of writers, each through its own Writer; seal(), flush_ready(), close() and
// stats() from any thread.  Memory: all at create(); nothing on reserve, commit, swap or flush.
// Errors: reserve() returns nullptr and refusal() says why (too large, dropped, closed).
//
// One page of how it works. `word` = {sequence : 24, offset : 40} is the open buffer and its fill.
//   reserve  old = word.fetch_add(n). old.offset + n <= capacity: the bytes are ours. Else the
//            writer whose old.offset is still <= capacity is the closer: it publishes used =
//            old.offset in the slot (sealed); any thread may then move `word` to the next free slot
//            by CAS. A writer adds at most once to a full word, so offset cannot run into the
//            sequence.
//            A writer whose fetch_add finds that others have added since its last record goes on if
//            they had more than it before, else it stays away for a while (line_turns.h): the line
//            moves once for many records, not for each.
//   commit   one release store into a counter of this writer and this slot: no second atomic
//            increment. A buffer is complete when the writers' counters sum to the reserved bytes
//            (`used`): each only grows and never passes its own reservations, so the sum of loads
//            at different times equals `used` only when every part does.
//   chunked  fetch_add takes a chunk of `chunk_bytes`; records are carved from it by plain stores. A
//            writer that sits idle on a chunk must not hold up the flush: the flusher marks the
//            chunk revoked, then looks whether a record is open in it. reserve() says "open" and
//            then looks for the mark: Dekker's pattern, paid by the flusher (asymmetric_fence.h).
//   flush    the thread that holds the flush token takes the oldest sealed slot, waits for its
//            commits by polling (20 µs to 1 ms: a wake on every commit would cost more than the
//            commit), calls back and frees the slot. Exactly once and in order, because only the
//            token moves on.
// Orders. Record bytes reach the flusher by release and acquire of the counter. A freed slot
// reaches writers by the release of the slot word, the acquire of the thread that opens it, the
// release of that CAS on `word` and the acquire of fetch_add (fetch_adds between them continue the
// release sequence). tests/spin/shared_buffer.pml is the model of commit, seal, swap and flush.
//
// A thread that is held or dies between reserve and commit (or between fetch_add and sealing) holds
// up the flush for stall_timeout_ns, no longer: then the buffer is handed over, complete() false,
// and the places that are known not to be records are in `holes`. The memory is used again at once
// where the thread is gone (tgkill says ESRCH), else only after its late commit; until then the
// slot is passed over. A thread that dies between fetch_add and its note leaves a hole without a
// place. One that dies inside the flush callback ends flushing: writers then wait or drop, as at a
// full disk.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/check.h>
#include <lumen/base/doorbell.h>
#include <lumen/base/result.h>
#include <lumen/memory/asymmetric_fence.h>
#include <lumen/memory/line_turns.h>
#include <lumen/memory/mapping.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lumen {

class SharedBuffer {
 public:
  static constexpr size_t kMaxBuffers = 16;
  static constexpr size_t kMaxWriters = 256;
  static constexpr size_t kMaxBufferBytes = size_t{1} << 30;
  static constexpr size_t kMaxChunks = 1u << 20;  // bounds the table of chunks: 4 bytes each

  enum class Mode : uint8_t {
    kDense,    // one fetch_add a record, no byte between records
    kChunked,  // one fetch_add a chunk; at most a record's room is wasted at the end of each
  };
  enum class WhenFull : uint8_t {
    kWait,  // reserve() waits until the flusher has freed a buffer
    kDrop,  // reserve() returns nullptr and counts
  };
  enum class Refusal : uint8_t { kNone, kTooLarge, kDropped, kClosed };

  struct Extent {
    size_t begin;
    size_t bytes;
  };
  struct Hole {
    size_t begin;
    size_t bytes;
    int thread_id;     // that reserved it
    bool thread_gone;  // it has ended; false: it is held up somewhere
  };
  struct Flushed {
    uint64_t sequence;                 // 0, 1, 2, … without a gap
    std::span<const std::byte> bytes;  // from the raw buffer's beginning to its last reservation
    std::span<const Extent> records;   // runs of committed records in order; one in dense mode
    std::span<const Hole> holes;       // reserved, not committed in time
    size_t missing_bytes;              // of all reservations not committed, place known or not
    bool forced;                       // sealed by timeout: its closer was held up
    [[nodiscard]] bool complete() const noexcept { return missing_bytes == 0 && !forced; }
  };
  // Called by one thread at a time. It must not reserve in the same SharedBuffer under kWait.
  using FlushFunction = void (*)(void* context, const Flushed& flushed) noexcept;

  struct Options {
    Mode mode = Mode::kDense;
    WhenFull when_full = WhenFull::kWait;
    // true: the writer that fills a buffer also flushes; false: some thread calls run_flusher().
    bool flush_by_writers = true;
    size_t buffer_bytes = 1024 * 1024;
    size_t buffer_count = 4;  // a power of two, 2 to kMaxBuffers
    size_t max_writers = 64;
    size_t chunk_bytes = 4096;  // divides buffer_bytes; a longer record gets a multiple
    uint64_t stall_timeout_ns = 1'000'000'000u;  // 0: wait for a commit for ever
    bool asymmetric_fence = true;                // false: as on a kernel without membarrier
    FlushFunction flush = nullptr;
    void* context = nullptr;
  };

  struct Stats {
    uint64_t buffers_flushed = 0;
    uint64_t bytes_flushed = 0;  // `used` of these, unused ends of chunks included
    uint64_t wasted_bytes = 0;   // of these, in the ends of chunks
    uint64_t missing_bytes = 0;  // handed over without their commit
    uint64_t incomplete_buffers = 0;
    uint64_t abandoned_records = 0;  // open when their Writer was destroyed; handed over as zeroes
    uint64_t dropped_records = 0;
    uint64_t dropped_bytes = 0;
    uint64_t waits = 0;                // reserve() calls that had to wait for a free buffer
    uint64_t quarantined_buffers = 0;  // passed over now
    uint64_t writers = 0;              // attached now
  };

  class Writer;

  // Over memory of its own, or the caller's: buffer_bytes * buffer_count bytes that outlive it.
  [[nodiscard]] static Result<std::unique_ptr<SharedBuffer>> create(const Options& options);
  [[nodiscard]] static Result<std::unique_ptr<SharedBuffer>> create(const Options& options,
                                                                    std::span<std::byte> memory);
  // Closes and flushes. Every Writer is gone by then.
  ~SharedBuffer();
  SharedBuffer(const SharedBuffer&) = delete;
  SharedBuffer& operator=(const SharedBuffer&) = delete;

  // For the calling thread, which must be the one to use it: the buffer asks whether the thread
  // with this id is gone.
  [[nodiscard]] Result<Writer> writer();

  // The reserved places so far go to the flusher although the buffer is not full.
  void seal() noexcept;
  // Hands over every buffer that is complete or overdue; 0 when none is or another thread is at it.
  size_t flush_ready() noexcept;
  // seal(), then waits until all of it was handed over. False: not by `deadline_ns`.
  bool flush(uint64_t deadline_ns = UINT64_MAX) noexcept;
  // The body of a flusher thread: returns after close() when everything was handed over.
  void run_flusher() noexcept;
  // seal() for good: reserve() refuses from now on. A second call changes nothing.
  void close() noexcept;
  [[nodiscard]] bool was_closed() const noexcept;

  [[nodiscard]] Stats stats() const noexcept;
  [[nodiscard]] const Options& options() const noexcept { return options_; }

 private:
  friend struct SharedBufferPeer;  // tests: to stand in for a thread that dies between two lines

  static constexpr unsigned kOffsetBits = 40;
  static constexpr uint64_t kOffsetMask = (uint64_t{1} << kOffsetBits) - 1;
  static constexpr uint64_t kSequenceMask = (uint64_t{1} << (64 - kOffsetBits)) - 1;
  // In `word`: closed. Above every sum that reserve() can add up to, see the static_assert.
  static constexpr uint64_t kClosedBit = uint64_t{1} << (kOffsetBits - 1);
  static_assert(kMaxWriters * kMaxBufferBytes + 2 * kMaxBufferBytes < kClosedBit);
  // WriterState::chunk: 0 none; {0, sequence : 23, owned, offset : 31}; the same with the top bit:
  // revoked; the top bit alone: settled by the flusher. So a negative word means "hands off".
  static constexpr uint64_t kOwnedBit = uint64_t{1} << 31;
  static constexpr uint64_t kRevokedBit = uint64_t{1} << 63;
  static constexpr bool chunk_is_in(uint64_t chunk, uint64_t sequence) noexcept {
    return (chunk & kOwnedBit) != 0 && ((chunk >> kOffsetBits) ^ sequence) << 41 == 0;
  }
  static constexpr uint64_t chunk_offset(uint64_t chunk) noexcept {
    return chunk & (kOwnedBit - 1);
  }
  // WriterState::note in dense mode: where the latest reservation begins and, modulo 2^34, the
  // value of the commit store. One word: a second store before each fetch_add costs 0.2 ns, because
  // a locked instruction waits for the stores before it.
  static constexpr unsigned kNoteBits = 34;
  static_assert(kMaxBufferBytes < uint64_t{1} << kNoteBits);
  static constexpr uint64_t note_of(uint64_t word, uint64_t value) noexcept {
    return (word << kNoteBits) + (value << (64 - kNoteBits) >> (64 - kNoteBits));
  }
  static constexpr uint64_t kNoWord = UINT64_MAX;
  // WriterState::thread_id while its Writer is being destroyed: nobody may write it off then.
  static constexpr int32_t kLeaving = INT32_MAX;

  static constexpr uint64_t pack(uint64_t sequence, uint64_t offset) noexcept {
    return (sequence << kOffsetBits) | offset;  // the sequence wraps at 24 bits
  }
  static constexpr uint64_t sequence_of(uint64_t word) noexcept { return word >> kOffsetBits; }
  static constexpr uint64_t offset_of(uint64_t word) noexcept { return word & kOffsetMask; }

  // A writer's words for the flusher. Only its owner stores, but for `chunk`, which both CAS.
  struct alignas(kFalseSharingRange) WriterState {
    std::atomic<uint64_t> note{0};             // dense: see note_of()
    std::atomic<uint64_t> chunk_reserved{0};   // chunked: address where the latest reservation ends
    std::atomic<uint64_t> chunk_committed{0};  // chunked: address where the committed part ends
    std::atomic<uint64_t> chunk{0};            // chunked: see kOwnedBit
    std::atomic<uint64_t> chunk_bytes{0};
    // Of the buffer entered last, or the next one while it waits for room: nothing is open before.
    std::atomic<uint64_t> sequence{0};
    std::atomic<int32_t> thread_id{0};  // 0: free; < 0: the flusher has written it off
    std::atomic<uint32_t> abandoned{0};
    std::atomic<uint64_t> dropped_records{0};
    std::atomic<uint64_t> dropped_bytes{0};
    // Bytes committed into each slot since creation; in chunked mode whole chunks, when left.
    std::atomic<uint64_t> committed[kMaxBuffers] = {};
    std::atomic<uint64_t> waits{0};
  };

  // One raw buffer. `word` is {sequence, 0}: open or free for that sequence; {sequence, used + 1}:
  // sealed; {sequence, 1}: sealed and empty, to be passed over. The rest belongs to the token.
  struct alignas(kFalseSharingRange) Slot {
    std::atomic<uint64_t> word{0};
    std::byte* data = nullptr;
    uint64_t expected = 0;       // sum of the counters when all earlier lives were accounted for
    uint64_t revoked_bytes = 0;  // chunks that the flusher accounted for in their writer's place
    uint64_t stalled_since_ns = 0;
    uint64_t stalled_word = 0;      // the value of `word` when that began
    uint64_t quarantined_used = 0;  // of the life that was handed over incomplete
    uint64_t quarantined_sequence = 0;
    bool quarantined = false;
    bool forced = false;
    std::unique_ptr<std::atomic<uint32_t>[]> chunk_used;
  };

  explicit SharedBuffer(const Options& options);
  [[nodiscard]] static Status check(const Options& options);

  [[nodiscard]] Slot& slot_of(uint64_t sequence) noexcept {
    return slots_[sequence & (options_.buffer_count - 1)];
  }
  // shared_buffer.cc: sealing, opening, waiting
  enum class Room : uint8_t { kOpen, kFull, kClosed };
  void seal_at(uint64_t sequence, uint64_t used) noexcept;
  Room try_make_room(uint64_t sequence) noexcept;
  Room wait_for_room(uint64_t sequence) noexcept;
  uint64_t seal_open(bool for_good) noexcept;
  [[nodiscard]] bool was_flushed(uint64_t end_sequence) const noexcept;
  [[nodiscard]] bool flush_is_pending() noexcept;
  // shared_buffer_flush.cc: steps that need the token
  struct Account {
    uint64_t counted = 0;  // the writers' counters and the flusher's settlements for them
    uint64_t missing = 0;  // reserved, not counted
    uint64_t gone = 0;     // of these, by threads that have ended
    uint64_t missing_record_bytes = 0;
  };
  // kBlocked: nothing more can be done now.
  enum class FlushStep : uint8_t { kBlocked, kPassed, kDelivered };
  FlushStep flush_next() noexcept;
  [[nodiscard]] Account account(Slot& slot, uint64_t sequence, uint64_t used,
                                bool overdue) noexcept;
  void settle_chunks(Slot& slot, uint64_t sequence, bool overdue, Account& account) noexcept;
  // `word`: the marked chunk of `slot` that `state` showed.
  void settle_chunk(Slot& slot, WriterState& state, uint64_t word, bool overdue,
                    Account& account) noexcept;
  void attribute_dense(const Slot& slot, uint64_t sequence, Account& account) noexcept;
  void force_seal(Slot& slot, uint64_t sequence) noexcept;
  [[nodiscard]] bool is_overdue(Slot& slot, uint64_t word) noexcept;
  void deliver(const Slot& slot, uint64_t used, const Account& account) noexcept;
  void collect_records(const Slot& slot, uint64_t used) noexcept;
  void recycle(Slot& slot, uint64_t sequence, bool usable) noexcept;
  void quarantine(Slot& slot, uint64_t sequence, uint64_t used) noexcept;
  [[nodiscard]] bool quarantine_is_over(Slot& slot) noexcept;
  [[nodiscard]] bool free_a_quarantined_slot(uint64_t full) noexcept;
  void clear_chunk_table(Slot& slot) noexcept;
  [[nodiscard]] static bool write_off_if_gone(WriterState& state) noexcept;
  // Dense: bytes that `state` has reserved in the slot and not committed, by its note.
  [[nodiscard]] static uint64_t open_bytes(const WriterState& state, size_t slot) noexcept;
  void fill_chunk_table(Slot& slot, uint64_t offset, uint64_t bytes, uint64_t used) noexcept;

  Options options_;
  Mapping mapping_;
  bool asymmetric_ = false;
  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<WriterState[]> writers_;
  std::vector<Extent> records_;  // scratch of the token, reserved to its largest size at creation
  std::vector<Hole> holes_;

  alignas(kFalseSharingRange) std::atomic<uint64_t> word_{0};
  alignas(kFalseSharingRange) std::atomic<uint32_t> writers_high_{0};  // states ever attached
  std::atomic<bool> token_{false};
  std::atomic<bool> again_{false};  // someone found the token taken
  std::atomic<uint64_t> next_flush_{0};
  std::atomic<uint64_t> flushed_buffers_{0}, flushed_bytes_{0}, wasted_bytes_{0};
  std::atomic<uint64_t> missing_bytes_{0}, incomplete_buffers_{0}, quarantined_{0};
  Doorbell room_bell_;    // woken when a slot was opened, freed or closed
  Doorbell sealed_bell_;  // woken for the flusher
};

// A thread's handle. At most one reservation is open at a time; reserve() while one is open is a
// bug. Destroying it with one open hands zeroes over in its place and counts it as abandoned.
class alignas(kCacheLine) SharedBuffer::Writer {
 public:
  Writer(Writer&& other) noexcept { swap(other); }
  Writer& operator=(Writer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Writer();

  // `bytes` (1 to buffer_bytes) to write a record into; waits or drops as the options say.
  [[nodiscard]] std::byte* reserve(size_t bytes) noexcept { return reserve_as<true>(bytes); }
  // Never waits and counts no drop.
  [[nodiscard]] std::byte* try_reserve(size_t bytes) noexcept { return reserve_as<false>(bytes); }
  // The bytes of the latest reserve() are written: the flusher may have them.
  void commit() noexcept { place_.commit(); }
  // Why the latest reserve() returned nullptr.
  [[nodiscard]] Refusal refusal() const noexcept { return refusal_; }

 private:
  friend class SharedBuffer;
  friend struct SharedBufferPeer;
  Writer(SharedBuffer& owner, WriterState& state) noexcept;

  // Where the next record goes, by values alone: the words that the two hot paths touch, in one
  // line.
  struct Place {
    std::atomic<uint64_t>* cell = nullptr;  // where commit() stores
    // The value to store: dense: bytes ever put into the slot; chunked: address.
    uint64_t value = 0;
    uint64_t dense_limit = 0;  // capacity; 0: chunked mode, or no fetch_add before a look (blocked)
    uint64_t chunk_end = 0;    // address; 0: dense mode, or no chunk
    WriterState* state = nullptr;
    uint64_t base = kNoWord;  // dense: {sequence, 0} of the buffer we are in
    uint64_t bias = 0;        // dense: address of that buffer less base: one add off fetch_add
    uint64_t capacity = 0;
    std::atomic<uint64_t>* word = nullptr;
    // dense: `word` less `value` before a record, as long as nobody else reserves: that the two
    // move together saves a store a record
    uint64_t skew = 0;

    // `slow` and `crossed` go on where this ends: without a place, or from a fetch_add that found
    // another buffer than ours, or a full one. `others` is told that others have reserved
    // since our last record.
    template <typename Slow, typename Crossed, typename Others>
    [[nodiscard]] std::byte* reserve(size_t bytes, Slow slow, Crossed crossed,
                                     Others others) noexcept {
      const uint64_t begin = value;
      const uint64_t end = begin + bytes;
      // Without a chunk, or in dense mode, chunk_end is 0. end > begin: neither 0 nor wrapped
      // around.
      if (end <= chunk_end && end > begin) [[likely]] {
        // relaxed: light_fence() and the flusher's heavy one order this store before the load below
        state->chunk_reserved.store(end, std::memory_order_relaxed);
        light_fence();
        // relaxed: as above; a chunk that is still ours publishes nothing
        if (static_cast<int64_t>(state->chunk.load(std::memory_order_relaxed)) >= 0) [[likely]] {
          value = end;
          return reinterpret_cast<std::byte*>(begin);
        }
      } else if (bytes - 1 <
                 dense_limit) {  // as bytes - 1, so that 0 is refused with the too large
        // Everything is read before the locked instruction: no load after it starts until it is
        // done, and the stores before the next one are the cost of a record beyond a bare
        // fetch_add.
        const uint64_t here = base, shift = bias, last = capacity - bytes;
        const uint64_t expected = begin + skew;
        // sync[shared_buffer.open]: acquire, the slot that this word opens has been freed
        const uint64_t old = word->fetch_add(bytes, std::memory_order_acquire);
        if (old - here <= last) [[likely]] {  // of another buffer: larger than any offset
          value = end;
          // relaxed: for reports about a thread that died; nothing is read on the strength of it
          state->note.store(note_of(old, end), std::memory_order_relaxed);
          if (old != expected) [[unlikely]]
            others(expected, old);
          return reinterpret_cast<std::byte*>(shift + old);
        }
        return crossed(old);
      }
      return slow();
    }
    void commit() noexcept {
      // sync[shared_buffer.commit]: release, the record's bytes before the count of them
      cell->store(value, std::memory_order_release);
    }
  };

  template <bool kMayWait>
  [[nodiscard]] std::byte* reserve_as(size_t bytes) noexcept {
    LUMEN_DCHECK(!is_open());
    return place_.reserve(
        bytes, [&]() noexcept { return reserve_slow(bytes, kMayWait); },
        [&](uint64_t old) noexcept { return crossed(old, bytes, kMayWait); },
        [&](uint64_t expected, uint64_t old) noexcept { share_line(expected, old, bytes); });
  }
  [[nodiscard]] std::byte* reserve_slow(size_t bytes, bool may_wait) noexcept;
  [[nodiscard]] std::byte* crossed(uint64_t old, size_t bytes, bool may_wait) noexcept;
  [[nodiscard]] std::byte* carve(size_t bytes, bool may_wait) noexcept;
  void share_line(uint64_t expected, uint64_t old, size_t bytes) noexcept;
  bool stayed_away(bool may_wait) noexcept;
  [[nodiscard]] uint64_t claim(size_t bytes, bool may_wait, bool is_timed = false) noexcept;
  [[nodiscard]] uint64_t settle(uint64_t old, size_t bytes, bool may_wait) noexcept;
  [[nodiscard]] bool room_after(uint64_t sequence, size_t bytes, bool may_wait) noexcept;
  [[nodiscard]] std::byte* take_fenced(size_t bytes) noexcept;
  [[nodiscard]] std::byte* enter(uint64_t old, size_t bytes) noexcept;
  void leave_chunk() noexcept;
  void show_nothing_open(uint64_t sequence) noexcept;
  [[nodiscard]] bool is_open() const noexcept {
    // relaxed: our own store
    return place_.cell->load(std::memory_order_relaxed) != place_.value;
  }
  void swap(Writer& other) noexcept;

  Place place_;
  SharedBuffer* owner_ = nullptr;
  uint64_t chunk_ = 0;             // our last store into WriterState::chunk
  uint64_t fenced_chunk_end_ = 0;  // chunk_end where light_fence() is not enough; else 0
  uint64_t blocked_at_ = kNoWord;  // sequence whose full word we have added to already
  uint64_t turn_begin_ = 0;        // dense: `word` before our first record that nobody came between
  uint64_t away_until_ns_ = 0;     // dense: another's turn until then; 0: no
  LineTurns turns_;
  Refusal refusal_ = Refusal::kNone;
};

}  // namespace lumen
