// RecordArray: an array that grows without moving its elements.
// Threads: one at a time; operator[] also beside reserve(), of a record that was told to the reader
//   after it was reserved.
// Memory: from the given resource, in reserve() only, given back by the destructor.
// Errors: reserve() throws std::bad_alloc (or the resource's exception) and has then changed
// nothing that a caller sees.
//
// Four segments for each doubling: of 256 records, 320 ... in the end a quarter of the records that
// are there, so at most a fifth of the memory is unused. A plain array that doubles would stop a
// put to copy the records, would hold both copies meanwhile, and would pull the memory away under
// readers that tell of a hit (S3Fifo::touch()). It costs a count of leading zeros and one more
// load, from the directory of 89 pointers in the object itself.
#pragma once

#include <lumen/cache/eviction.h>

#include <array>
#include <bit>
#include <memory>
#include <memory_resource>
#include <type_traits>

namespace lumen::cache {

template <typename Record>
class RecordArray {
 public:
  explicit RecordArray(std::pmr::memory_resource* memory) noexcept : memory_(memory) {}
  RecordArray(const RecordArray&) = delete;
  RecordArray& operator=(const RecordArray&) = delete;
  ~RecordArray() {
    for (size_t i = 0; i < segments_made_; ++i) {
      memory_->deallocate(segments_[i], bytes_of(i), alignof(Record));
    }
  }

  // Records [0, h] are there afterwards, new ones as Record() makes them.
  void reserve(Handle h) {
    static_assert(std::is_trivially_destructible_v<Record>);
    static_assert(std::is_nothrow_default_constructible_v<Record>);
    const size_t wanted = place_of(h).segment + 1;
    while (segments_made_ < wanted) {
      const size_t bytes = bytes_of(segments_made_);
      auto* segment = static_cast<Record*>(memory_->allocate(bytes, alignof(Record)));
      std::uninitialized_default_construct_n(segment, bytes / sizeof(Record));
      segments_[segments_made_++] = segment;
    }
  }

  [[nodiscard]] Record& operator[](Handle h) noexcept {
    const Place place = place_of(h);
    return segments_[place.segment][place.offset];
  }
  [[nodiscard]] const Record& operator[](Handle h) const noexcept {
    const Place place = place_of(h);
    return segments_[place.segment][place.offset];
  }

  [[nodiscard]] size_t bytes() const noexcept {
    size_t sum = 0;
    for (size_t i = 0; i < segments_made_; ++i) sum += bytes_of(i);
    return sum;
  }

 private:
  // As a floating-point number has its mantissa: the two bits after the leading one number the
  // segment within its doubling, the others the record. kBias makes the first segments equal.
  static constexpr uint64_t kBias = 1024;
  static constexpr unsigned kFirstShift = 8;
  static constexpr size_t kSegments = 4 * (30 - kFirstShift) + 1;

  struct Place {
    size_t segment;
    size_t offset;
  };
  static constexpr Place place_of(Handle h) noexcept {
    const uint64_t biased = h + kBias;
    const auto shift = static_cast<unsigned>(std::bit_width(biased)) - 3;
    return {.segment = 4 * (shift - kFirstShift) + (biased >> shift) - 4,
            .offset = biased & ((uint64_t{1} << shift) - 1)};
  }
  static constexpr size_t bytes_of(size_t segment) noexcept {
    return sizeof(Record) << (segment / 4 + kFirstShift);
  }
  static_assert(place_of(0).segment == 0 && place_of(0).offset == 0);
  static_assert(place_of(256).segment == 1 && place_of(256).offset == 0);
  static_assert(place_of(kNoHandle).segment == kSegments - 1);

  std::pmr::memory_resource* memory_;
  size_t segments_made_ = 0;
  std::array<Record*, kSegments> segments_{};
};

}  // namespace lumen::cache
