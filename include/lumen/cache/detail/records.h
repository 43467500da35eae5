// Records: the data of an eviction policy beside the table: handles, and the hash by which a victim
// is found again.
// Threads: one at a time; touch() of a policy with kConcurrentHits from any. Memory: 8 bytes an
// entry and the policy's own. Errors: std::bad_alloc by reserve(), nothing changed.
#pragma once

#include <lumen/cache/detail/record_array.h>
#include <lumen/cache/eviction.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>

namespace lumen::cache {

template <typename Eviction, bool kKept = Eviction::kKeepsRecords>
class Records {
 public:
  Records(std::pmr::memory_resource* memory, uint64_t weight, size_t entries)
      : eviction_(memory, weight, entries), hashes_(memory) {}

  // The handle of the next entry: its records are there afterwards.
  [[nodiscard]] Handle reserve() {
    if (first_free_ != kNoHandle) return first_free_;
    hashes_.reserve(handles_);
    eviction_.reserve(handles_);
    return handles_;
  }
  void insert(Handle handle, uint64_t hash, uint64_t mixed, uint64_t weight) noexcept {
    if (handle == first_free_) {
      first_free_ = static_cast<Handle>(hashes_[handle]);
    } else {
      ++handles_;
    }
    hashes_[handle] = hash;
    ++entries_;
    weight_ += weight;
    eviction_.inserted(handle, mixed, weight);
  }
  void reweigh(Handle handle, uint64_t before, uint64_t after) noexcept {
    weight_ += after - before;
    eviction_.reweighed(handle, after);
  }
  void remove(Handle handle, uint64_t weight) noexcept {
    eviction_.erased(handle);
    --entries_;
    weight_ -= weight;
    hashes_[handle] = first_free_;
    first_free_ = handle;
  }
  [[nodiscard]] Eviction& eviction() noexcept { return eviction_; }
  [[nodiscard]] const Eviction& eviction() const noexcept { return eviction_; }
  [[nodiscard]] uint64_t hash(Handle handle) const noexcept { return hashes_[handle]; }
  [[nodiscard]] size_t entries() const noexcept { return entries_; }
  [[nodiscard]] uint64_t weight() const noexcept { return weight_; }
  [[nodiscard]] size_t bytes() const noexcept { return hashes_.bytes() + eviction_bytes(); }
  void reserve_all(size_t entries) {
    if (entries == 0) return;
    hashes_.reserve(static_cast<Handle>(entries - 1));
    eviction_.reserve(static_cast<Handle>(entries - 1));
  }

 private:
  // A policy tells its memory, if it has bytes().
  [[nodiscard]] size_t eviction_bytes() const noexcept {
    if constexpr (requires { eviction_.bytes(); }) return eviction_.bytes();
    return 0;
  }

  Eviction eviction_;
  RecordArray<uint64_t> hashes_;  // of a free handle: the next free one
  Handle handles_ = 0;            // that were ever given
  Handle first_free_ = kNoHandle;
  size_t entries_ = 0;
  uint64_t weight_ = 0;
};

template <typename Eviction>
class Records<Eviction, false> {
 public:
  Records(std::pmr::memory_resource*, uint64_t, size_t) noexcept {}
  [[nodiscard]] Eviction& eviction() noexcept { return eviction_; }
  [[nodiscard]] size_t bytes() const noexcept { return 0; }
  void reserve_all(size_t) noexcept {}

 private:
  [[no_unique_address]] Eviction eviction_;
};

}  // namespace lumen::cache
