// Directory: which segment has a hash, by its highest bits.
//
// A segment has a run of neighbouring entries of the directory, of any length, and is split between
// two of them. The directory doubles when a run is too short for that: it has 8 to 16 entries of 8
// bytes for up to 16,384 slots.
//
// Threads: as access.h says. Memory: doubling; with kShared an outgrown array is kept until the
// end, because a reader may be looking at it (together less than the newest). Errors:
// std::bad_alloc, nothing changed.
#pragma once

#include <lumen/cache/detail/access.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

namespace lumen::cache {

template <typename SegmentT, bool kShared>
class Directory {
 public:
  // Hashes are shared out in 2^-32 of all.
  static constexpr uint64_t kWhole = uint64_t{1} << 32;
  static constexpr uint32_t kFirstBits = 3;
  static constexpr uint32_t kMostBits = 24;  // 128 MiB: 1.4 million segments, 15 billion entries

  explicit Directory(std::pmr::memory_resource* memory) : arrays_(memory) { grow(kFirstBits); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  [[nodiscard]] SegmentT* segment_of(uint64_t hash) const noexcept {
    return shown_->segments[hash >> shown_->shift];
  }
  // A reader's view of it, to be asked about again.
  struct Seen {
    const void* array;
    SegmentT* const* entry;
    SegmentT* segment;
  };
  [[nodiscard]] Seen look(uint64_t hash) const noexcept {
    const Shown* shown = load_cell<kShared>(shown_);
    SegmentT* const* entry = &shown->segments[hash >> shown->shift];
    return {shown, entry, load_cell<kShared>(*entry)};
  }
  [[nodiscard]] bool still_so(const Seen& seen) const noexcept {
    return load_cell<kShared>(shown_) == seen.array &&
           load_cell<kShared>(*seen.entry) == seen.segment;
  }

  [[nodiscard]] SegmentT* segment_at(uint64_t first) const noexcept {
    return shown_->segments[first >> (32 - bits_)];
  }
  void set(uint64_t first, uint64_t length, SegmentT* segment) noexcept {
    for (uint64_t i = first >> (32 - bits_); i < (first + length) >> (32 - bits_); ++i) {
      store_cell<kShared>(shown_->segments[i], segment);
    }
  }
  // The entries of a run. A segment can be split between any two of them.
  [[nodiscard]] uint64_t entries_of(uint64_t length) const noexcept {
    return length >> (32 - bits_);
  }
  [[nodiscard]] uint64_t length_of(uint64_t entries) const noexcept {
    return entries << (32 - bits_);
  }
  // Twice as many entries for all. False: it is as large as it may be.
  [[nodiscard]] bool double_entries() {
    if (bits_ == kMostBits) return false;
    grow(bits_ + 1);
    return true;
  }
  [[nodiscard]] uint64_t entries() const noexcept { return uint64_t{1} << bits_; }
  [[nodiscard]] size_t bytes() const noexcept {
    return (sizeof(SegmentT*) << bits_) + sizeof(Shown);
  }
  [[nodiscard]] size_t bytes_retired() const noexcept { return retired_; }
  template <typename F>
  void for_each_segment(F&& f) const {
    for (uint64_t first = 0; first < kWhole;) {
      SegmentT* segment = segment_at(first);
      first = segment->first + segment->length;
      f(*segment);
    }
  }

 private:
  struct Shown {
    uint64_t shift;
    SegmentT* segments[1];  // 2^(64 - shift)
  };

  void grow(uint32_t bits) {
    std::pmr::vector<uint64_t> array((size_t{1} << bits) + 1, arrays_.get_allocator().resource());
    auto* shown = reinterpret_cast<Shown*>(array.data());
    shown->shift = 64 - bits;
    if (shown_ != nullptr) {
      for (size_t i = 0; i < size_t{1} << bits; ++i) {
        shown->segments[i] = shown_->segments[i >> (bits - bits_)];
      }
    }
    arrays_.reserve(arrays_.size() + 1);
    if (kShared && shown_ != nullptr) retired_ += bytes();
    bits_ = bits;
    store_cell<kShared>(shown_, shown);
    if constexpr (!kShared) arrays_.clear();
    arrays_.push_back(std::move(array));
  }

  Shown* shown_ = nullptr;
  uint32_t bits_ = 0;
  size_t retired_ = 0;
  std::pmr::vector<std::pmr::vector<uint64_t>> arrays_;
};

}  // namespace lumen::cache
