// AnswerStore: the stored answers of one model, in one region of max_bytes that is there from the
// beginning.
//
//   index: key ─► slot, generation        slot: generation, ready, holders ─► block of the region
//
// A thread that finds an answer holds it, by a count that goes up only while the slot is of the
// generation that the index has named; the index is a holder too, until the answer leaves it. The
// last holder hands the slot to the list of those to be freed, and the next insert frees them. So
// an answer that a slow client is still reading stays whole and takes its place in the region,
// however long ago it was evicted.
//
// One thread inserts at a time. Another that comes meanwhile gives up after a few looks (kBusy): it
// has its answer, and nobody has to wait for the cache.
//
// Threads: any. Memory: all of it at create(). Errors: PutOutcome; create() says why there is no
// region.
#pragma once

#include "answers/answer_index.h"
#include "answers/block_region.h"

#include <lumen/base/cache_line.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lumen::answers {

class AnswerStore;

struct alignas(kCacheLine) AnswerSlot {
  // generation << 32 | kReady | holders
  std::atomic<uint64_t> state{0};
  AnswerStore* store = nullptr;
  uint32_t number = 0;
  uint32_t block = 0;  // of the region; kNoBlock: none
  uint32_t next = 0;   // in the list of the free, or of those to be freed
};

enum class PutOutcome : uint8_t { kStored, kBusy, kNoRoom, kTooLarge, kNotAdmitted };

class AnswerStore {
 public:
  // An answer larger than this share of max_bytes is not stored: it would be most of the region.
  static constexpr uint64_t kLargestShare = 4;
  // The index lets in so much of the region: the rest keeps free blocks large enough, and holds
  // answers that were evicted while they are read.
  static constexpr uint64_t kUsedOfEight = 7;
  // A stored answer counts as at least so many bytes, so that the number of slots follows from
  // max_bytes.
  static constexpr uint64_t kLeastBytes = 1024;

  [[nodiscard]] static Result<std::unique_ptr<AnswerStore>> create(
      const models::ResponseCacheOptions& options);
  ~AnswerStore();
  AnswerStore(const AnswerStore&) = delete;
  AnswerStore& operator=(const AnswerStore&) = delete;

  // Held; nullptr: there is none.
  [[nodiscard]] AnswerSlot* find(const Hash128& key) noexcept;
  [[nodiscard]] std::byte* data(const AnswerSlot& slot) noexcept {
    return region_.data(slot.block);
  }
  // One more holder, beside one that there is.
  void hold(AnswerSlot& slot) noexcept;
  void let_go(AnswerSlot& slot) noexcept;

  struct Place {
    PutOutcome outcome;
    AnswerSlot* slot;  // held, with room for the bytes; nullptr: none
  };
  // No thread finds it before publish(); the key's earlier answer is gone.
  [[nodiscard]] Place begin_put(const Hash128& key, uint64_t bytes,
                                std::chrono::nanoseconds ttl) noexcept;
  void publish(AnswerSlot& slot) noexcept;

  // For metrics and tests; a moment old.
  [[nodiscard]] uint64_t bytes_used() const noexcept;
  [[nodiscard]] uint64_t bytes() const noexcept { return region_.units() * kUnitBytes; }

 private:
  friend void on_answer_removed(AnswerSlot& slot) noexcept;
  static constexpr size_t kUnitBytes = BlockRegion::kUnitBytes;
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint64_t kReady = uint64_t{1} << 31;
  static constexpr uint64_t kHolders = kReady - 1;

  AnswerStore(BlockRegion region, const models::ResponseCacheOptions& options);
  [[nodiscard]] bool try_enter() noexcept;
  void leave() noexcept;
  void free_retired() noexcept;
  void free_slot(AnswerSlot& slot) noexcept;
  [[nodiscard]] Place put_inside(const Hash128& key, uint32_t units,
                                 std::chrono::nanoseconds ttl) noexcept;

  // By the thread inside.
  BlockRegion region_;
  uint32_t free_ = kNone;
  std::atomic<uint32_t> used_units_{0};

  std::vector<AnswerSlot> slots_;
  alignas(kFalseSharingRange) std::atomic<bool> is_inside_{false};
  alignas(kFalseSharingRange) std::atomic<uint32_t> retired_{kNone};
  // Last: it lets go of all slots when it goes.
  std::unique_ptr<AnswerIndex> index_;
};

}  // namespace lumen::answers
