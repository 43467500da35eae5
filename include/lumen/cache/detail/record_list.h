// RecordList: entries in an order, as a doubly linked list of handles through a RecordArray.
// Threads: one at a time. Memory: none of its own. Errors: none.
//
// An entry is added as the newest and looked for as the oldest; any can be unlinked.
#pragma once

#include <lumen/cache/detail/record_array.h>

#include <algorithm>
#include <cstdint>

namespace lumen::cache {

// The record that a policy with several queues keeps of an entry, 16 bytes.
struct QueuedRecord {
  static constexpr uint32_t kNoQueue = 0;
  static constexpr uint32_t kLargestWeight = (1U << 30) - 1;  // heavier entries count as this

  Handle newer = kNoHandle;
  Handle older = kNoHandle;
  uint32_t hash = 0;
  uint32_t queue : 2 = kNoQueue;
  uint32_t weight : 30 = 0;

  void set_weight(uint64_t wanted) noexcept {
    weight = static_cast<uint32_t>(std::min<uint64_t>(wanted, kLargestWeight)) & kLargestWeight;
  }
};
static_assert(sizeof(QueuedRecord) == 16);

// 32 bits of a hash that depend on all its bits, since the keys of one shard may share some.
[[nodiscard]] inline uint32_t fold_hash(uint64_t hash) noexcept {
  constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
  return static_cast<uint32_t>((hash * kGoldenRatio) >> 32);
}

template <typename Record>
class RecordList {
 public:
  using Records = RecordArray<Record>;

  [[nodiscard]] Handle newest() const noexcept { return newest_; }
  [[nodiscard]] Handle oldest() const noexcept { return oldest_; }
  [[nodiscard]] bool is_empty() const noexcept { return newest_ == kNoHandle; }

  void add_newest(Records& records, Handle h) noexcept {
    Record& record = records[h];
    record.newer = kNoHandle;
    record.older = newest_;
    (newest_ == kNoHandle ? oldest_ : records[newest_].newer) = h;
    newest_ = h;
  }
  void unlink(Records& records, Handle h) noexcept {
    const Record& record = records[h];
    (record.newer == kNoHandle ? newest_ : records[record.newer].older) = record.older;
    (record.older == kNoHandle ? oldest_ : records[record.older].newer) = record.newer;
  }

 private:
  Handle newest_ = kNoHandle;
  Handle oldest_ = kNoHandle;
};

// One of the queues of a policy: a list that knows its weight, and marks its entries with its
// number.
template <uint32_t kNumber>
class WeighedQueue {
 public:
  using Records = RecordArray<QueuedRecord>;

  [[nodiscard]] Handle oldest() const noexcept { return list_.oldest(); }
  [[nodiscard]] bool is_empty() const noexcept { return list_.is_empty(); }
  [[nodiscard]] uint64_t weight() const noexcept { return weight_; }

  void add_newest(Records& records, Handle h) noexcept {
    QueuedRecord& record = records[h];
    record.queue = kNumber;
    weight_ += record.weight;
    list_.add_newest(records, h);
  }
  void remove(Records& records, Handle h) noexcept {
    QueuedRecord& record = records[h];
    record.queue = QueuedRecord::kNoQueue;
    weight_ -= record.weight;
    list_.unlink(records, h);
  }
  void make_newest(Records& records, Handle h) noexcept {
    if (list_.newest() == h) return;
    list_.unlink(records, h);
    list_.add_newest(records, h);
  }
  void reweigh(Records& records, Handle h, uint64_t weight) noexcept {
    QueuedRecord& record = records[h];
    weight_ -= record.weight;
    record.set_weight(weight);
    weight_ += record.weight;
  }

 private:
  RecordList<QueuedRecord> list_;
  uint64_t weight_ = 0;
};

}  // namespace lumen::cache
