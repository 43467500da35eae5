// The parts that the tests of SharedBuffer share: a flush callback that keeps everything, and the
// peer that stands in for a thread which dies between two lines.
// Threads: the collector is called by one at a time. Memory: grows. Errors: never.
#pragma once

#include <lumen/memory/shared_buffer.h>

#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lumen {

struct Collector {
  std::vector<std::string> buffers;  // `bytes` as they were handed over
  std::vector<std::string> records;  // the runs of records of all buffers
  std::vector<uint64_t> sequences;
  std::vector<const std::byte*> addresses;
  std::vector<std::vector<SharedBuffer::Hole>> holes;
  std::vector<size_t> missing;
  std::vector<bool> forced;
  std::function<void()> during = [] {};

  static void flush(void* context, const SharedBuffer::Flushed& f) noexcept {
    auto& self = *static_cast<Collector*>(context);
    const auto* text = reinterpret_cast<const char*>(f.bytes.data());
    self.buffers.emplace_back(text, f.bytes.size());
    for (const SharedBuffer::Extent& run : f.records) {
      self.records.emplace_back(text + run.begin, run.bytes);
    }
    self.sequences.push_back(f.sequence);
    self.addresses.push_back(f.bytes.data());
    self.holes.emplace_back(f.holes.begin(), f.holes.end());
    self.missing.push_back(f.missing_bytes);
    self.forced.push_back(f.forced);
    self.during();
  }
};

[[nodiscard]] inline bool put(SharedBuffer::Writer& writer, std::string_view record) {
  std::byte* memory = writer.reserve(record.size());
  if (memory == nullptr) return false;
  std::memcpy(memory, record.data(), record.size());
  writer.commit();
  return true;
}

struct SharedBufferPeer {
  // The fetch_add of a thread that gets no further. The earlier value of the word: {sequence,
  // offset}.
  static std::pair<uint64_t, uint64_t> add_and_die(SharedBuffer& buffer, size_t bytes) {
    const uint64_t old = buffer.word_.fetch_add(bytes, std::memory_order_acq_rel);
    return {SharedBuffer::sequence_of(old), SharedBuffer::offset_of(old)};
  }
  // Lets the 24 bits of the sequence wrap around soon. Before the first reservation only.
  static void start_at(SharedBuffer& buffer, uint64_t sequence) {
    const size_t count = buffer.options_.buffer_count;
    sequence = sequence / count * count;
    buffer.word_.store(SharedBuffer::pack(sequence, 0), std::memory_order_release);
    buffer.next_flush_.store(sequence & SharedBuffer::kSequenceMask, std::memory_order_release);
    for (size_t i = 0; i < count; ++i) {
      buffer.slots_[i].word.store(SharedBuffer::pack(sequence + i, 0), std::memory_order_release);
    }
  }
  // The flusher's two halves of taking back the chunk of the first writer, so that the writer can
  // do something in between: the mark (and the state that the flusher then sees), and the settling
  // of that state.
  static uint64_t mark_chunk(SharedBuffer& buffer) {
    const uint64_t mark = SharedBuffer::kRevokedBit;
    return buffer.writers_[0].chunk.fetch_or(mark, std::memory_order_seq_cst) | mark;
  }
  // The bytes that it accounted for in the writer's place.
  static uint64_t settle_chunk(SharedBuffer& buffer, uint64_t sequence, uint64_t seen,
                               bool overdue) {
    SharedBuffer::Account account;
    SharedBuffer::Slot& slot = buffer.slot_of(sequence);
    const uint64_t before = slot.revoked_bytes;
    buffer.settle_chunk(slot, buffer.writers_[0], seen, overdue, account);
    return slot.revoked_bytes - before + account.missing_record_bytes;
  }
};

}  // namespace lumen
