// Lru: the entry that was not used for the longest time goes first.
// Threads, Memory, Errors: as eviction.h says. 8 bytes an entry, at most 10 with reserved ones.
//
// Exact, in the order in which the uses are told: at once in a OneThread cache, through a lossy
// buffer in a Concurrent one. Weights change nothing: the oldest entry goes, until the cache is
// within its bound.
#pragma once

#include <lumen/cache/detail/record_list.h>

namespace lumen::cache {

class Lru {
 public:
  static constexpr bool kKeepsRecords = true;
  static constexpr bool kConcurrentHits = false;

  Lru(std::pmr::memory_resource* memory, uint64_t /*capacity_weight*/,
      size_t /*capacity_entries_hint*/) noexcept
      : records_(memory) {}

  void reserve(Handle h) { records_.reserve(h); }
  void inserted(Handle h, uint64_t /*hash*/, uint64_t /*weight*/) noexcept {
    list_.add_newest(records_, h);
  }
  void reweighed(Handle h, uint64_t /*weight*/) noexcept { used(h); }
  void used(Handle h) noexcept {
    if (list_.newest() == h || !is_linked(h)) return;
    list_.unlink(records_, h);
    list_.add_newest(records_, h);
  }
  void erased(Handle h) noexcept {
    if (!is_linked(h)) return;
    list_.unlink(records_, h);
    records_[h].newer = kUnlinked;
  }
  [[nodiscard]] Handle victim() noexcept { return list_.oldest(); }

  [[nodiscard]] size_t bytes() const noexcept { return records_.bytes(); }

 private:
  static constexpr Handle kUnlinked = kNoHandle - 1;
  struct Record {
    Handle newer = kUnlinked;
    Handle older = kNoHandle;
  };
  static_assert(sizeof(Record) == 8);

  [[nodiscard]] bool is_linked(Handle h) const noexcept { return records_[h].newer != kUnlinked; }

  RecordArray<Record> records_;
  RecordList<Record> list_;
};
static_assert(EvictionPolicy<Lru>);

}  // namespace lumen::cache
