// A segment: the slots for a share of all hashes, as a row of groups in a region of its own.
//
// A region is address space for the largest segment; only the pages that the segment's groups reach
// are there. So a segment grows in place, a quarter at a time: its entries are copied aside and put
// back where they belong among more groups. One that is as large as its region is split in two.
// Where ids come in order it grows by a whole block of neighbours (hash.h), and is split where it
// is half as large, so that an entry moves once or twice.
// Memory never doubles, and no step takes longer than to move 16,384 entries. After a split each
// part gets up to a quarter more room than it needs, at random: else all segments would be full at
// the same time, and the memory of an entry would swing by a quarter.
//
// Threads: as access.h says. Memory: descriptor and region are SegmentStore's. Errors: never. With
// kShared the version is odd while a writer changes the segment, and while the descriptor is of
// none. A reader that finds the same even version before and after has seen one state. Descriptors
// and regions stay mapped until the table ends, so a reader that comes late finds numbers that mean
// nothing, never memory that is not there, and the version tells it.
#pragma once

#include <lumen/cache/detail/group.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lumen::cache {

inline constexpr size_t kRegionBytes = 192
                                       << 10;  // half of a small L2 cache: growth copies one aside

// Groups of the largest segment that hashes take apart.
template <typename GroupT>
inline constexpr uint32_t kMostGroups =
    static_cast<uint32_t>(std::clamp<size_t>(kRegionBytes / sizeof(GroupT), 16, 1024));

// Slots that may be taken, removed ones included: 31 of 32. Searches get long above that, and
// memory is wasted below: filled from 78 to 97 % a segment is 87 % full on average.
[[nodiscard]] constexpr uint32_t usable_slots(uint32_t groups) noexcept {
  return groups * static_cast<uint32_t>(kGroupSlots) - (groups + 1) / 2;
}
// The least groups for that many entries.
[[nodiscard]] constexpr size_t groups_for(size_t entries) noexcept { return entries * 2 / 31 + 1; }
static_assert(usable_slots(1) == 15 && groups_for(14) == 1 && groups_for(16) == 2);

template <typename GroupT, bool kShared>
struct alignas(64) Segment {
  // Readers'.
  uint64_t version = 1;  // 64 bits, so that none comes back while a reader stands still
  uint32_t groups = 0;
  GroupT* data = nullptr;
  // The writer's, on a line of its own: a put changes them, and a read must not miss for that.
  alignas(64) uint32_t left = 0;  // empty slots that may still be taken
  uint32_t entries = 0;
  uint32_t capacity = 0;  // groups that the region has room for
  uint32_t least = 0;     // groups that were reserved
  uint64_t first = 0;     // its share of the hashes: from first on, in 2^-32 of all
  uint64_t length = 0;
  Segment* next = nullptr;  // of those that are free

  [[nodiscard]] GroupT* group(uint32_t index) const noexcept { return data + index; }
  // Where a search for a hash begins.
  [[nodiscard]] static uint32_t home(uint64_t hash, uint32_t groups) noexcept {
    return static_cast<uint32_t>((hash & 0xffff'ffffu) * groups >> 32);
  }

  // Between the two a reader can't take the values that it sees.
  void begin_write() noexcept {
    if constexpr (kShared) {
      // relaxed: every store of the write is a release, so none is seen before this one.
      std::atomic_ref<uint64_t>(version).store(version + 1, std::memory_order_relaxed);
    }
  }
  void end_write() noexcept { store_cell<kShared>(version, version + 1); }
  // From here on readers look there.
  void show(GroupT* to, uint32_t count) noexcept {
    begin_write();
    store_cell<kShared>(data, to);
    store_cell<kShared>(groups, count);
    end_write();
  }
};

}  // namespace lumen::cache
