// S3Fifo: three queues that are first in, first out; a hit only counts.
// Threads, Memory, Errors: as eviction.h says; touch() comes from any thread at any time.
// 27 bytes an entry: a record of 16, a counter of 1, and 9.6 of ghosts (ghost_list.h).
//
// After Yang, Zhang, Qiu, Yue, Vigfusson: "FIFO queues are all you need for cache eviction"
// (SOSP 2023).
//
//   new key ───> small (a tenth) ── used twice ──> main ──┐ a count above 0: once more, with one less
//                   │                               ^ └───┘
//                   v evicted                       │  └──> evicted
//                 ghost (as many as main) ── comes again
//
// Most keys of a cache are never used again; they pass through `small` and take a tenth of the
// room. Until the first eviction a full `small` is passed over, so that the first keys are not all
// in it.
#pragma once

#include <lumen/cache/detail/ghost_list.h>
#include <lumen/cache/detail/record_list.h>

#include <atomic>

namespace lumen::cache {

class S3Fifo {
 public:
  static constexpr bool kKeepsRecords = true;
  static constexpr bool kConcurrentHits = true;

  S3Fifo(std::pmr::memory_resource* memory, uint64_t capacity_weight,
         size_t capacity_entries_hint) noexcept
      : records_(memory),
        counts_(memory),
        ghosts_(memory),
        small_target_(std::max<uint64_t>(capacity_weight / 10, 1)),
        ghosts_to_come_(main_part(capacity_entries_hint)) {}

  void reserve(Handle h) {
    counts_.reserve(h);
    ghosts_.reserve(main_part(size_t{h} + 1), ghosts_to_come_);
    records_.reserve(h);
  }

  void inserted(Handle h, uint64_t hash, uint64_t weight) noexcept {
    QueuedRecord& record = records_[h];
    record.hash = fold_hash(hash);
    record.set_weight(weight);
    set_count(h, 0);
    if (ghosts_.take(record.hash) || (!has_evicted_ && small_.weight() >= small_target_)) {
      main_.add_newest(records_, h);
    } else {
      small_.add_newest(records_, h);
    }
  }

  void reweighed(Handle h, uint64_t weight) noexcept {
    if (records_[h].queue == kSmall) small_.reweigh(records_, h, weight);
    if (records_[h].queue == kMain) main_.reweigh(records_, h, weight);
    touch(h);
  }
  void used(Handle h) noexcept { touch(h); }

  // Counts to 3 and then writes nothing. A load and a store, no read-modify-write: of two hits at
  // the same time one may be lost, and no machine instruction differs from that for a plain byte.
  void touch(Handle h) noexcept {
    const uint8_t now = count(h);
    if (now < kLargestCount) set_count(h, static_cast<uint8_t>(now + 1));
  }

  void erased(Handle h) noexcept {
    if (records_[h].queue == kSmall) {
      small_.remove(records_, h);
    } else if (records_[h].queue == kMain) {
      main_.remove(records_, h);
    }
  }

  [[nodiscard]] Handle victim() noexcept {
    has_evicted_ = true;
    unsigned moves_left = kMostMoves;
    for (;;) {
      if (small_.weight() > small_target_ || main_.is_empty()) {
        const Handle h = small_.oldest();
        if (h == kNoHandle) return kNoHandle;
        if (count(h) < kPromotedFrom || moves_left == 0) {
          ghosts_.insert(records_[h].hash);
          return h;
        }
        small_.remove(records_, h);
        set_count(h, 0);
        main_.add_newest(records_, h);
      } else {
        const Handle h = main_.oldest();
        const uint8_t uses = count(h);
        if (uses == 0 || moves_left == 0) return h;
        set_count(h, static_cast<uint8_t>(uses - 1));
        main_.make_newest(records_, h);
      }
      --moves_left;
    }
  }

  [[nodiscard]] size_t bytes() const noexcept {
    return records_.bytes() + counts_.bytes() + ghosts_.bytes();
  }

 private:
  static constexpr uint32_t kSmall = 1;
  static constexpr uint32_t kMain = 2;
  static constexpr uint8_t kLargestCount = 3;
  static constexpr uint8_t kPromotedFrom = 2;
  // Bounds one victim(), where nothing was evicted while every entry was used: some 20 us.
  static constexpr unsigned kMostMoves = 1024;

  static constexpr size_t main_part(size_t entries) noexcept { return entries - entries / 10; }

  // relaxed everywhere: a count is a hint, and the memory under it never moves
  [[nodiscard]] uint8_t count(Handle h) noexcept {
    return std::atomic_ref<uint8_t>(counts_[h].uses).load(std::memory_order_relaxed);
  }
  void set_count(Handle h, uint8_t uses) noexcept {
    std::atomic_ref<uint8_t>(counts_[h].uses).store(uses, std::memory_order_relaxed);
  }

  struct Count {
    uint8_t uses = 0;
  };

  RecordArray<QueuedRecord> records_;
  RecordArray<Count> counts_;  // apart from the records: readers write here only
  GhostList ghosts_;
  WeighedQueue<kSmall> small_;
  WeighedQueue<kMain> main_;
  uint64_t small_target_;
  size_t ghosts_to_come_;
  bool has_evicted_ = false;
};
static_assert(EvictionPolicy<S3Fifo>);

}  // namespace lumen::cache
