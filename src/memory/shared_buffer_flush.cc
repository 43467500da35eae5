// SharedBuffer: the work of the holder of the flush token. Waiting for commits, handing over,
// giving buffers back, and handling of writers whose commits never come.
// Threads: one at a time, the holder of the token. Memory: none. Errors: 0 buffers handed over.
#include <lumen/memory/shared_buffer.h>

#include <lumen/base/clock.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace lumen {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

// Difference of two sequences, which wrap at 24 bits: shifted to the top it has a sign.
int32_t distance(uint64_t to, uint64_t from) {
  return static_cast<int32_t>(static_cast<uint32_t>(to - from) << 8);
}

}  // namespace

// Whether the writer's thread has ended. If so its reservations are written off, once and for all:
// its Writer, if somebody still destroys it, must not touch bytes in use again. A thread id
// may be given to another thread later; then a dead one looks held up, which is the safe side.
bool SharedBuffer::write_off_if_gone(WriterState& state) noexcept {
  // sync[shared_buffer.writer]: acquire here, acq_rel below; pairs with the Writer's destructor
  int32_t id = state.thread_id.load(std::memory_order_acquire);
  if (id < 0) return true;
  if (id == 0 || id == kLeaving) return false;
  if (::tgkill(::getpid(), id, 0) == 0 || errno != ESRCH) return false;
  // sync[shared_buffer.writer]: acq_rel, either this or the destructor's claim succeeds
  return state.thread_id.compare_exchange_strong(id, -id, std::memory_order_acq_rel,
                                                 std::memory_order_acquire);
}

size_t SharedBuffer::flush_ready() noexcept {
  size_t delivered = 0;
  do {
    // sync[shared_buffer.token]: seq_cst, the state of the last holder; and in one order with
    // again_: either we get the token or its holder sees that we asked
    if (token_.exchange(true, std::memory_order_seq_cst)) {
      // sync[shared_buffer.token]: seq_cst, as above
      again_.store(true, std::memory_order_seq_cst);
      if (token_.exchange(true, std::memory_order_seq_cst)) return delivered;
    }
    // sync[shared_buffer.token]: seq_cst, slots sealed before again_ was set are seen below
    again_.exchange(false, std::memory_order_seq_cst);
    for (FlushStep step = flush_next(); step != FlushStep::kBlocked; step = flush_next()) {
      if (step == FlushStep::kDelivered) ++delivered;
    }
    // sync[shared_buffer.token]: seq_cst, as above, both
    token_.store(false, std::memory_order_seq_cst);
  } while (again_.load(std::memory_order_seq_cst));
  return delivered;
}

// One step of the oldest slot.
SharedBuffer::FlushStep SharedBuffer::flush_next() noexcept {
  const uint64_t next = next_flush_.load(kRelaxed);  // relaxed: only the token moves it
  const uint64_t sequence = next & kSequenceMask;
  Slot& slot = slot_of(sequence);
  // sync[shared_buffer.slot]: acquire, `used` of its closer
  const uint64_t word = slot.word.load(std::memory_order_acquire);
  // sync[shared_buffer.open]: acquire, where the writers are
  const uint64_t open = word_.load(std::memory_order_acquire);
  const bool is_open = sequence_of(open) == sequence;
  if (word == pack(sequence, 0)) {
    if (!is_open || offset_of(open) <= options_.buffer_bytes || !is_overdue(slot, word)) {
      return FlushStep::kBlocked;
    }
    force_seal(slot, sequence);
    return FlushStep::kPassed;
  }
  const uint64_t used = offset_of(word) - 1;
  if (used == 0) {
    // Passed over, or closed while empty. Only once the writers have passed it too: else they would
    // find the slot marked for its next life and wait for ever.
    const bool is_closed = is_open && (open & kClosedBit) != 0;
    if (distance(sequence_of(open), sequence) <= 0 && !is_closed) {
      const bool has_freed =
          offset_of(open) > options_.buffer_bytes && free_a_quarantined_slot(sequence_of(open));
      return has_freed ? FlushStep::kPassed : FlushStep::kBlocked;
    }
    if (slot.forced && !slot.quarantined) quarantine(slot, sequence, 0);
    recycle(slot, sequence, quarantine_is_over(slot));
    return FlushStep::kPassed;
  }
  Account account = this->account(slot, sequence, used, false);
  if (account.missing != 0) {
    if (!is_overdue(slot, word)) return FlushStep::kBlocked;
    account = this->account(slot, sequence, used, true);
  }
  deliver(slot, used, account);
  const bool usable = !slot.forced && account.missing == account.gone;
  if (usable) {
    slot.expected = account.counted;
  } else {
    quarantine(slot, sequence, used);
  }
  recycle(slot, sequence, usable);
  return FlushStep::kDelivered;
}

// The committed part of the `used` bytes of a sealed slot. `overdue`: also the writers that owe the
// rest, collected in holes_.
SharedBuffer::Account SharedBuffer::account(Slot& slot, uint64_t sequence, uint64_t used,
                                            bool overdue) noexcept {
  Account account;
  holes_.clear();
  if (options_.mode == Mode::kChunked) settle_chunks(slot, sequence, overdue, account);
  const size_t index = static_cast<size_t>(&slot - slots_.get());
  const uint32_t high = writers_high_.load(kRelaxed);  // relaxed: see writer()
  uint64_t counted = slot.revoked_bytes;
  for (uint32_t i = 0; i < high; ++i) {
    // sync[shared_buffer.commit]: acquire, the bytes of the records that this counts
    counted += writers_[i].committed[index].load(std::memory_order_acquire);
  }
  account.counted = counted;
  // More than was thought to be reserved: after a forced seal, from a thread that came back.
  account.missing = std::max(slot.expected + used, counted) - counted;
  if (overdue && options_.mode == Mode::kDense) {
    account.missing_record_bytes = account.missing;
    attribute_dense(slot, sequence, account);
  } else if (overdue) {
    // Chunks that nobody shows as theirs: taken by a thread that got no further.
    account.missing_record_bytes += account.missing;
    for (uint32_t i = 0; i < high; ++i) {
      // sync[shared_buffer.chunk]: acquire, chunk_bytes
      const uint64_t chunk = writers_[i].chunk.load(std::memory_order_acquire);
      if ((chunk & kRevokedBit) != 0 && chunk_is_in(chunk, sequence)) {
        account.missing_record_bytes -= writers_[i].chunk_bytes.load(kRelaxed);  // relaxed: above
      }
    }
  }
  return account;
}

// Takes back the chunks of `sequence` in which no record is open, idle writers' above all.
void SharedBuffer::settle_chunks(Slot& slot, uint64_t sequence, bool overdue,
                                 Account& account) noexcept {
  const uint32_t high = writers_high_.load(kRelaxed);  // relaxed: see writer()
  bool revoked = false;
  bool any = false;
  for (uint32_t i = 0; i < high; ++i) {
    std::atomic<uint64_t>& chunk = writers_[i].chunk;
    // sync[shared_buffer.chunk]: acquire, the writer's state for this chunk
    uint64_t word = chunk.load(std::memory_order_acquire);
    if (!chunk_is_in(word, sequence)) continue;
    any = true;
    if ((word & kRevokedBit) != 0) continue;
    // sync[shared_buffer.revoke]: seq_cst, the mark before the look at open records
    revoked |= chunk.compare_exchange_strong(word, word | kRevokedBit, std::memory_order_seq_cst,
                                             std::memory_order_relaxed);
  }
  if (!any) return;
  if (revoked && asymmetric_) heavy_fence();
  for (uint32_t i = 0; i < high; ++i) {
    // sync[shared_buffer.chunk]: acquire, the writer's state for this chunk
    const uint64_t word = writers_[i].chunk.load(std::memory_order_acquire);
    if ((word & kRevokedBit) != 0 && chunk_is_in(word, sequence)) {
      settle_chunk(slot, writers_[i], word, overdue, account);
    }
  }
}

// Everything below is about `word`, which the caller has looked at: the writer may come back and go
// on to a chunk of another buffer at any time. Loading the word anew here once took such a chunk,
// unmarked, for the one to settle, and took it from its writer.
void SharedBuffer::settle_chunk(Slot& slot, WriterState& state, uint64_t word, bool overdue,
                                Account& account) noexcept {
  // sync[shared_buffer.revoke]: seq_cst, after the mark: a record that is not seen open here will
  // see the mark and not begin
  const uint64_t data = reinterpret_cast<uint64_t>(slot.data);
  const uint64_t reserved = state.chunk_reserved.load(std::memory_order_seq_cst) - data;
  // sync[shared_buffer.commit]: acquire, the records up to there
  const uint64_t committed = state.chunk_committed.load(std::memory_order_acquire) - data;
  const uint64_t bytes = state.chunk_bytes.load(kRelaxed);  // relaxed: published by the chunk
  const uint64_t offset = chunk_offset(word);
  const bool open = reserved != committed;
  if (open && !overdue) return;
  // sync[shared_buffer.chunk]: acquire, the words read above are of this chunk if it is still there
  if (state.chunk.load(std::memory_order_acquire) != word) return;
  const int32_t thread_id = std::abs(state.thread_id.load(kRelaxed));  // relaxed: for the report
  const bool gone = open && write_off_if_gone(state);
  if (open && !gone) {
    // Its chunk stays its own, the slot goes into quarantine; show its committed bytes.
    fill_chunk_table(slot, offset, bytes, committed - offset);
  } else {
    // If this fails the writer has come back and settles the chunk, and the words read above may be
    // of its next one. sync[shared_buffer.chunk]: acq_rel, one of the two settles
    if (!state.chunk.compare_exchange_strong(word, kRevokedBit, std::memory_order_acq_rel,
                                             std::memory_order_relaxed)) {
      return;
    }
    fill_chunk_table(slot, offset, bytes, committed - offset);
    slot.revoked_bytes += bytes;
  }
  if (!open) return;
  holes_.push_back({committed, reserved - committed, thread_id, gone});
  account.missing_record_bytes += reserved - committed;
}

uint64_t SharedBuffer::open_bytes(const WriterState& state, size_t slot) noexcept {
  // relaxed: as in attribute_dense()
  const uint64_t target = state.note.load(kRelaxed);
  const uint64_t committed = state.committed[slot].load(kRelaxed);
  return (target - committed) & ((uint64_t{1} << kNoteBits) - 1);
}

// Which reservation of `sequence` each writer has open, by its note after its fetch_add.
void SharedBuffer::attribute_dense(const Slot& slot, uint64_t sequence, Account& account) noexcept {
  const size_t index = static_cast<size_t>(&slot - slots_.get());
  const uint32_t high = writers_high_.load(kRelaxed);  // relaxed: see writer()
  for (uint32_t i = 0; i < high; ++i) {
    WriterState& state = writers_[i];
    // relaxed, all of them: a report; a dead thread's stores are visible by its end
    if (state.sequence.load(kRelaxed) != sequence) continue;
    const uint64_t begin = state.note.load(kRelaxed) >> kNoteBits;
    const uint64_t bytes = open_bytes(state, index);
    if (bytes == 0) continue;
    // Caught while it moved: not the one that is held up.
    if (begin + bytes > options_.buffer_bytes || bytes > account.missing) continue;
    const int32_t thread_id = std::abs(state.thread_id.load(kRelaxed));
    const bool gone = write_off_if_gone(state);
    holes_.push_back({begin, bytes, thread_id, gone});
    if (gone) account.gone += bytes;
  }
}

// The thread that filled the buffer never sealed it. All known reservations lie in front of the
// place that it found: they have no gaps, so their sum is where they end.
void SharedBuffer::force_seal(Slot& slot, uint64_t sequence) noexcept {
  const size_t index = static_cast<size_t>(&slot - slots_.get());
  const uint32_t high = writers_high_.load(kRelaxed);  // relaxed: see writer()
  uint64_t known = slot.revoked_bytes;
  for (uint32_t i = 0; i < high; ++i) {
    const WriterState& state = writers_[i];
    // sync[shared_buffer.commit]: acquire, pairs with the writers' counting
    const uint64_t committed = state.committed[index].load(std::memory_order_acquire);
    known += committed;
    if (options_.mode == Mode::kChunked) {
      // sync[shared_buffer.chunk]: acquire, chunk_bytes
      const uint64_t chunk = state.chunk.load(std::memory_order_acquire);
      // relaxed: published by the chunk
      if (chunk_is_in(chunk, sequence)) known += state.chunk_bytes.load(kRelaxed);
      // relaxed: a thread that was held up for so long stores nothing meanwhile
    } else if (state.sequence.load(kRelaxed) == sequence) {
      known += open_bytes(state, index);
    }
  }
  const uint64_t used = std::min<uint64_t>(known - slot.expected, options_.buffer_bytes);
  uint64_t open = pack(sequence, 0);
  // sync[shared_buffer.slot]: seq_cst, as seal_at(): one of the two seals
  if (slot.word.compare_exchange_strong(open, pack(sequence, used + 1), std::memory_order_seq_cst,
                                        std::memory_order_relaxed)) {
    slot.forced = true;
  }
  (void)try_make_room(sequence);
}

// Whether the slot has waited on `word` for longer than the timeout.
bool SharedBuffer::is_overdue(Slot& slot, uint64_t word) noexcept {
  if (options_.stall_timeout_ns == 0) return false;
  const uint64_t now = now_ns();
  if (slot.stalled_since_ns == 0 || slot.stalled_word != word) {
    slot.stalled_since_ns = now;
    slot.stalled_word = word;
  }
  return now - slot.stalled_since_ns >= options_.stall_timeout_ns;
}

void SharedBuffer::deliver(const Slot& slot, uint64_t used, const Account& account) noexcept {
  std::sort(holes_.begin(), holes_.end(),
            [](const Hole& a, const Hole& b) { return a.begin < b.begin; });
  collect_records(slot, used);
  uint64_t record_bytes = 0;
  for (const Extent& run : records_) record_bytes += run.bytes;
  Flushed flushed;
  flushed.sequence = flushed_buffers_.load(kRelaxed);  // relaxed: only the token counts it
  flushed.bytes = {slot.data, used};
  flushed.records = records_;
  flushed.holes = holes_;
  flushed.missing_bytes = account.missing_record_bytes;
  flushed.forced = slot.forced;
  options_.flush(options_.context, flushed);
  // relaxed, all of them: statistics, written under the token
  flushed_buffers_.store(flushed.sequence + 1, kRelaxed);
  flushed_bytes_.store(flushed_bytes_.load(kRelaxed) + used, kRelaxed);
  missing_bytes_.store(missing_bytes_.load(kRelaxed) + flushed.missing_bytes, kRelaxed);
  if (!flushed.complete()) {
    incomplete_buffers_.store(incomplete_buffers_.load(kRelaxed) + 1, kRelaxed);
  }
  if (options_.mode == Mode::kChunked) {
    const uint64_t gap = used - record_bytes;
    wasted_bytes_.store(wasted_bytes_.load(kRelaxed) + gap - std::min(gap, flushed.missing_bytes),
                        kRelaxed);
  }
}

void SharedBuffer::collect_records(const Slot& slot, uint64_t used) noexcept {
  records_.clear();
  const auto add = [this](uint64_t begin, uint64_t bytes) {
    if (bytes == 0) return;
    if (!records_.empty() && records_.back().begin + records_.back().bytes == begin) {
      records_.back().bytes += bytes;
    } else {
      records_.push_back({begin, bytes});
    }
  };
  if (options_.mode == Mode::kChunked) {
    for (uint64_t begin = 0; begin < used; begin += options_.chunk_bytes) {
      // relaxed: published by the commit counter, or our own
      add(begin, slot.chunk_used[begin / options_.chunk_bytes].load(kRelaxed));
    }
    return;
  }
  uint64_t begin = 0;
  for (const Hole& hole : holes_) {
    add(begin, hole.begin - begin);
    begin = hole.begin + hole.bytes;
  }
  add(begin, used - begin);
}

void SharedBuffer::fill_chunk_table(Slot& slot, uint64_t offset, uint64_t bytes,
                                    uint64_t used) noexcept {
  const uint64_t unit = options_.chunk_bytes;
  for (uint64_t begin = 0; begin < bytes; begin += unit) {
    const uint64_t in_unit = used > begin ? std::min(used - begin, unit) : 0;
    // relaxed: the commit counter publishes it
    slot.chunk_used[(offset + begin) / unit].store(static_cast<uint32_t>(in_unit), kRelaxed);
  }
}

// All that was sealed is handed over, and the writers stand before the full buffer `full`: no slot
// will come free by being flushed. True: one whose quarantine is over is free now, or there is
// room. Only one, and only while none is free: a writer that looks for room meanwhile has passed
// none over that is free, so each free slot is opened in its turn.
bool SharedBuffer::free_a_quarantined_slot(uint64_t full) noexcept {
  Room room = try_make_room(full);
  for (uint64_t ahead = 1; room == Room::kFull && ahead <= options_.buffer_count; ++ahead) {
    const uint64_t sequence = full + ahead;
    Slot& slot = slot_of(sequence);
    // relaxed: only the token changes a slot that is passed over
    if (slot.word.load(kRelaxed) != pack(sequence, 1)) continue;
    if (!slot.quarantined || !quarantine_is_over(slot)) continue;
    clear_chunk_table(slot);
    // sync[shared_buffer.slot]: seq_cst, nobody writes to its bytes any more; room_bell_'s work
    slot.word.store(pack(sequence, 0), std::memory_order_seq_cst);
    room = try_make_room(full);
  }
  return room == Room::kOpen;
}

void SharedBuffer::clear_chunk_table(Slot& slot) noexcept {
  if (slot.chunk_used == nullptr) return;
  const size_t chunks = options_.buffer_bytes / options_.chunk_bytes;
  for (size_t i = 0; i < chunks; ++i) slot.chunk_used[i].store(0, kRelaxed);  // relaxed: not in use
}

// Ends this life of the slot. Not usable: its next life is passed over.
void SharedBuffer::recycle(Slot& slot, uint64_t sequence, bool usable) noexcept {
  slot.stalled_since_ns = 0;
  if (usable) clear_chunk_table(slot);
  // sync[shared_buffer.slot]: seq_cst, we are done with its bytes; also room_bell_'s work
  slot.word.store(pack(sequence + options_.buffer_count, usable ? 0 : 1),
                  std::memory_order_seq_cst);
  // sync[shared_buffer.flushed]: seq_cst, the callback's writes, to flush(); room_bell_'s work
  next_flush_.store(next_flush_.load(kRelaxed) + 1, std::memory_order_seq_cst);
  // sync[shared_buffer.open]: acquire, as in flush_next()
  const uint64_t open = word_.load(std::memory_order_acquire);
  if (offset_of(open) > options_.buffer_bytes) (void)try_make_room(sequence_of(open));
  room_bell_.wake_all();
}

void SharedBuffer::quarantine(Slot& slot, uint64_t sequence, uint64_t used) noexcept {
  slot.quarantined = true;
  slot.quarantined_used = used;
  slot.quarantined_sequence = sequence;
  quarantined_.store(quarantined_.load(kRelaxed) + 1, kRelaxed);  // relaxed: a statistic
}

// Whether nobody can come back to the bytes of this slot. Slots that are not in quarantine: yes.
bool SharedBuffer::quarantine_is_over(Slot& slot) noexcept {
  if (!slot.quarantined) return true;
  const uint64_t since = slot.quarantined_sequence;
  const Account account = this->account(slot, since, slot.quarantined_used, true);
  bool over = !slot.forced && account.missing == account.gone;
  if (!over) {
    // Or every writer has since reserved in a later buffer, is gone or detached: none is left that
    // could be between its fetch_add there and its note.
    over = true;
    // relaxed: a writer that comes later was not there.
    const uint32_t high = writers_high_.load(kRelaxed);
    for (uint32_t i = 0; i < high && over; ++i) {
      WriterState& state = writers_[i];
      // sync[shared_buffer.moved_on]: acquire, its writes to the bytes before are done
      const uint64_t reached = state.sequence.load(std::memory_order_acquire);
      // relaxed: the chunk was settled in account() if it can be
      const bool moved_on =
          distance(reached, since) > 0 && !chunk_is_in(state.chunk.load(kRelaxed), since);
      // relaxed: a state that is free stays harmless when it is taken again
      over = moved_on || state.thread_id.load(kRelaxed) == 0 || write_off_if_gone(state);
    }
  }
  if (!over) return false;
  slot.expected = account.counted;
  slot.quarantined = false;
  slot.forced = false;
  quarantined_.store(quarantined_.load(kRelaxed) - 1, kRelaxed);  // relaxed: a statistic
  return true;
}

}  // namespace lumen
