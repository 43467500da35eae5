// How a Table is read beside a writer. See table_class.h.
// Threads, Memory, Errors: as there.
#pragma once

#include <lumen/base/idle_strategy.h>
#include <lumen/cache/detail/table_class.h>

#include <sched.h>

namespace lumen::cache {

// Whether keys may be compared when they are torn: numbers may, types that hold a pointer may not.
template <typename K, typename Equal>
inline constexpr bool kComparesTorn = HashedAsNumber<K> && std::is_same_v<Equal, std::equal_to<>>;

// A writer is in the middle of 10 to 50 ns of work, unless it has lost its CPU: then this thread
// gives up its own.
template <typename K, typename V, typename Set>
void Table<K, V, Set>::wait_for_writer(uint32_t tries) noexcept {
  if (tries % kTriesBeforeYield == 0) {
    ::sched_yield();
  } else {
    cpu_pause();
  }
}

// A segment as a reader saw it at one moment.
template <typename K, typename V, typename Set>
struct Table<K, V, Set>::View {
  explicit View(const SegmentT& at) noexcept
      : segment(at),
        version(load_cell<true>(at.version)),
        groups(load_cell<true>(at.groups)),
        data(load_cell<true>(at.data)) {}
  [[nodiscard]] bool unchanged() const noexcept {
    return load_cell<true>(segment.version) == version;
  }
  // Row and length belong together: beyond a row of groups there may be no memory.
  [[nodiscard]] bool whole() const noexcept { return (version & 1) == 0 && unchanged(); }

  const SegmentT& segment;
  const uint64_t version;
  const uint32_t groups;
  const GroupT* const data;
};
// Everything that the answer needs is read first, then the version, then it is used.
template <typename K, typename V, typename Set>
template <typename Q, typename Moment>
inline auto Table<K, V, Set>::look_at(const View& view, const GroupT& group, size_t slot,
                                      uint64_t hash, const Q& key, const Moment& now, Found& found,
                                      Holder& hazard) const -> Look {
  if constexpr (kByPointer) {
    if (load_cell<true>(group.entry(slot).hash) != hash) return Look::kOther;
    found.entry.node = load_cell<true>(group.entry(slot).node);
  } else {
    if constexpr (Entry::kLoadsApart) {
      load_words(found.entry.key, group.entry(slot).key);
      load_value(found.entry.value, group.entry(slot).value);
    } else {
      load_words(found.entry, group.entry(slot));
    }
    if constexpr (!kComparesTorn<K, Equal>) {
      if (!view.unchanged()) return Look::kChanged;
    }
    if (!equal_(found.entry.key, key)) return Look::kOther;
  }
  const uint64_t deadline = deadlines_.seen_tick_of(load_cell<true>(group.deadlines[slot]));
  if constexpr (kRecords) found.record = load_cell<true>(group.handles[slot]);
  if constexpr (kByPointer) hazard.protect(found.entry.node);
  if (!view.unchanged()) [[unlikely]]
    return Look::kChanged;
  if constexpr (kByPointer) {
    if (!equal_(found.entry.node->key, key)) return Look::kOther;
  }
  if constexpr (kCopiesValue) {
    load_value(found.copy, found.entry.node->value);
    if (!view.unchanged()) [[unlikely]]
      return Look::kChanged;
  }
  return now.has_come(deadline) ? Look::kEnded : Look::kFound;
}

// The first slot that fits in the first group answers nearly always; read_on() does the rest. They
// are apart, because a loop around all of it would keep the values that it needs to begin again in
// registers.
template <typename K, typename V, typename Set>
template <typename Result, typename Q, typename Moment, typename F>
inline Result Table<K, V, Set>::read(uint64_t hash, const Q& key, const Moment& now, Holder& hazard,
                                     F&& f) const {
  static_assert(kShared);
  const auto seen = directory_.look(hash);
  const View view(*seen.segment);
  if (view.whole()) [[likely]] {
    const GroupT& group = view.data[SegmentT::home(hash, view.groups)];
    group.prefetch_entries();
    const Control control = group.look_shared();
    const SlotSet fits = control.with(Tags(hash));
    if (!fits.empty()) {
      Found found;
      const Look look = look_at(view, group, fits.first(), hash, key, now, found, hazard);
      if (look == Look::kFound) [[likely]]
        return f(found);
      if (look == Look::kEnded) return Result{};
    } else if (!control.equal_to(kEmpty).empty()) [[likely]] {
      // Not there: unless the segment by now belongs to other hashes.
      if (view.unchanged() && directory_.still_so(seen)) [[likely]]
        return Result{};
    }
  }
  return read_on<Result>(hash, key, now, hazard, f);
}
// The same from the beginning, through all groups and until no writer has been in between.
template <typename K, typename V, typename Set>
template <typename Result, typename Q, typename Moment, typename F>
Result Table<K, V, Set>::read_on(uint64_t hash, const Q& key, const Moment& now, Holder& hazard,
                                 F&& f) const {
  for (uint32_t tries = 0;; ++tries) {
    if (tries != 0) wait_for_writer(tries);
    const auto seen = directory_.look(hash);
    const View view(*seen.segment);
    if (!view.whole()) continue;
    const Tags tags(hash);
    uint32_t at = SegmentT::home(hash, view.groups);
    for (uint32_t left = view.groups; left != 0; --left) {
      const GroupT& group = view.data[at];
      const Control control = group.look_shared();
      for (SlotSet fits = control.with(tags); !fits.empty(); fits.drop_first()) {
        Found found;
        const Look look = look_at(view, group, fits.first(), hash, key, now, found, hazard);
        if (look == Look::kFound) return f(found);
        if (look == Look::kOther) continue;
        if (look == Look::kEnded) return Result{};
        goto changed;
      }
      if (!control.equal_to(kEmpty).empty()) break;
      if (++at == view.groups) at = 0;
    }
    if (view.unchanged() && directory_.still_so(seen)) return Result{};
  changed:;
  }
}

}  // namespace lumen::cache
