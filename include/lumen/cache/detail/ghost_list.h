// GhostList: fingerprints of the keys that were evicted last, without the keys.
// Threads: one at a time.
// Memory: in reserve() only: 8 bytes a slot, 4 slots for 3 ghosts.
// Errors: reserve() throws the resource's exception, and has then changed nothing.
//
// A hash table of buckets of one cache line, eight slots each. A slot holds a fingerprint and the
// number of its insertion; a ghost is over when `entries` more were inserted after it, so no list
// is kept and nothing is removed in time. A full bucket loses its oldest ghost. This is the form
// that section 4.2 of the S3-FIFO paper (s3_fifo.h) describes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <utility>

namespace lumen::cache {

class GhostList {
 public:
  explicit GhostList(std::pmr::memory_resource* memory) noexcept : memory_(memory) {}
  GhostList(const GhostList&) = delete;
  GhostList& operator=(const GhostList&) = delete;
  ~GhostList() { give_back(); }

  // From now on `entries` ghosts are remembered. `entries_to_come`: how many will be wanted later,
  // so that the table grows to that size and no further; 0 where nobody knows.
  void reserve(size_t entries, size_t entries_to_come = 0) {
    if (entries <= entries_) return;
    if (const size_t wanted = buckets_for(entries); wanted > buckets_) {
      const size_t doubled = std::max(wanted, 2 * buckets_);
      grow(std::max(
          wanted,
          std::min(doubled, entries_to_come == 0 ? doubled : buckets_for(entries_to_come))));
    }
    entries_ = entries;
  }

  void insert(uint32_t fingerprint) noexcept {
    if (buckets_ == 0) return;
    put(table_[bucket_of(fingerprint)], {.fingerprint = fingerprint, .inserted = next_});
    if (++next_ == kEmpty) ++next_;
  }

  // True: it was there, and is no more.
  [[nodiscard]] bool take(uint32_t fingerprint) noexcept {
    if (buckets_ == 0) return false;
    for (Slot& slot : table_[bucket_of(fingerprint)].slots) {
      if (slot.fingerprint == fingerprint && is_live(slot)) {
        slot.inserted = kEmpty;
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] size_t bytes() const noexcept { return buckets_ * sizeof(Bucket); }

 private:
  static constexpr uint32_t kEmpty = 0;
  static constexpr size_t kSlots = 8;
  struct Slot {
    uint32_t fingerprint = 0;
    uint32_t inserted = kEmpty;
  };
  struct alignas(64) Bucket {
    Slot slots[kSlots];
  };
  static_assert(sizeof(Bucket) == 64);

  static constexpr size_t buckets_for(size_t entries) noexcept {
    return (entries * 4 / 3 + kSlots) / kSlots;
  }
  [[nodiscard]] size_t bucket_of(uint32_t fingerprint) const noexcept {
    return static_cast<size_t>((uint64_t{fingerprint} * buckets_) >> 32);
  }
  // Numbers go round after 2^32 insertions: differences stay right.
  [[nodiscard]] uint32_t age(const Slot& slot) const noexcept { return next_ - slot.inserted; }
  [[nodiscard]] bool is_live(const Slot& slot) const noexcept {
    return slot.inserted != kEmpty && age(slot) <= entries_;
  }

  void put(Bucket& bucket, Slot ghost) noexcept {
    Slot* place = bucket.slots;
    for (Slot& slot : bucket.slots) {
      if (slot.inserted == kEmpty || slot.fingerprint == ghost.fingerprint) {
        place = &slot;
        break;
      }
      if (age(slot) > age(*place)) place = &slot;
    }
    *place = ghost;
  }

  void grow(size_t buckets) {
    auto* table =
        static_cast<Bucket*>(memory_->allocate(buckets * sizeof(Bucket), alignof(Bucket)));
    std::uninitialized_default_construct_n(table, buckets);
    std::swap(table, table_);
    std::swap(buckets, buckets_);
    for (size_t i = 0; i < buckets; ++i) {
      for (const Slot& slot : table[i].slots) {
        if (is_live(slot)) put(table_[bucket_of(slot.fingerprint)], slot);
      }
    }
    if (table != nullptr) {
      memory_->deallocate(table, buckets * sizeof(Bucket), alignof(Bucket));
    }
  }
  void give_back() noexcept {
    if (table_ != nullptr) {
      memory_->deallocate(table_, buckets_ * sizeof(Bucket), alignof(Bucket));
    }
  }

  std::pmr::memory_resource* memory_;
  Bucket* table_ = nullptr;
  size_t buckets_ = 0;
  size_t entries_ = 0;
  uint32_t next_ = 1;
};

}  // namespace lumen::cache
