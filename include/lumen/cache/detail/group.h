// A group: 16 slots of a flat table with a control byte each, which are compared at once.
// Threads: as access.h says. Memory: none of its own. Errors: never.
//
// A control byte is kEmpty, kRemoved (a slot that searches must pass, since its group was full
// once) or a tag, 8 bits of the entry's hash. One comparison finds the slots whose tag fits; of
// those that do not hold the key there is one in 254. The idea is that of Google's Swiss tables and
// Meta's F14 (both 2017).
//
//   control bytes  16 x 1 ┐
//   deadlines      16 x 2 ├ one cache line or two
//   handles        16 x 4   only where the eviction policy keeps records
//   entries        16 x sizeof(Entry)
#pragma once

#include <lumen/cache/detail/access.h>
#include <lumen/cache/detail/deadlines.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace lumen::cache {

inline constexpr size_t kGroupSlots = 16;
inline constexpr uint8_t kEmpty = 0;
inline constexpr uint8_t kRemoved = 1;
inline constexpr uint8_t kFirstTag = 2;

// Bits 32 to 39 of the hash: those above choose the segment, those below the group.
[[nodiscard]] inline uint8_t tag_of(uint64_t hash) noexcept {
  const auto tag = static_cast<uint8_t>(hash >> 32);
  return tag < kFirstTag ? kFirstTag : tag;
}
// The same in all 16 bytes, as a search compares it.
#if defined(__SSE2__)
struct Tags {
  explicit Tags(uint64_t hash) noexcept
      : bytes(_mm_max_epu8(  // NOLINT(portability-simd-intrinsics): the portable way stands below
            _mm_set1_epi8(static_cast<char>(hash >> 32)), _mm_set1_epi8(kFirstTag))) {}
  __m128i bytes;
};
#else
struct Tags {
  explicit Tags(uint64_t hash) noexcept : byte(tag_of(hash)) {}
  uint8_t byte;
};
#endif

// A set of slots of one group, taken one by one from the first on.
class SlotSet {
 public:
  explicit SlotSet(uint32_t bits) noexcept : bits_(bits) {}
  [[nodiscard]] bool empty() const noexcept { return bits_ == 0; }
  [[nodiscard]] size_t first() const noexcept {
    return static_cast<size_t>(std::countr_zero(bits_));
  }
  void drop_first() noexcept { bits_ &= bits_ - 1; }
  [[nodiscard]] uint32_t bits() const noexcept { return bits_; }

 private:
  uint32_t bits_;
};

// The control bytes of a group as they were at one look.
class Control {
 public:
#if defined(__SSE2__)
  template <bool kShared>
  [[nodiscard]] static Control load(const std::array<uint64_t, 2>& words) noexcept {
    if constexpr (kShared) {
      const auto low = static_cast<long long>(load_cell<true>(words[0]));
      const auto high = static_cast<long long>(load_cell<true>(words[1]));
      return Control(_mm_set_epi64x(high, low));
    } else {
      return Control(_mm_load_si128(reinterpret_cast<const __m128i*>(words.data())));
    }
  }
  [[nodiscard]] SlotSet equal_to(uint8_t value) const noexcept {
    return set(_mm_cmpeq_epi8(bytes_, _mm_set1_epi8(static_cast<char>(value))));
  }
  [[nodiscard]] SlotSet with(Tags tags) const noexcept {
    return set(_mm_cmpeq_epi8(bytes_, tags.bytes));
  }
  // Empty or removed.
  [[nodiscard]] SlotSet free_slots() const noexcept {
    // NOLINTNEXTLINE(portability-simd-intrinsics): the portable way stands below
    return set(_mm_cmpeq_epi8(_mm_min_epu8(bytes_, _mm_set1_epi8(kRemoved)), bytes_));
  }

 private:
  explicit Control(__m128i bytes) noexcept : bytes_(bytes) {}
  [[nodiscard]] static SlotSet set(__m128i mask) noexcept {
    return SlotSet(static_cast<uint32_t>(_mm_movemask_epi8(mask)));
  }
  __m128i bytes_;
#else
  template <bool kShared>
  [[nodiscard]] static Control load(const std::array<uint64_t, 2>& words) noexcept {
    return Control({load_cell<kShared>(words[0]), load_cell<kShared>(words[1])});
  }
  [[nodiscard]] SlotSet equal_to(uint8_t value) const noexcept {
    return set([value](uint8_t byte) { return byte == value; });
  }
  [[nodiscard]] SlotSet with(Tags tags) const noexcept { return equal_to(tags.byte); }
  [[nodiscard]] SlotSet free_slots() const noexcept {
    return set([](uint8_t byte) { return byte <= kRemoved; });
  }

 private:
  explicit Control(std::array<uint64_t, 2> words) noexcept
      : bytes_(std::bit_cast<std::array<uint8_t, kGroupSlots>>(words)) {}
  template <typename F>
  [[nodiscard]] SlotSet set(F&& holds) const noexcept {
    uint32_t bits = 0;
    for (size_t i = 0; i < kGroupSlots; ++i) bits |= uint32_t{holds(bytes_[i])} << i;
    return SlotSet(bits);
  }
  std::array<uint8_t, kGroupSlots> bytes_;
#endif

 public:
  [[nodiscard]] SlotSet taken_slots() const noexcept {
    return SlotSet(~free_slots().bits() & 0xffffu);
  }
};

struct NoHandles {};
struct Handles {
  std::array<uint32_t, kGroupSlots> handles;
};

// Groups lie one after the other without a gap. Each on lines of its own would take 8 % more for
// two ints, and would be no quicker.
template <typename Entry, bool kShared, bool kRecords>
struct alignas(16) Group : std::conditional_t<kRecords, Handles, NoHandles> {
  // An entry's own place: raw memory, because most slots of a new group hold none.
  struct alignas(word_bytes(sizeof(Entry)) > alignof(Entry) ? word_bytes(sizeof(Entry))
                                                            : alignof(Entry)) Room {
    std::array<std::byte, sizeof(Entry)> bytes;
    [[nodiscard]] Entry& entry() noexcept { return *reinterpret_cast<Entry*>(bytes.data()); }
    [[nodiscard]] const Entry& entry() const noexcept {
      return *reinterpret_cast<const Entry*>(bytes.data());
    }
  };

  alignas(16) std::array<uint64_t, 2> control;
  std::array<DeadlineId, kGroupSlots> deadlines;
  std::array<Room, kGroupSlots> rooms;

  // Asks for the lines behind the control bytes' own, before it is known which of them has the
  // entry: among ten million that takes 10 % off a get. All of them where they are few: of a group
  // of many most would not be looked at. always_inline: g++ 12 drops calls of a function that only
  // prefetches.
  [[gnu::always_inline]] void prefetch_entries() const noexcept {
    constexpr size_t kLine = 64;
    constexpr size_t kFewLines = 6;
    constexpr size_t kLinesOfMany = 3;
    constexpr size_t kLines = (sizeof(Group) + kLine - 1) / kLine;
    const auto* first = reinterpret_cast<const char*>(this);
    for (size_t line = 1; line < (kLines <= kFewLines ? kLines : kLinesOfMany); ++line) {
      __builtin_prefetch(first + line * kLine);
    }
  }
  [[nodiscard]] Control look() const noexcept { return Control::load<false>(control); }
  [[nodiscard]] Control look_shared() const noexcept { return Control::load<true>(control); }
  // Whole words, as readers load them.
  void set_control(size_t slot, uint8_t value) noexcept {
    if constexpr (!kShared) {
      reinterpret_cast<uint8_t*>(control.data())[slot] = value;
      return;
    }
    uint64_t& word = control[slot / 8];
    const uint64_t shift = slot % 8 * 8;
    store_cell<kShared>(word, (word & ~(uint64_t{0xff} << shift)) | uint64_t{value} << shift);
  }
  [[nodiscard]] uint8_t control_of(size_t slot) const noexcept {
    return reinterpret_cast<const uint8_t*>(control.data())[slot];
  }
  [[nodiscard]] Entry& entry(size_t slot) noexcept { return rooms[slot].entry(); }
  [[nodiscard]] const Entry& entry(size_t slot) const noexcept { return rooms[slot].entry(); }
};

}  // namespace lumen::cache
