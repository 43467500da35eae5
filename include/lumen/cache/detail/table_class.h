// Table, its class: the entries of one shard, in a flat table of segments.
//
// Threads: one at a time calls all but read(); with kShared any thread calls read() beside it.
// Memory: as segment_store.h, directory.h and deadlines.h say; nothing an entry, but a node if
// entries are held by pointer.
// Errors: std::bad_alloc, and exceptions of K and V; the table is then as it was before.
#pragma once

#include <lumen/cache/detail/directory.h>
#include <lumen/cache/detail/entry.h>
#include <lumen/cache/detail/hazard.h>
#include <lumen/cache/detail/nodes.h>
#include <lumen/cache/detail/policies.h>
#include <lumen/cache/detail/records.h>
#include <lumen/cache/detail/segment_store.h>
#include <lumen/cache/detail/sweep.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <utility>

namespace lumen::cache {

template <typename K, typename V, typename Set>
class Table {
 public:
  static constexpr bool kShared = Set::Threads::kShared;
  using Hash = typename Set::Hash;
  using Equal = typename Set::Equal;
  using Eviction = typename Set::Eviction;
  static constexpr bool kRecords = Eviction::kKeepsRecords;
  using Types = EntryTypes<K, V, Hash, kShared>;
  using Entry = typename Types::Entry;
  static constexpr bool kByPointer = Types::kByPointer;
  static constexpr bool kCopiesValue = Types::kCopiesValue;
  // Whether a put over an entry stores its value where the one before is, and readers copy it.
  static constexpr bool kOverwrites = kShared && (!kByPointer || kCopiesValue);
  // Whether readers load by one load all that a put over an entry changes, but for its deadline.
  static constexpr bool kOneWord = kCopiesValue
                                       ? word_bytes(sizeof(V)) == sizeof(V)
                                       : !kByPointer && word_bytes(sizeof(Entry)) == sizeof(Entry);
  using GroupT = Group<Entry, kShared, kRecords>;
  using SegmentT = Segment<GroupT, kShared>;

  struct Bound {
    size_t entries = 0;  // 0: none
    size_t weight = 0;
  };

  Table(const Options& options, uint64_t seed, const Bound& bound)
      : memory_(options.memory == nullptr ? std::pmr::new_delete_resource() : options.memory),
        seed_(seed),
        bound_(bound),
        store_(options.memory, options.huge_pages, options.numa_node),
        directory_(memory_),
        deadlines_(memory_),
        nodes_(memory_),
        records_(memory_, bound.weight != 0 ? bound.weight : bound.entries, bound.entries) {
    begin_anew();
  }
  ~Table() { destroy_all(); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  // Where an entry stands; group is null where there is none.
  struct Place {
    SegmentT* segment = nullptr;
    GroupT* group = nullptr;
    size_t slot = 0;
    explicit operator bool() const noexcept { return group != nullptr; }
    [[nodiscard]] DeadlineId deadline() const noexcept { return group->deadlines[slot]; }
  };

  [[nodiscard]] const auto& pair_at(const Place& place) const noexcept {
    return pair_of(place.group->entry(place.slot));
  }

  // Of the one thread alone.
  [[nodiscard]] V& value_at(const Place& place) noexcept {
    Entry& entry = place.group->entry(place.slot);
    if constexpr (kByPointer) {
      return entry.node->value;
    } else {
      return entry.value;
    }
  }

  [[nodiscard]] static const auto& pair_of(const Entry& entry) noexcept {
    if constexpr (kByPointer) {
      return *entry.node;
    } else {
      return entry;
    }
  }

  template <typename Q>
  [[nodiscard]] bool is_for(const Entry& entry, uint64_t hash, const Q& key) const {
    if constexpr (kByPointer || Types::kHash) {
      if (entry.hash != hash) return false;
    }
    return equal_(pair_of(entry).key, key);
  }

  // By the writer. Whether it has ended is not looked at.
  template <typename Q>
  [[nodiscard]] Place find(uint64_t hash, const Q& key) const {
    SegmentT* segment = directory_.segment_of(hash);
    const Tags tags(hash);
    for (uint32_t at = SegmentT::home(hash, segment->groups);;) {
      GroupT* group = segment->group(at);
      group->prefetch_entries();
      const Control control = group->look();
      for (SlotSet fits = control.with(tags); !fits.empty(); fits.drop_first()) {
        if (is_for(group->entry(fits.first()), hash, key)) [[likely]] {
          return {segment, group, fits.first()};
        }
      }
      if (!control.equal_to(kEmpty).empty()) [[likely]]
        return {};
      if (++at == segment->groups) at = 0;
    }
  }
  // Asks for the cache lines where a search for the hash begins; does not look at the slots.
  void prefetch(uint64_t hash) const noexcept {
    const SegmentT& segment = *directory_.look(hash).segment;
    const uint32_t groups = load_cell<kShared>(segment.groups);
    const auto* group = reinterpret_cast<const char*>(load_cell<kShared>(segment.data)) +
                        SegmentT::home(hash, groups) * sizeof(GroupT);
    constexpr size_t kMostLines = 4;
    for (size_t line = 0; line < std::min(kMostLines, (sizeof(GroupT) + 63) / 64); ++line) {
      __builtin_prefetch(group + line * 64);
    }
  }
  [[nodiscard]] bool ended(const Place& place, uint64_t now) const noexcept {
    return deadlines_.tick_of(place.deadline()) <= now;
  }
  // `now` has has_come(deadline), as in ticker.h.
  template <typename Moment>
  [[nodiscard]] bool ended(const Place& place, const Moment& now) const noexcept {
    return now.has_come(deadlines_.tick_of(place.deadline()));
  }
  void note_use(const Place& place) noexcept {
    if constexpr (kRecords) records_.eviction().used(place.group->handles[place.slot]);
  }

  struct NoValue {};
  // A reader's look beside a writer: f(found) for a live entry, and its result; Result{} if there
  // is none. If entries are held by pointer, `hazard` holds it. (Returned as a whole, the found
  // entry would go through memory, and its parts would be loaded before they are there: 14 ns.)
  struct Found {
    Entry entry;  // without its hash, where it is held by pointer
    Handle record;
    [[no_unique_address]] std::conditional_t<kCopiesValue, V, NoValue> copy;

    [[nodiscard]] const K& key() const noexcept { return pair_of(entry).key; }
    [[nodiscard]] const V& value() const noexcept {
      if constexpr (kCopiesValue) {
        return copy;
      } else {
        return pair_of(entry).value;
      }
    }
  };
  struct NoHazard {};
  using Holder = std::conditional_t<kByPointer, Hazard, NoHazard>;
  template <typename Result, typename Q, typename Moment, typename F>
  [[nodiscard, gnu::always_inline]] Result read(uint64_t hash, const Q& key, const Moment& now,
                                                Holder& hazard, F&& f) const;

  // By any thread. An entry that alone is above the bound would evict all others and then itself.
  [[nodiscard]] bool is_above_bound(const K& key, const V& value) const {
    if constexpr (kRecords) return bound_.weight != 0 && weigher_(key, value) > bound_.weight;
    return false;
  }

  enum class Outcome : uint8_t { kInserted, kReplaced, kRefused };

  // `id` is from deadline_for(). kRefused: the eviction policy has not admitted it.
  template <typename K2, typename V2>
  Outcome put(uint64_t hash, K2&& key, V2&& value, DeadlineId id) {
    SegmentT* segment = directory_.segment_of(hash);
    const Tags tags(hash);
    Place removed;
    for (uint32_t at = SegmentT::home(hash, segment->groups);;) {
      GroupT* group = segment->group(at);
      const Control control = group->look();
      for (SlotSet fits = control.with(tags); !fits.empty(); fits.drop_first()) {
        if (is_for(group->entry(fits.first()), hash, key)) [[likely]] {
          return replace({segment, group, fits.first()}, hash, std::forward<K2>(key),
                         std::forward<V2>(value), id);
        }
      }
      const SlotSet empty = control.equal_to(kEmpty);
      if (!empty.empty()) [[likely]] {
        const Place to = removed ? removed : Place{segment, group, empty.first()};
        return insert(to, hash, std::forward<K2>(key), std::forward<V2>(value), id);
      }
      if (!removed) {
        const SlotSet gone = control.equal_to(kRemoved);
        if (!gone.empty()) removed = {segment, group, gone.first()};
      }
      if (++at == segment->groups) at = 0;
    }
  }

  // The deadline of an entry that is put now. kNoDeadline: there are as many different ones as
  // there can be.
  [[nodiscard]] DeadlineId deadline_for(uint64_t now_ns, uint64_t ttl_ns, uint32_t tick_bits) {
    const DeadlineId id = deadlines_.bucket_for(now_ns, ttl_ns, tick_bits);
    if (id != kNoDeadline) [[likely]]
      return id;
    sweep(SIZE_MAX, now_ns >> tick_bits);
    return deadlines_.bucket_for(now_ns, ttl_ns, tick_bits);
  }

  // The entry leaves; its slot is free.
  void remove(const Place& place, Removal why) noexcept {
    remove(place, why, [] {});
  }
  // last() is called when all is told and counted, before the entry is destroyed: to move its value
  // out.
  template <typename F>
  void remove(const Place& place, Removal why, F&& last) noexcept {
    GroupT& group = *place.group;
    const DeadlineId id = group.deadlines[place.slot];
    tell(pair_at(place), why);
    if constexpr (kRecords) records_.remove(group.handles[place.slot], weight_of(pair_at(place)));
    Entry& entry = group.entry(place.slot);
    place.segment->begin_write();
    // A search may end at a group with an empty slot, unless it was full when something was put
    // behind it.
    if (!group.look().equal_to(kEmpty).empty()) {
      group.set_control(place.slot, kEmpty);
      ++place.segment->left;
    } else {
      group.set_control(place.slot, kRemoved);
    }
    place.segment->end_write();
    last();
    destroy(entry);
    --place.segment->entries;
    deadlines_.remove(id);
  }
  template <typename Q>
  bool erase(uint64_t hash, const Q& key, uint64_t now, Removal why = Removal::kErased) {
    const Place place = find(hash, key);
    if (!place) return false;
    const bool live = !ended(place, now);
    remove(place, live ? why : Removal::kExpired);
    return live;
  }
  void clear() {
    directory_.for_each_segment([this](SegmentT& segment) {
      each_entry(segment, [this](const Place& place) { remove(place, Removal::kCleared); });
    });
    begin_anew();
  }

  // Looks at `groups` groups and frees the slots of ended entries, if any has ended: bounded work.
  size_t sweep(size_t groups, uint64_t now) noexcept {
    deadlines_.advance(now);
    size_t freed = 0;
    for (; groups != 0 && deadlines_.reclaimable() != 0; --groups) {
      SegmentT* segment = directory_.segment_at(sweep_first_);
      if (sweep_group_ < segment->groups) freed += sweep_one(*segment, sweep_group_, now);
      if (++sweep_group_ < segment->groups) continue;
      sweep_group_ = 0;
      sweep_first_ = (segment->first + segment->length) % Directory<SegmentT, kShared>::kWhole;
    }
    return freed;
  }

  template <typename F>
  void for_each_live(uint64_t now, F&& f) const {
    directory_.for_each_segment([&](SegmentT& segment) {
      each_entry(segment, [&](const Place& place) {
        if (!ended(place, now)) f(pair_at(place).key, pair_at(place).value);
      });
    });
  }

  // Of an empty table: nothing is allocated for that many entries, nor while they come and go.
  void reserve(size_t entries);

  [[nodiscard]] const Hash& hasher() const noexcept { return hash_; }
  [[nodiscard]] uint64_t seed() const noexcept { return seed_; }
  [[nodiscard]] Deadlines<kShared>& deadlines() noexcept { return deadlines_; }
  [[nodiscard]] const Deadlines<kShared>& deadlines() const noexcept { return deadlines_; }
  [[nodiscard]] Eviction& eviction() noexcept { return records_.eviction(); }
  void add_to(Stats& stats, uint64_t now) const noexcept;

 private:
  enum class Look : uint8_t { kFound, kOther, kEnded, kChanged };
  static constexpr uint32_t kTriesBeforeYield = 64;
  static constexpr size_t kGroupsBeforeEviction =
      8;  // 128 slots: a put looks at so many for ended entries

  [[nodiscard]] uint64_t hash_of(const Entry& entry) const noexcept {
    if constexpr (kByPointer || Types::kHash) {
      return entry.hash;
    } else {
      return hash_(pair_of(entry).key, seed_);
    }
  }
  template <typename Pair>
  void tell(const Pair& pair, Removal why) noexcept {
    listener_(pair.key, pair.value, why);
    evicted_ += why == Removal::kEvicted ? 1 : 0;
    expired_ += why == Removal::kExpired ? 1 : 0;
  }
  template <typename Pair>
  [[nodiscard]] size_t weight_of(const Pair& pair) const noexcept {
    return bound_.weight != 0 ? weigher_(pair.key, pair.value) : 1;
  }

  static void wait_for_writer(uint32_t tries) noexcept;
  struct View;
  template <typename Result, typename Q, typename Moment, typename F>
  [[nodiscard, gnu::noinline]] Result read_on(uint64_t hash, const Q& key, const Moment& now,
                                              Holder& hazard, F&& f) const;
  template <typename Q, typename Moment>
  [[nodiscard, gnu::always_inline]] Look look_at(const View& view, const GroupT& group, size_t slot,
                                                 uint64_t hash, const Q& key, const Moment& now,
                                                 Found& found, Holder& hazard) const;

  template <typename K2, typename V2>
  Outcome replace(const Place& place, uint64_t hash, K2&& key, V2&& value, DeadlineId id);
  [[nodiscard]] Outcome replaced(const Place& place, size_t weight_before);
  template <typename K2, typename V2>
  Outcome insert(Place place, uint64_t hash, K2&& key, V2&& value, DeadlineId id);
  [[nodiscard]] bool keep_bound(Handle newest) noexcept;
  [[nodiscard]] Place place_of(Handle handle) const noexcept;
  void destroy(Entry& entry) noexcept {
    if constexpr (kByPointer) {
      nodes_.retire(entry.node);
    } else if constexpr (!std::is_trivially_destructible_v<Entry>) {
      std::destroy_at(&entry);
    }
  }
  void destroy_all() noexcept {
    directory_.for_each_segment([this](SegmentT& segment) {
      each_entry(segment, [this](const Place& place) { destroy(place.group->entry(place.slot)); });
    });
  }

  template <typename F>
  static void each_entry(SegmentT& segment, F&& f) {
    each_taken({segment.data, segment.groups},
               [&](GroupT& group, size_t slot) { f(Place{&segment, &group, slot}); });
  }
  size_t sweep_one(SegmentT& segment, uint32_t at, uint64_t now) noexcept;

  // Growth (table_growth.h).
  struct Groups {  // a row of them, whosever they are
    GroupT* data;
    uint32_t count;
  };
  class Filler;
  [[nodiscard]] SegmentT* new_segment(uint32_t groups, uint64_t first, uint64_t length, bool all);
  void publish(SegmentT* segment) noexcept;
  void retire(SegmentT* segment) noexcept;
  void begin_anew();
  [[nodiscard]] typename SegmentStore<GroupT, kShared>::Region region_of(
      const SegmentT& segment) const noexcept {
    return {segment.data, segment.capacity};
  }
  // Blocks of neighbours share a segment (hash.h). One has begun where it has so many entries.
  static constexpr bool kHasBlocks = HashedAsNumber<K> && requires { Hash::kNeighbourBits; };
  static constexpr size_t kBlock = size_t{1} << SeededHash::kNeighbourBits;
  static constexpr size_t kBegun = kBlock / 64;
  // The hash of an entry that needs room, and how many are expected to follow it.
  struct Demand {
    uint64_t hash;
    size_t expected;
  };
  [[nodiscard]] size_t expected_after(const SegmentT& segment, uint64_t hash) const noexcept;
  void make_room(SegmentT* segment, uint64_t hash);
  void refill(SegmentT* segment, uint32_t groups);
  [[nodiscard]] Groups move_aside(SegmentT* segment);
  struct Split {
    uint64_t length;  // of the first part
    uint32_t below;   // entries in it
  };
  [[nodiscard]] std::optional<Split> find_split(const SegmentT& segment);
  [[nodiscard]] bool split(SegmentT* segment, const Demand& demand);
  void drop_ended(SegmentT& segment) noexcept;
  [[nodiscard]] Place free_place(uint64_t hash) noexcept;
  void reserve_range(uint64_t first, uint64_t length, double entries);
  static void empty_out(Groups groups) noexcept;
  // f(hash, group, slot) for each entry. The hashes of 16 numbers are got at once, of empty slots
  // too: the compiler does several in one instruction.
  template <typename F>
  void each_hashed(Groups groups, F&& f) const {
    for (uint32_t at = 0; at < groups.count; ++at) {
      GroupT& group = groups.data[at];
      SlotSet taken = group.look().taken_slots();
      if constexpr (HashedAsNumber<K> && !kByPointer && !Types::kHash) {
        std::array<uint64_t, kGroupSlots> hashes;
        for (size_t i = 0; i < kGroupSlots; ++i) hashes[i] = hash_of(group.entry(i));
        for (; !taken.empty(); taken.drop_first()) f(hashes[taken.first()], group, taken.first());
      } else {
        for (; !taken.empty(); taken.drop_first()) {
          f(hash_of(group.entry(taken.first())), group, taken.first());
        }
      }
    }
  }
  template <typename F>
  static void each_taken(Groups groups, F&& f) {
    for (uint32_t at = 0; at < groups.count; ++at) {
      GroupT& group = groups.data[at];
      for (SlotSet taken = group.look().taken_slots(); !taken.empty(); taken.drop_first()) {
        f(group, taken.first());
      }
    }
  }

  std::pmr::memory_resource* memory_;
  uint64_t seed_;
  Bound bound_;
  SegmentStore<GroupT, kShared> store_;
  Directory<SegmentT, kShared> directory_;
  Deadlines<kShared> deadlines_;
  Nodes<typename Types::Node, kShared> nodes_;
  Records<Eviction> records_;
  uint64_t sweep_first_ = 0;
  uint32_t sweep_group_ = 0;
  size_t reserved_ = 0;
  uint64_t evicted_ = 0;
  uint64_t expired_ = 0;
  [[no_unique_address]] Hash hash_;
  [[no_unique_address]] Equal equal_;
  [[no_unique_address]] typename Set::Weigher weigher_;
  [[no_unique_address]] typename Set::Listener listener_;
};

}  // namespace lumen::cache
