// SharedBuffer::Writer off its fast path: entering a buffer, carving a chunk, being refused.
// Threads: a Writer belongs to one. Memory: none. Errors: nullptr and refusal().
#include <lumen/memory/shared_buffer.h>

#include <lumen/base/clock.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace lumen {

Result<SharedBuffer::Writer> SharedBuffer::writer() {
  const int32_t self = ::gettid();
  for (uint32_t i = 0; i < options_.max_writers; ++i) {
    WriterState& state = writers_[i];
    int32_t free = 0;
    // sync[shared_buffer.writer]: acquire, the last owner's stores to this state are ours now
    if (!state.thread_id.compare_exchange_strong(free, self, std::memory_order_acquire,
                                                 std::memory_order_relaxed)) {
      continue;
    }
    // relaxed: a flusher that does not know of us yet counts too little and looks again
    uint32_t high = writers_high_.load(std::memory_order_relaxed);
    while (high < i + 1 &&
           !writers_high_.compare_exchange_weak(high, i + 1, std::memory_order_relaxed)) {
    }
    return Writer(*this, state);
  }
  return Status::error(Code::kResourceExhausted,
                       "SharedBuffer: all %zu writers are taken; raise max_writers or destroy "
                       "writers of threads that have ended",
                       options_.max_writers);
}

SharedBuffer::Writer::Writer(SharedBuffer& owner, WriterState& state) noexcept
    : owner_(&owner), turns_(static_cast<uint32_t>(&state - owner.writers_.get())) {
  place_.cell =
      owner.options_.mode == Mode::kChunked ? &state.chunk_committed : &state.committed[0];
  place_.state = &state;
  place_.capacity = owner.options_.buffer_bytes;
  place_.word = &owner.word_;
  constexpr auto relaxed = std::memory_order_relaxed;
  // relaxed, all of them: ours alone, or for reports
  place_.value = place_.cell->load(relaxed);
  const uint64_t sequence = sequence_of(place_.word->load(relaxed));
  state.chunk_reserved.store(state.chunk_committed.load(relaxed), relaxed);
  show_nothing_open(sequence);
}

// To the flusher: our next reservation will be in the buffer `sequence` or a later one, and all our
// earlier ones are committed.
void SharedBuffer::Writer::show_nothing_open(uint64_t sequence) noexcept {
  WriterState& state = *place_.state;
  const size_t slot = sequence & (owner_->options_.buffer_count - 1);
  constexpr auto relaxed = std::memory_order_relaxed;
  // relaxed, both: for reports
  state.note.store(note_of(0, state.committed[slot].load(relaxed)), relaxed);
  // sync[shared_buffer.moved_on]: release, the bytes of our earlier records
  state.sequence.store(sequence, std::memory_order_release);
}

SharedBuffer::Writer::~Writer() {
  if (owner_ == nullptr) return;
  constexpr auto relaxed = std::memory_order_relaxed;
  // relaxed, all of them: our own stores
  int32_t id = place_.state->thread_id.load(relaxed);
  // sync[shared_buffer.writer]: acq_rel, pairs with the flusher's writing off: one of the two
  const bool ours = id > 0 && place_.state->thread_id.compare_exchange_strong(
                                  id, kLeaving, std::memory_order_acq_rel, relaxed);
  if (ours && is_open()) {
    // Whole zeroes rather than half a record; the flusher cannot be in these bytes, as they are not
    // committed, unless it gave up on us: then the slot is in quarantine and nobody reads them.
    const uint64_t bytes = place_.value - place_.cell->load(relaxed);
    std::byte* begin =
        owner_->options_.mode == Mode::kChunked
            ? reinterpret_cast<std::byte*>(place_.cell->load(relaxed))
            : reinterpret_cast<std::byte*>(place_.bias + place_.base +
                                           (place_.state->note.load(relaxed) >> kNoteBits));
    std::memset(begin, 0, bytes);
    place_.state->abandoned.store(place_.state->abandoned.load(relaxed) + 1, relaxed);
    commit();
  }
  leave_chunk();
  // sync[shared_buffer.writer]: release, pairs with the next owner's acquire
  place_.state->thread_id.store(0, std::memory_order_release);
}

void SharedBuffer::Writer::swap(Writer& other) noexcept {
  std::swap(place_, other.place_);
  std::swap(chunk_, other.chunk_);
  std::swap(owner_, other.owner_);
  std::swap(fenced_chunk_end_, other.fenced_chunk_end_);
  std::swap(blocked_at_, other.blocked_at_);
  std::swap(turn_begin_, other.turn_begin_);
  std::swap(away_until_ns_, other.away_until_ns_);
  std::swap(turns_, other.turns_);
  std::swap(refusal_, other.refusal_);
}

// For a first record, a chunk that is used up or revoked, a size out of bounds, a writer that was
// refused before or leaves its turn to others, and, where there is no membarrier, for every record
// of chunked mode.
std::byte* SharedBuffer::Writer::reserve_slow(size_t bytes, bool may_wait) noexcept {
  LUMEN_CHECK(!is_open());
  refusal_ = Refusal::kNone;
  if (bytes == 0 || bytes > place_.capacity) {
    refusal_ = Refusal::kTooLarge;
    return nullptr;
  }
  if (owner_->options_.mode == Mode::kChunked) {
    if (std::byte* record = take_fenced(bytes); record != nullptr) return record;
    return carve(bytes, may_wait);
  }
  const bool is_timed = away_until_ns_ != 0 && stayed_away(may_wait);
  const uint64_t old = claim(bytes, may_wait, is_timed);
  return old == kNoWord ? nullptr : enter(old, bytes);
}

// Dense: others have reserved since our last record, which had left the shared word at `expected`.
void SharedBuffer::Writer::share_line(uint64_t expected, uint64_t old, size_t bytes) noexcept {
  const uint64_t now = now_ns();
  const uint64_t away_ns = turns_.lost(expected - turn_begin_, old - expected, bytes, now);
  place_.skew += old - expected;
  turn_begin_ = old;
  if (away_ns == 0) return;
  // Before the next record, not with this one open: the flusher would wait for it.
  away_until_ns_ = now + away_ns;
  place_.dense_limit = 0;
}

// Leaves others their turn. True: it has waited, so that the next fetch_add fetches the line.
bool SharedBuffer::Writer::stayed_away(bool may_wait) noexcept {
  const uint64_t until = std::exchange(away_until_ns_, 0);
  uint64_t now = now_ns();
  const bool early = may_wait && now < until;
  if (early) {
    wait_for(until - now);
    now = until;
  }
  turns_.begin(now);
  return early && turns_.is_sampled();
}

std::byte* SharedBuffer::Writer::crossed(uint64_t old, size_t bytes, bool may_wait) noexcept {
  LUMEN_CHECK(!is_open());
  refusal_ = Refusal::kNone;
  const uint64_t settled = settle(old, bytes, may_wait);
  return settled == kNoWord ? nullptr : enter(settled, bytes);
}

// Adds `bytes` to the shared word: its earlier value, or kNoWord.
uint64_t SharedBuffer::Writer::claim(size_t bytes, bool may_wait, bool is_timed) noexcept {
  if (blocked_at_ != kNoWord && !room_after(blocked_at_, bytes, may_wait)) return kNoWord;
  uint64_t old = 0;
  if (!is_timed) {
    // sync[shared_buffer.open]: acquire, the slot that this word opens has been freed
    old = place_.word->fetch_add(bytes, std::memory_order_acquire);
  } else {
    turns_.took(time_of([&]() noexcept {
      // sync[shared_buffer.open]: acquire, as above
      old = place_.word->fetch_add(bytes, std::memory_order_acquire);
    }));
  }
  return settle(old, bytes, may_wait);
}

// Goes on from a fetch_add that may have found the buffer full.
uint64_t SharedBuffer::Writer::settle(uint64_t old, size_t bytes, bool may_wait) noexcept {
  for (;;) {
    const uint64_t sequence = sequence_of(old);
    const uint64_t offset = offset_of(old);
    if (offset + bytes <= place_.capacity) return old;
    // From here on a second fetch_add at this sequence would add to a full word again.
    blocked_at_ = sequence;
    place_.dense_limit = 0;
    if (offset <= place_.capacity) owner_->seal_at(sequence, offset);  // we are its closer
    if (!room_after(sequence, bytes, may_wait)) return kNoWord;
    // sync[shared_buffer.open]: acquire, as in claim()
    old = place_.word->fetch_add(bytes, std::memory_order_acquire);
  }
}

bool SharedBuffer::Writer::room_after(uint64_t sequence, size_t bytes, bool may_wait) noexcept {
  constexpr auto relaxed = std::memory_order_relaxed;
  // relaxed, all of them: statistics of ours
  Room room = owner_->try_make_room(sequence);
  // Else a quarantine that waits for us to move on would wait while we wait for its slot.
  if (room == Room::kFull) show_nothing_open((sequence + 1) & kSequenceMask);
  if (room == Room::kFull && may_wait) {
    place_.state->waits.store(place_.state->waits.load(relaxed) + 1, relaxed);
    room = owner_->wait_for_room(sequence);
  }
  if (room == Room::kOpen) {
    blocked_at_ = kNoWord;
    return true;
  }
  refusal_ = room == Room::kClosed ? Refusal::kClosed : Refusal::kDropped;
  if (room == Room::kFull && may_wait) {
    place_.state->dropped_records.store(place_.state->dropped_records.load(relaxed) + 1, relaxed);
    place_.state->dropped_bytes.store(place_.state->dropped_bytes.load(relaxed) + bytes, relaxed);
  }
  return false;
}

// Dense: goes on in the buffer of `old`, whose first record of ours has `bytes`.
std::byte* SharedBuffer::Writer::enter(uint64_t old, size_t bytes) noexcept {
  const uint64_t sequence = sequence_of(old);
  const size_t slot = sequence & (owner_->options_.buffer_count - 1);
  place_.base = pack(sequence, 0);
  place_.bias = reinterpret_cast<uint64_t>(owner_->slots_[slot].data) - place_.base;
  place_.cell = &place_.state->committed[slot];
  place_.value = place_.cell->load(std::memory_order_relaxed) + bytes;  // relaxed: our own store
  place_.dense_limit = place_.capacity;
  place_.skew = old - (place_.value - bytes);
  turn_begin_ = old;
  // relaxed: see reserve_as()
  place_.state->note.store(note_of(old, place_.value), std::memory_order_relaxed);
  // sync[shared_buffer.moved_on]: release, the bytes of our earlier records
  place_.state->sequence.store(sequence, std::memory_order_release);
  return reinterpret_cast<std::byte*>(place_.bias + old);
}

// A new chunk with this record at its beginning, longer than usual where the record is.
std::byte* SharedBuffer::Writer::carve(size_t bytes, bool may_wait) noexcept {
  leave_chunk();
  const size_t unit = owner_->options_.chunk_bytes;
  const size_t chunk_bytes = (bytes + unit - 1) / unit * unit;
  const uint64_t old = claim(chunk_bytes, may_wait);
  if (old == kNoWord) return nullptr;
  const auto begin =
      reinterpret_cast<uint64_t>(owner_->slot_of(sequence_of(old)).data) + offset_of(old);
  place_.value = begin + bytes;
  chunk_ = (old & ~kRevokedBit) | kOwnedBit;
  // relaxed: the release of the chunk publishes them. The chunk appears with the record open in it,
  // so that the flusher cannot take it back before the first commit.
  // sync[shared_buffer.moved_on]: release, the bytes of our earlier records
  place_.state->sequence.store(sequence_of(old), std::memory_order_release);
  place_.state->chunk_committed.store(begin, std::memory_order_relaxed);
  place_.state->chunk_reserved.store(place_.value, std::memory_order_relaxed);
  place_.state->chunk_bytes.store(chunk_bytes, std::memory_order_relaxed);
  // sync[shared_buffer.chunk]: release, pairs with the flusher's look at the chunks
  place_.state->chunk.store(chunk_, std::memory_order_release);
  (owner_->asymmetric_ ? place_.chunk_end : fenced_chunk_end_) = begin + chunk_bytes;
  return reinterpret_cast<std::byte*>(begin);
}

// A record in the chunk at hand where only a locked instruction can order "open" before the look.
std::byte* SharedBuffer::Writer::take_fenced(size_t bytes) noexcept {
  const uint64_t begin = place_.value;
  if (fenced_chunk_end_ <= begin || bytes > fenced_chunk_end_ - begin) return nullptr;
  // sync[shared_buffer.revoke]: seq_cst on both sides, Dekker's pattern with the flusher's revoking
  place_.state->chunk_reserved.exchange(begin + bytes, std::memory_order_seq_cst);
  if ((place_.state->chunk.load(std::memory_order_seq_cst) & kRevokedBit) != 0) return nullptr;
  place_.value = begin + bytes;
  return reinterpret_cast<std::byte*>(begin);
}

// Accounts for the chunk at hand, unless the flusher has done that in our place.
void SharedBuffer::Writer::leave_chunk() noexcept {
  place_.chunk_end = fenced_chunk_end_ = 0;
  if (chunk_ == 0) return;
  const uint64_t chunk = std::exchange(chunk_, 0);
  // sync[shared_buffer.chunk]: acq_rel, one of the two settles the chunk; the flusher has read this
  // writer's state before
  if ((place_.state->chunk.exchange(0, std::memory_order_acq_rel) & kOwnedBit) == 0) return;
  const uint64_t bytes =
      place_.state->chunk_bytes.load(std::memory_order_relaxed);  // relaxed: ours
  const uint64_t offset = chunk_offset(chunk);
  const size_t slot = sequence_of(chunk) & (owner_->options_.buffer_count - 1);
  const auto begin = reinterpret_cast<uint64_t>(owner_->slots_[slot].data) + offset;
  owner_->fill_chunk_table(owner_->slots_[slot], offset, bytes, place_.value - begin);
  std::atomic<uint64_t>& cell = place_.state->committed[slot];
  // relaxed load: our own. sync[shared_buffer.commit]: release, the table and the records
  cell.store(cell.load(std::memory_order_relaxed) + bytes, std::memory_order_release);
}

}  // namespace lumen
