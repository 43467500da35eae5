// How a Table grows: a full segment gets a quarter more groups, or is split in two. See
// table_class.h.
// Threads, Memory, Errors: as there. A step moves at most 16,384 entries, 10 to 50 µs; readers go
// on meanwhile, in the entries that were put aside.
#pragma once

#include <lumen/cache/detail/table_class.h>

#include <cmath>
#include <cstring>
#include <stdexcept>

namespace lumen::cache {

// Fills groups that no search finds yet.
template <typename K, typename V, typename Set>
class Table<K, V, Set>::Filler {
 public:
  explicit Filler(Groups to) noexcept : to_(to) { empty_out(to); }

  // Moves an entry here. Its control byte is left where it was, to tell where searches may stop.
  void add(uint64_t hash, GroupT& from, size_t from_slot) noexcept {
    uint32_t at = SegmentT::home(hash, to_.count);
    while (taken(at) == kGroupSlots) at = at + 1 == to_.count ? 0 : at + 1;
    const size_t slot = taken(at);
    if (to_.count <= kMost) ++taken_[at];
    move_entry(from, from_slot, to_.data[at], slot);
  }
  void add_all(Table& table, Groups from) noexcept {
    table.each_hashed(from,
                      [&](uint64_t hash, GroupT& group, size_t slot) { add(hash, group, slot); });
  }
  // The counts of a segment that is these groups now.
  void count_for(SegmentT& segment, uint32_t entries) const noexcept {
    segment.entries = entries;
    segment.left = usable_slots(to_.count) - entries;
  }

  static void move_entry(GroupT& from, size_t from_slot, GroupT& to, size_t slot) noexcept {
    Entry& entry = from.entry(from_slot);
    if constexpr (kShared) {
      store_words(to.entry(slot), entry);
    } else {
      ::new (static_cast<void*>(&to.entry(slot))) Entry(std::move(entry));
      std::destroy_at(&entry);
    }
    store_cell<kShared>(to.deadlines[slot], from.deadlines[from_slot]);
    if constexpr (kRecords) store_cell<kShared>(to.handles[slot], from.handles[from_slot]);
    to.set_control(slot, from.control_of(from_slot));
  }

 private:
  static constexpr uint32_t kMost = kMostGroups<GroupT>;

  // The slots of a group are taken from the first on, so a count says which is next.
  [[nodiscard]] size_t taken(uint32_t at) const noexcept {
    if (to_.count <= kMost) return taken_[at];
    const SlotSet empty = to_.data[at].look().equal_to(kEmpty);
    return empty.empty() ? kGroupSlots : empty.first();
  }

  Groups to_;
  std::array<uint8_t, kMost> taken_{};
};

template <typename K, typename V, typename Set>
void Table<K, V, Set>::empty_out(Groups groups) noexcept {
  for (uint32_t at = 0; at < groups.count; ++at) {
    store_cell<kShared>(groups.data[at].control[0], 0);
    store_cell<kShared>(groups.data[at].control[1], 0);
  }
}

template <typename K, typename V, typename Set>
auto Table<K, V, Set>::new_segment(uint32_t groups, uint64_t first, uint64_t length, bool all)
    -> SegmentT* {
  SegmentT* segment = store_.take_segment();
  try {
    const auto region = store_.take_region(groups, all);
    segment->capacity = region.capacity;
    store_cell<kShared>(segment->data, region.data);
    store_cell<kShared>(segment->groups, groups);
  } catch (...) {
    store_.give_back(segment);
    throw;
  }
  store_.expect_writes(region_of(*segment), 0, groups);
  empty_out({segment->data, groups});
  segment->entries = 0;
  segment->left = usable_slots(groups);
  segment->least = all ? groups : 0;
  segment->first = first;
  segment->length = length;
  return segment;
}

template <typename K, typename V, typename Set>
void Table<K, V, Set>::publish(SegmentT* segment) noexcept {
  segment->end_write();
  directory_.set(segment->first, segment->length, segment);
}

// The directory does not lead here any more.
template <typename K, typename V, typename Set>
void Table<K, V, Set>::retire(SegmentT* segment) noexcept {
  segment->end_write();  // odd from here on; readers that are in it find the version changed
  store_.give_back(region_of(*segment));
  store_.give_back(segment);
}

// One small segment for everything; or, of an empty table, the segments as they are: where it is
// reserved, and where there is no memory for a small one.
template <typename K, typename V, typename Set>
void Table<K, V, Set>::begin_anew() {
  constexpr uint64_t kWhole = Directory<SegmentT, kShared>::kWhole;
  SegmentT* all = nullptr;
  if (reserved_ == 0) {
    try {
      all = new_segment(1, 0, kWhole, false);
    } catch (...) {
      if (directory_.segment_at(0) == nullptr) throw;  // a new table
    }
  }
  if (all == nullptr) {
    directory_.for_each_segment([](SegmentT& segment) {
      segment.begin_write();
      empty_out({segment.data, segment.groups});
      segment.left = usable_slots(segment.groups);
      segment.end_write();
    });
    return;
  }
  for (uint64_t first = 0; first < kWhole;) {
    SegmentT* segment = directory_.segment_at(first);
    if (segment == nullptr) break;  // a new table
    first = segment->first + segment->length;
    retire(segment);
  }
  publish(all);
}

template <typename K, typename V, typename Set>
void Table<K, V, Set>::drop_ended(SegmentT& segment) noexcept {
  for (uint32_t at = 0; at < segment.groups && deadlines_.reclaimable() != 0; ++at) {
    sweep_one(segment, at, deadlines_.passed());
  }
}

// How many entries will follow one with this hash into its segment, as far as its blocks of
// neighbours (hash.h) tell: ids that are put in order fill one block after the other. So where the
// segment's other blocks are full and this one has begun, all of it is expected.
template <typename K, typename V, typename Set>
size_t Table<K, V, Set>::expected_after(const SegmentT& segment, uint64_t hash) const noexcept {
  if constexpr (kHasBlocks) {
    constexpr uint32_t kSampled = 32;  // one group of so many
    constexpr size_t kMostOthers = 4;
    const Groups groups{segment.data, segment.groups};
    const uint64_t block = hash >> Hash::kPlaceBits;
    std::array<uint64_t, kMostOthers> others;
    size_t found = 0;
    for (uint32_t at = 0; at < groups.count && found <= kMostOthers; at += kSampled) {
      each_hashed({groups.data + at, 1}, [&](uint64_t other, const GroupT&, size_t) {
        const uint64_t its = other >> Hash::kPlaceBits;
        auto* const end = others.data() + std::min(found, kMostOthers);
        if (its == block || std::find(others.data(), end, its) != end) return;
        if (found < kMostOthers) *end = its;
        ++found;
      });
    }
    if (found == 0 || found > kMostOthers) return 0;
    size_t there = 0;
    each_hashed(groups, [&](uint64_t other, const GroupT&, size_t) {
      there += other >> Hash::kPlaceBits == block ? 1 : 0;
    });
    const bool are_full = segment.entries - there >= found * (kBlock / 4 * 3);
    return are_full && there >= kBegun && there <= kBlock / 2 ? kBlock - there : 0;
  }
  return 0;
}

// For a segment without an empty slot to take: full, or full of removed entries.
template <typename K, typename V, typename Set>
void Table<K, V, Set>::make_room(SegmentT* segment, uint64_t hash) {
  constexpr uint32_t kMost = kMostGroups<GroupT>;
  if (deadlines_.reclaimable() != 0) drop_ended(*segment);
  const uint32_t groups = segment->groups;
  // Where entries come and go at the same rate, an eighth of the slots for those to come is enough.
  const size_t steady = groups_for(segment->entries + segment->entries / 8 + 1);
  if (steady <= groups) {
    // Far too large: others may need the pages.
    const auto smaller = std::max(static_cast<uint32_t>(steady), segment->least);
    refill(segment, 2 * smaller < groups ? smaller : groups);
    return;
  }
  const Demand demand{hash, expected_after(*segment, hash)};
  const uint32_t larger =
      demand.expected != 0
          ? static_cast<uint32_t>(groups_for(segment->entries + demand.expected + kBegun))
          : groups + std::max(groups / 4, 1u);
  // Ids in order move once or twice if their segment is split early; a region's other half is
  // address space.
  const uint32_t most = demand.expected != 0 && store_.has_own_pages() ? kMost / 2 : kMost;
  if (larger <= most) {
    refill(segment, larger);
  } else if (demand.expected == 0 && groups < kMost && kMost - groups > groups / 4) {
    refill(segment, kMost);
  } else if (!split(segment, demand)) {
    if (groups >= (1u << 24)) throw std::length_error("ChronoCache: too many keys of one hash");
    refill(segment, larger);  // hashes that no split takes apart, as yet
  }
}

// The segment's entries, where readers find them while its region is filled anew.
template <typename K, typename V, typename Set>
auto Table<K, V, Set>::move_aside(SegmentT* segment) -> Groups {
  const Groups from{segment->data, segment->groups};
  const Groups aside{store_.scratch(from.count), from.count};
  if constexpr (kShared) {
    const auto* source = reinterpret_cast<const uint64_t*>(from.data);
    auto* target = reinterpret_cast<uint64_t*>(aside.data);
    const size_t words = from.count * (sizeof(GroupT) / sizeof(uint64_t));
    for (size_t i = 0; i < words; ++i) store_cell<true>(target[i], source[i]);
    segment->show(aside.data, aside.count);
  } else if constexpr (std::is_trivially_copyable_v<Entry>) {
    std::memcpy(static_cast<void*>(aside.data), from.data, from.count * sizeof(GroupT));
  } else {
    empty_out(aside);
    for (uint32_t at = 0; at < from.count; ++at) {
      GroupT& group = from.data[at];
      for (SlotSet taken = group.look().taken_slots(); !taken.empty(); taken.drop_first()) {
        Filler::move_entry(group, taken.first(), aside.data[at], taken.first());
      }
    }
  }
  return aside;
}

template <typename K, typename V, typename Set>
void Table<K, V, Set>::refill(SegmentT* segment, uint32_t groups) {
  const uint32_t before = segment->groups;
  auto region = region_of(*segment);
  if (groups <= region.capacity) {
    const Groups from = move_aside(segment);
    if (groups > before) store_.expect_writes(region, before, groups);
    Filler filler({region.data, groups});
    filler.add_all(*this, from);
    filler.count_for(*segment, segment->entries);
    segment->show(region.data, groups);
    if (groups < before) store_.release_from(region, groups);
    return;
  }
  const auto larger = store_.take_region(groups);
  Filler filler({larger.data, groups});
  filler.add_all(*this, {segment->data, before});
  filler.count_for(*segment, segment->entries);
  segment->capacity = larger.capacity;
  segment->show(larger.data, groups);
  store_.give_back(region);
}

// Where a segment is split: near a point between 3 and 5 eighths of its entries, which is another
// one for each, so that segments are of all sizes at all times. Blocks of neighbours (hash.h) lie
// on one side. Nothing: nearly all entries would be on one side even with kMostRun entries of the
// directory.
template <typename K, typename V, typename Set>
auto Table<K, V, Set>::find_split(const SegmentT& segment) -> std::optional<Split> {
  constexpr uint64_t kLeastRun = 8;
  constexpr uint64_t kMostRun = 64;
  // Two blocks may have hashes so close that only a huge directory could tell them apart.
  constexpr uint64_t kMostEntriesASegment = 32;
  const uint64_t aim =
      segment.entries * (24 + fold_product(segment.first ^ seed_, kHashFactor) % 17) / 64;
  for (;;) {
    const uint64_t run = directory_.entries_of(segment.length);
    if (run >= kLeastRun) {
      // Bins of whole entries of the directory.
      const uint64_t bins = std::min(run, kMostRun);
      std::array<uint32_t, kMostRun> counts{};
      each_hashed({segment.data, segment.groups}, [&](uint64_t hash, const GroupT&, size_t) {
        ++counts[directory_.entries_of((hash >> 32) - segment.first) * bins / run];
      });
      Split best{0, 0};
      uint32_t below = 0;
      for (uint64_t bin = 1; bin < bins; ++bin) {
        below += counts[bin - 1];
        const auto off = [aim](uint64_t entries) {
          return entries > aim ? entries - aim : aim - entries;
        };
        if (bin == 1 || off(below) < off(best.below)) {
          best = {directory_.length_of((bin * run + bins - 1) / bins), below};
        }
      }
      const uint32_t least = std::min(best.below, segment.entries - best.below);
      if (least >= segment.entries / 16) return best;
      if (run >= kMostRun) return std::nullopt;
    }
    if (directory_.entries() >= kMostEntriesASegment * store_.segments()) return std::nullopt;
    if (!directory_.double_entries()) return std::nullopt;
  }
}

// False: the segment cannot be split.
template <typename K, typename V, typename Set>
bool Table<K, V, Set>::split(SegmentT* segment, const Demand& demand) {
  const std::optional<Split> at = find_split(*segment);
  if (!at) return false;
  const uint64_t length = at->length;
  const uint64_t middle = segment->first + length;
  const uint32_t below = at->below;
  const uint32_t above = segment->entries - below;
  const auto region = region_of(*segment);
  // Room that is a quarter more than needed at most, differently for each; or as much as the ids in
  // order need.
  const auto room_for = [&](uint32_t entries, bool is_low, uint64_t salt) {
    if (demand.expected != 0) {
      const size_t more = (demand.hash >> 32 < middle) == is_low ? demand.expected : 0;
      return static_cast<uint32_t>(
          std::min<size_t>(groups_for(entries + more + kBegun), region.capacity));
    }
    const size_t least = groups_for(entries + 1);
    const uint64_t extra = fold_product(salt ^ seed_, kHashFactor) % (least / 4 + 1);
    return std::min(static_cast<uint32_t>(least + extra), segment->groups);
  };
  static_cast<void>(store_.scratch(segment->groups));  // a step that may fail comes first
  SegmentT* high =
      new_segment(room_for(above, false, middle), middle, segment->length - length, false);
  const uint32_t low_groups = room_for(below, true, segment->first ^ length << 32);
  const Groups from = move_aside(segment);
  // Chosen by an index: which side an entry goes to is chance, and a branch would be mispredicted
  // half the time.
  std::array<Filler, 2> sides{Filler({region.data, low_groups}),
                              Filler({high->data, high->groups})};
  each_hashed(from, [&](uint64_t hash, GroupT& group, size_t slot) {
    sides[hash >> 32 < middle ? 0 : 1].add(hash, group, slot);
  });
  sides[1].count_for(*high, above);
  publish(high);
  sides[0].count_for(*segment, below);
  segment->length = length;
  segment->show(region.data, low_groups);
  store_.release_from(region, low_groups);
  return true;
}

// Where an entry with this hash may go: there is an empty slot.
template <typename K, typename V, typename Set>
auto Table<K, V, Set>::free_place(uint64_t hash) noexcept -> Place {
  SegmentT* segment = directory_.segment_of(hash);
  for (uint32_t at = SegmentT::home(hash, segment->groups);;) {
    GroupT* group = segment->group(at);
    const SlotSet free = group->look().free_slots();
    if (!free.empty()) return {segment, group, free.first()};
    if (++at == segment->groups) at = 0;
  }
}

// A segment of a reserved table gets more than its share by six standard deviations once in 500
// million, if hashes are spread as they should be, and an eighth for entries that come and go.
template <typename K, typename V, typename Set>
void Table<K, V, Set>::reserve(size_t entries) {
  if (entries == 0) return;
  SegmentT* first = directory_.segment_at(0);
  reserve_range(0, Directory<SegmentT, kShared>::kWhole, static_cast<double>(entries));
  retire(first);
  uint32_t most = 0;
  directory_.for_each_segment(
      [&](const SegmentT& segment) { most = std::max(most, segment.groups); });
  static_cast<void>(store_.scratch(most));
  deadlines_.reserve(entries);
  records_.reserve_all(entries);
  reserved_ = entries;
}

template <typename K, typename V, typename Set>
void Table<K, V, Set>::reserve_range(uint64_t first, uint64_t length, double entries) {
  const double mean = entries * static_cast<double>(length) / Directory<SegmentT, kShared>::kWhole;
  const size_t groups = groups_for(static_cast<size_t>((mean + 6 * std::sqrt(mean)) * 1.125 + 2));
  if (groups <= kMostGroups<GroupT>) {
    publish(new_segment(static_cast<uint32_t>(groups), first, length, true));
    return;
  }
  while (directory_.entries_of(length) < 2) {
    if (!directory_.double_entries()) throw std::bad_alloc();
  }
  const uint64_t below = directory_.length_of(directory_.entries_of(length) / 2);
  reserve_range(first, below, entries);
  reserve_range(first + below, length - below, entries);
}

}  // namespace lumen::cache
