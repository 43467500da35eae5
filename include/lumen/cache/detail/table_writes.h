// Putting and bounds of a Table. See table_class.h.
// Threads, Memory, Errors: as there.
#pragma once

#include <lumen/cache/detail/table_class.h>

namespace lumen::cache {

template <typename K, typename V, typename Set>
template <typename K2, typename V2>
auto Table<K, V, Set>::replace(const Place& place, uint64_t hash, K2&& key, V2&& value,
                               DeadlineId id) -> Outcome {
  GroupT& group = *place.group;
  Entry& entry = group.entry(place.slot);
  const DeadlineId before = group.deadlines[place.slot];
  // No clock is read for it: deadlines that the wheel has not passed have not ended.
  const auto why = [&] {
    return deadlines_.tick_of(before) <= deadlines_.passed() ? Removal::kExpired
                                                             : Removal::kReplaced;
  };
  const size_t weight_before = weight_of(pair_of(entry));
  if constexpr (kOverwrites) {
    listener_(pair_of(entry).key, pair_of(entry).value, why());
    const auto store = [&] {
      constexpr size_t kWord = word_bytes(sizeof(Entry));
      if constexpr (kCopiesValue) {
        store_value(entry.node->value, V(std::forward<V2>(value)));
      } else if constexpr (Entry::kLoadsApart) {
        store_value(entry.value, V(std::forward<V2>(value)));
      } else if constexpr (Entry::has_own_words(kWord)) {
        store_words_of<kWord>(entry.value, V(std::forward<V2>(value)));
      } else {
        store_words(entry, Entry{entry.key, V(std::forward<V2>(value))});
      }
    };
    if (kOneWord && before == id) {
      // Nothing else changes: readers see the value before or this one, and need no version.
      store();
      return replaced(place, weight_before);
    }
    place.segment->begin_write();
    store();
    store_cell<true>(group.deadlines[place.slot], id);
    place.segment->end_write();
  } else if constexpr (kByPointer) {
    auto* node = nodes_.make(hash, std::forward<K2>(key), std::forward<V2>(value));
    auto* const old = entry.node;
    listener_(old->key, old->value, why());
    place.segment->begin_write();
    store_cell<kShared>(entry.node, node);
    store_cell<kShared>(group.deadlines[place.slot], id);
    place.segment->end_write();
    nodes_.retire(old);
  } else {
    if constexpr (!std::is_same_v<typename Set::Listener, NoListener>) {
      listener_(entry.key, entry.value, why());
    }
    if constexpr (std::is_nothrow_move_assignable_v<V>) {
      entry.value = std::forward<V2>(value);
    } else {  // has a move that does not throw: kByPointer otherwise
      V fresh(std::forward<V2>(value));
      std::destroy_at(&entry.value);
      std::construct_at(&entry.value, std::move(fresh));
    }
    // Not when it is the same: the next put of the key would wait for the store.
    if (before != id) group.deadlines[place.slot] = id;
  }
  if (before != id) deadlines_.move(before, id);
  return replaced(place, weight_before);
}
template <typename K, typename V, typename Set>
auto Table<K, V, Set>::replaced(const Place& place, size_t weight_before) -> Outcome {
  if constexpr (kRecords) {
    const Handle handle = place.group->handles[place.slot];
    records_.reweigh(handle, weight_before, weight_of(pair_at(place)));
    return keep_bound(handle) ? Outcome::kReplaced : Outcome::kRefused;
  }
  return Outcome::kReplaced;
}

// The reader of a slot that was free sees the control byte last, and everything with it: no version
// is needed.
template <typename K, typename V, typename Set>
template <typename K2, typename V2>
auto Table<K, V, Set>::insert(Place place, uint64_t hash, K2&& key, V2&& value, DeadlineId id)
    -> Outcome {
  if (place.group->control_of(place.slot) == kEmpty && place.segment->left == 0) [[unlikely]] {
    make_room(place.segment, hash);
    place = free_place(hash);
  }
  Handle handle = kNoHandle;
  if constexpr (kRecords) handle = records_.reserve();  // after make_room(), which gives some back
  GroupT& group = *place.group;
  Entry& entry = group.entry(place.slot);
  if constexpr (kByPointer) {
    auto* node = nodes_.make(hash, std::forward<K2>(key), std::forward<V2>(value));
    store_cell<kShared>(entry.hash, hash);
    store_cell<kShared>(entry.node, node);
  } else if constexpr (kShared) {
    store_words(entry, Entry{K(std::forward<K2>(key)), V(std::forward<V2>(value))});
  } else if constexpr (std::is_aggregate_v<Entry>) {
    ::new (static_cast<void*>(&entry)) Entry{K(std::forward<K2>(key)), V(std::forward<V2>(value))};
  } else {
    ::new (static_cast<void*>(&entry)) Entry(hash, std::forward<K2>(key), std::forward<V2>(value));
  }
  store_cell<kShared>(group.deadlines[place.slot], id);
  if constexpr (kRecords) store_cell<kShared>(group.handles[place.slot], handle);
  if (group.control_of(place.slot) == kEmpty) --place.segment->left;
  group.set_control(place.slot, tag_of(hash));
  ++place.segment->entries;
  deadlines_.add(id);
  if constexpr (kRecords) {
    // Neighbours share their upper bits: a sketch wants all of them mixed.
    records_.insert(handle, hash, fold_product(hash ^ kHashSecond, kHashFactor),
                    weight_of(pair_of(entry)));
    return keep_bound(handle) ? Outcome::kInserted : Outcome::kRefused;
  }
  return Outcome::kInserted;
}

// Ended entries go first, if a short look finds any; then the entry that the policy names.
template <typename K, typename V, typename Set>
bool Table<K, V, Set>::keep_bound(Handle newest) noexcept {
  bool kept = true;
  if constexpr (kRecords) {
    const auto above = [this] {
      return (bound_.entries != 0 && records_.entries() > bound_.entries) ||
             (bound_.weight != 0 && records_.weight() > bound_.weight);
    };
    while (above()) {
      if (deadlines_.reclaimable() != 0 && sweep(kGroupsBeforeEviction, deadlines_.passed()) != 0) {
        continue;
      }
      const Handle victim = records_.eviction().victim();
      if (victim == kNoHandle) break;
      if (victim == newest) kept = false;
      remove(place_of(victim), Removal::kEvicted);
    }
  }
  return kept;
}

template <typename K, typename V, typename Set>
auto Table<K, V, Set>::place_of(Handle handle) const noexcept -> Place {
  const uint64_t hash = records_.hash(handle);
  SegmentT* segment = directory_.segment_of(hash);
  const Tags tags(hash);
  for (uint32_t at = SegmentT::home(hash, segment->groups);;) {
    GroupT* group = segment->group(at);
    for (SlotSet fits = group->look().with(tags); !fits.empty(); fits.drop_first()) {
      if (group->handles[fits.first()] == handle) return {segment, group, fits.first()};
    }
    if (++at == segment->groups) at = 0;
  }
}

template <typename K, typename V, typename Set>
size_t Table<K, V, Set>::sweep_one(SegmentT& segment, uint32_t at, uint64_t now) noexcept {
  GroupT* group = segment.group(at);
  const uint32_t over = ended_mask(group->deadlines.data(), deadlines_.ticks(), now);
  size_t freed = 0;
  for (SlotSet left(over & group->look().taken_slots().bits()); !left.empty(); left.drop_first()) {
    remove({&segment, group, left.first()}, Removal::kExpired);
    ++freed;
  }
  return freed;
}

template <typename K, typename V, typename Set>
void Table<K, V, Set>::add_to(Stats& stats, uint64_t now) const noexcept {
  size_t groups = 0;
  size_t segments = 0;
  directory_.for_each_segment([&](const SegmentT& segment) {
    groups += segment.groups;
    ++segments;
  });
  stats.slots += groups * kGroupSlots;
  stats.segments += segments;
  const size_t live = deadlines_.live_at(now);
  stats.entries += live;
  stats.reclaimable += deadlines_.live() + deadlines_.reclaimable() - live;
  const size_t beside =
      directory_.bytes() + directory_.bytes_retired() + deadlines_.bytes() + records_.bytes();
  stats.bytes_mapped += store_.bytes_mapped() + beside;
  stats.bytes_used += groups * sizeof(GroupT) + segments * sizeof(SegmentT) + beside;
  stats.bytes_retired += directory_.bytes_retired() + nodes_.bytes_waiting();
  stats.evicted += evicted_;
  stats.expired += expired_;
}

}  // namespace lumen::cache
