// SequenceTable: the live sequences of one model, with the memory of their states, and the requests
// that wait for their turn: of a sequence one runs at a time, in the order in which they came.
//
//   bucket ─► sequence ─► sequence     by the hash of the id
//             │ running: the request whose turn it is
//             └ waiting ─► ask ─► ask  the oldest first
//   oldest ─► sequence ─► newest       those without a request, by their last one: dropped after
//                                      `idle_ms`
//
// Threads: any; the tasks of all threads are done one at a time (SerialInbox). Memory: all of it
// when it is made; pages cost nothing until a sequence lies there. Errors: create() says why there
// is no memory; a request's own are answers.
#pragma once

#include <lumen/answers/keyed_hash.h>
#include <lumen/memory/mapping.h>
#include <lumen/models/metadata.h>
#include <lumen/models/sequence_options.h>
#include <lumen/queue/mpmc_queue.h>
#include <lumen/sequences/sequences.h>

#include "sequences/ask.h"
#include "sequences/serial_inbox.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lumen::sequences {

struct Sequence {
  Sequence* next_in_bucket = nullptr;  // or the next free one
  Sequence* older = nullptr;           // of those without a request
  Sequence* newer = nullptr;
  Ask* running = nullptr;
  Ask* first_waiting = nullptr;
  Ask* last_waiting = nullptr;
  std::byte* state = nullptr;
  std::byte* new_state = nullptr;  // of the request whose turn it is; the two change places
  uint64_t last_ns = 0;            // its last request ended then
  uint64_t hash = 0;
  bool is_fresh = false;  // its first request has not ended well yet
  SequenceKey key{};
};
// docs/sequences.md tells the memory of a live one, its bucket included.
static_assert(sizeof(Sequence) + sizeof(Sequence*) <= 240);

class SequenceTable {
 public:
  // `form`: of the model, which keeps states; `calls`: that may be at work at once, 1 or more;
  // `live`: where the live ones are counted, 0 now, for others to read.
  [[nodiscard]] static Result<std::unique_ptr<SequenceTable>> create(
      const models::SequenceOptions& options, const models::SequenceForm& form, size_t calls,
      std::atomic<uint64_t>& live);

  // Puts the question of a call. nullptr: too many are on the way. Otherwise `call.sequence_ask` is
  // set, and the call is its thread's to go on with if answered() says so; else it is parked.
  [[nodiscard]] Ask* ask(service::Call& call, uint64_t now_ns) noexcept;
  // On the call's thread, at once after ask(): true: the answer is there. False: the call will be
  // resumed or completed by another thread.
  [[nodiscard]] static bool is_answered(Ask& ask) noexcept;
  // The node of a call that was refused at once.
  void free(Ask& ask) noexcept;
  // The call is off, if this says so; else it is just being resumed.
  [[nodiscard]] static bool abandon(service::Call& call) noexcept;
  // The turn of the call is over.
  void end(Ask& ask, bool has_failed, uint64_t now_ns) noexcept;
  // Drops sequences that have been idle for too long, many but not without bound.
  void sweep(uint64_t now_ns) noexcept;

  [[nodiscard]] Sequences::Usage usage() const noexcept;
  // For tests, while no other thread is here: no call has a turn or waits for one.
  [[nodiscard]] bool is_idle() const noexcept;

 private:
  SequenceTable(const models::SequenceOptions& options, const models::SequenceForm& form,
                size_t calls, std::atomic<uint64_t>& live, std::span<Mapping> memory);

  void work(Ask& ask) noexcept;
  void turn(Ask& ask, uint64_t now_ns) noexcept;
  void finish(Ask& ask) noexcept;
  void settle(Sequence& sequence, bool is_over, uint64_t now_ns) noexcept;
  [[nodiscard]] bool begin(Sequence& sequence, Ask& ask) noexcept;
  [[nodiscard]] bool answer(Ask& ask, Answer answer) noexcept;
  void answer_or_free(Ask& ask, Answer answer) noexcept;

  [[nodiscard]] Sequence* find(const Ask& ask) noexcept;
  [[nodiscard]] Sequence* add(const Ask& ask, uint64_t now_ns) noexcept;
  void remove(Sequence& sequence) noexcept;
  void rest(Sequence& sequence, uint64_t now_ns) noexcept;
  void unrest(Sequence& sequence) noexcept;
  [[nodiscard]] bool is_resting(const Sequence& sequence) const noexcept {
    return sequence.running == nullptr && sequence.first_waiting == nullptr;
  }
  [[nodiscard]] bool is_late(const Sequence& sequence, uint64_t now_ns) const noexcept {
    return now_ns > sequence.last_ns && now_ns - sequence.last_ns > idle_ns_;
  }
  void drop_late(size_t most, uint64_t now_ns) noexcept;
  [[nodiscard]] Sequence*& bucket_of(uint64_t hash) noexcept {
    return buckets_[hash & (buckets_.size() - 1)];
  }

  const uint64_t idle_ns_;
  const size_t state_bytes_;
  const std::vector<std::byte> first_states_;  // of a sequence that begins; empty: zeros
  const bool ids_are_texts_;
  const answers::KeyedHash hash_;
  const Mapping bucket_memory_;
  const Mapping sequence_memory_;
  const Mapping state_memory_;
  const std::span<Sequence*> buckets_;
  const size_t most_;
  const size_t ask_count_;
  const std::unique_ptr<Ask[]> asks_;
  MpmcQueue<Ask*> free_asks_;
  SerialInbox<Ask> inbox_;
  // --- of the thread that does tasks ------------------------------------------------------------
  size_t made_ = 0;           // sequences that have been live once
  Sequence* free_ = nullptr;  // of those
  Sequence* oldest_ = nullptr;
  Sequence* newest_ = nullptr;
  // Read by any thread.
  std::atomic<uint64_t>& live_;
  std::atomic<uint64_t> started_{0};
  std::atomic<uint64_t> dropped_{0};
};

}  // namespace lumen::sequences
