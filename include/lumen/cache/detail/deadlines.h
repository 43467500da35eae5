// Deadlines: when entries end, as 2 bytes an entry, and how many end at each time.
//
// An entry holds the number of a bucket; the bucket holds the deadline in ticks, and how many
// entries have it. Buckets stand in a timing wheel of levels: level k has 2,048 places of 2^k ticks
// each, for times to live of 2^(10+k) to 2^(11+k) ticks, so that rounding a deadline down costs
// less than ttl / 1,024. Nothing cascades from level to level (as in Linux's timers since 4.8).
// When a place is passed its bucket has ended: the live count drops by the bucket's in one step,
// however many entries that are. A bucket's number is used again once the last of its entries is
// out of the table; so no number ever means a later time than the one it was written with, whether
// anybody ticks or not, and there are no more buckets than entries.
//
// Threads: one at a time; with kShared ended() may be asked by readers beside it.
// Memory: 4.4 KiB a level in use, 15 bytes a bucket, doubling; with kShared an outgrown array is
// kept, since readers may look at it (together less than the newest). Errors: std::bad_alloc,
// nothing changed.
#pragma once

#include <lumen/cache/detail/access.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <vector>

namespace lumen::cache {

using DeadlineId = uint16_t;
inline constexpr DeadlineId kNever = 0;  // the bucket that does not end
inline constexpr uint64_t kNeverTick = INT64_MAX;
inline constexpr uint64_t kEndlessNs = uint64_t{1}
                                       << 62;  // 146 years: from there on an entry never ends
inline constexpr DeadlineId kNoDeadline = UINT16_MAX;  // an answer, not a bucket: none is free

template <bool kShared>
class Deadlines {
 public:
  static constexpr uint32_t kPlaceBits = 11;
  static constexpr uint64_t kPlaces = uint64_t{1} << kPlaceBits;
  static constexpr uint32_t kLevels = 64 - kPlaceBits;
  static constexpr size_t kMostBuckets = UINT16_MAX;  // kNoDeadline is none
  static constexpr size_t kFirstBuckets = 64;
  static constexpr uint32_t kReservedLevels = 26;  // half a year, in ticks of half a millisecond

  explicit Deadlines(std::pmr::memory_resource* memory)
      : memory_(memory), arrays_(memory), counts_(memory), levels_of_(memory), free_(memory) {
    grow(kFirstBuckets);
    store_cell<kShared>(ticks_[kNever], kNeverTick);
    next_fresh_ = kNever + 1;
  }
  ~Deadlines() {
    for (Level* level : levels_) {
      if (level != nullptr) std::pmr::polymorphic_allocator<>(memory_).delete_object(level);
    }
  }
  Deadlines(const Deadlines&) = delete;
  Deadlines& operator=(const Deadlines&) = delete;

  // The bucket of an entry that is put at `now_ns` for `ttl_ns`, with ticks of 2^tick_bits ns. It
  // ends within the larger of a tick and ttl / 1,024 before now + ttl, or, if that would be now,
  // with the next tick. kNoDeadline: entries that are still in the table have taken every number.
  [[nodiscard]] DeadlineId bucket_for(uint64_t now_ns, uint64_t ttl_ns, uint32_t tick_bits) {
    if (ttl_ns == memo_.ttl_ns && (now_ns + ttl_ns) >> memo_.shift == memo_.place) [[likely]] {
      return memo_.id;
    }
    return find_bucket(now_ns, ttl_ns, tick_bits);
  }

  // Whether the entries of `id` have ended at `now`. With kShared the number may be one that a
  // reader has caught in the middle of a write: any is allowed, and the answer counts only if the
  // block's version does.
  [[nodiscard]] bool ended(DeadlineId id, uint64_t now) const noexcept {
    return seen_tick_of(id) <= now;
  }
  [[nodiscard]] uint64_t seen_tick_of(DeadlineId id) const noexcept {
    if constexpr (kShared) {
      const Shown* shown = load_cell<true>(shown_);
      return load_cell<true>(shown->ticks[id & shown->mask]);
    } else {
      return ticks_[id];
    }
  }
  // By the writer.
  [[nodiscard]] uint64_t tick_of(DeadlineId id) const noexcept { return ticks_[id]; }
  [[nodiscard]] const uint64_t* ticks() const noexcept { return ticks_; }

  void add(DeadlineId id) noexcept {
    ++counts_[id];
    set_live(live_ + 1);
  }
  // An entry has left the table.
  void remove(DeadlineId id) noexcept {
    const bool over = ticks_[id] <= passed_;
    if (over) {
      --reclaimable_;
    } else {
      set_live(live_ - 1);
    }
    if (--counts_[id] != 0 || id == kNever) return;
    if (over) {
      free_.push_back(id);
    } else if (id != memo_.id) {
      leave_wheel(id);
      free_.push_back(id);
    }
  }
  void move(DeadlineId from, DeadlineId to) noexcept {
    add(to);
    remove(from);
  }

  // Ends the deadlines that are due at `now`: work in the levels and buckets that are, never in
  // entries.
  void advance(uint64_t now) noexcept {
    if (now <= passed_) return;
    for (uint64_t left = in_use_; left != 0; left &= left - 1) {
      const auto k = static_cast<uint32_t>(std::countr_zero(left));
      for_due(k, now, [this](Level& level, size_t at) { end_bucket(level, at); });
      if (levels_[k]->buckets == 0) in_use_ &= ~(uint64_t{1} << k);
    }
    store_cell<kShared>(passed_, now);
  }
  // Live entries at `now`, whether advance() has been called or not; by the writer.
  [[nodiscard]] size_t live_at(uint64_t now) const noexcept {
    size_t live = live_;
    if (now <= passed_) return live;
    for (uint64_t left = in_use_; left != 0; left &= left - 1) {
      const auto k = static_cast<uint32_t>(std::countr_zero(left));
      for_due(k, now, [&](const Level& level, size_t at) { live -= counts_[level.ids[at]]; });
    }
    return live;
  }
  [[nodiscard]] size_t live() const noexcept { return load_cell<kShared>(live_); }
  // The time that advance() has reached, and the entries that ended before it and are still in the
  // table.
  [[nodiscard]] uint64_t passed() const noexcept { return load_cell<kShared>(passed_); }
  [[nodiscard]] size_t reclaimable() const noexcept { return reclaimable_; }
  [[nodiscard]] size_t bytes() const noexcept { return bytes_; }
  // Nothing is allocated for that many entries with times to live up to 2^kReservedLevels * 1,024
  // ticks.
  void reserve(size_t entries) {
    const size_t buckets = std::min(std::bit_ceil(entries + 2), kMostBuckets + 1);
    if (buckets > buckets_) grow(buckets);
    for (uint32_t k = 0; k < kReservedLevels; ++k) static_cast<void>(level_at(k));
  }

 private:
  struct Level {
    std::array<uint64_t, kPlaces / 64> taken{};
    std::array<DeadlineId, kPlaces> ids{};
    size_t buckets = 0;
  };
  // The state that readers see: an array and its length, which must not be mixed with another's.
  struct Shown {
    uint64_t mask;
    uint64_t ticks[1];  // mask + 1 of them
  };

  struct Memo {
    uint64_t ttl_ns = 0;  // no call has 0
    uint64_t place = 0;
    uint32_t shift = 0;
    DeadlineId id = kNever;
  };

  [[nodiscard, gnu::noinline]] DeadlineId find_bucket(uint64_t now_ns, uint64_t ttl_ns,
                                                      uint32_t tick_bits) {
    const uint64_t now = now_ns >> tick_bits;
    advance(now);
    if (ttl_ns >= kEndlessNs) return kNever;
    const auto bits = static_cast<uint32_t>(std::bit_width(ttl_ns >> tick_bits));
    const uint32_t k = bits > kPlaceBits ? bits - kPlaceBits : 0;
    // Later than the ended deadlines, even if another CPU's clock was ahead of this one's.
    const uint64_t place = std::max((now_ns + ttl_ns) >> (tick_bits + k), (passed_ >> k) + 1);
    Level& level = level_at(k);
    const size_t at = place % kPlaces;
    const uint64_t bit = uint64_t{1} << (at % 64);
    // A place that is taken is taken for this turn of the wheel: advance() has ended those of turns
    // before.
    const bool taken = (level.taken[at / 64] & bit) != 0;
    const DeadlineId id = taken ? level.ids[at] : take_number();
    if (id == kNoDeadline) return id;
    if (!taken) {
      store_cell<kShared>(ticks_[id], place << k);
      levels_of_[id] = static_cast<uint8_t>(k);
      counts_[id] = 0;
      level.ids[at] = id;
      level.taken[at / 64] |= bit;
      ++level.buckets;
      in_use_ |= uint64_t{1} << k;
    }
    const DeadlineId before = memo_.id;
    // Less than a tick ends with the next one, so the same place asked for a moment later is over.
    memo_ = {ttl_ns >> tick_bits == 0 ? 0 : ttl_ns, place, tick_bits + k, id};
    if (before != kNever && before != id && counts_[before] == 0 && ticks_[before] > passed_) {
      leave_wheel(before);
      free_.push_back(before);
    }
    return id;
  }
  void leave_wheel(DeadlineId id) noexcept {
    const uint32_t k = levels_of_[id];
    Level& level = *levels_[k];
    const size_t at = (ticks_[id] >> k) % kPlaces;
    level.taken[at / 64] &= ~(uint64_t{1} << (at % 64));
    --level.buckets;
  }

  [[nodiscard]] Level& level_at(uint32_t k) {
    if (levels_[k] == nullptr) {
      levels_[k] = std::pmr::polymorphic_allocator<>(memory_).template new_object<Level>();
      bytes_ += sizeof(Level);
    }
    return *levels_[k];
  }

  // The taken places of level k whose time has come. A place holds times up to 2,047 places after
  // the moment of its making; those of an earlier turn have all come.
  template <typename F>
  void for_due(uint32_t k, uint64_t now, F&& f) const noexcept {
    Level& level = *levels_[k];
    const uint64_t first = passed_ >> k;
    const uint64_t last = now >> k;
    const uint64_t places = std::min(last - first + 1, kPlaces);
    for (uint64_t done = 0; done < places;) {
      const size_t at = (first + done) % kPlaces;
      const uint64_t in_word = std::min<uint64_t>(64 - at % 64, places - done);
      uint64_t word = level.taken[at / 64] >> (at % 64);
      if (in_word < 64) word &= (uint64_t{1} << in_word) - 1;
      for (; word != 0; word &= word - 1) {
        const size_t place = at + static_cast<size_t>(std::countr_zero(word));
        if (ticks_[level.ids[place]] <= now) f(level, place);
      }
      done += in_word;
    }
  }
  void end_bucket(Level& level, size_t at) noexcept {
    const DeadlineId id = level.ids[at];
    level.taken[at / 64] &= ~(uint64_t{1} << (at % 64));
    --level.buckets;
    set_live(live_ - counts_[id]);
    reclaimable_ += counts_[id];
    if (id == memo_.id) memo_ = {};
    if (counts_[id] == 0) free_.push_back(id);
  }

  [[nodiscard]] DeadlineId take_number() {
    if (!free_.empty()) {
      const DeadlineId id = free_.back();
      free_.pop_back();
      return id;
    }
    if (next_fresh_ == kMostBuckets) return kNoDeadline;
    if (next_fresh_ == buckets_) grow(2 * buckets_);
    return static_cast<DeadlineId>(next_fresh_++);
  }
  void grow(size_t buckets) {
    counts_.resize(buckets);
    levels_of_.resize(buckets);
    free_.reserve(buckets);  // for every number: giving one back never allocates
    std::pmr::vector<uint64_t> array(buckets + 1, memory_);
    array[0] = buckets - 1;
    for (size_t id = 0; id < buckets_; ++id) array[id + 1] = ticks_[id];
    for (size_t id = buckets_; id < buckets; ++id) array[id + 1] = 0;
    arrays_.reserve(arrays_.size() + 1);
    if constexpr (!kShared) arrays_.clear();
    arrays_.push_back(std::move(array));
    ticks_ = arrays_.back().data() + 1;
    store_cell<kShared>(shown_, reinterpret_cast<const Shown*>(arrays_.back().data()));
    bytes_ += (buckets - buckets_) *
              (sizeof(uint32_t) + sizeof(uint8_t) + sizeof(uint64_t) + sizeof(DeadlineId));
    buckets_ = buckets;
  }
  void set_live(size_t live) noexcept { store_cell<kShared>(live_, live); }

  Memo memo_;
  uint64_t* ticks_ = nullptr;
  const Shown* shown_ = nullptr;
  uint64_t passed_ = 0;
  size_t live_ = 0;
  size_t reclaimable_ = 0;
  uint64_t in_use_ = 0;  // a bit for each level that has buckets
  size_t buckets_ = 0;
  size_t next_fresh_ = 0;
  size_t bytes_ = 0;
  std::pmr::memory_resource* memory_;
  std::pmr::vector<std::pmr::vector<uint64_t>> arrays_;
  std::pmr::vector<uint32_t> counts_;
  std::pmr::vector<uint8_t> levels_of_;
  std::pmr::vector<DeadlineId> free_;
  std::array<Level*, kLevels> levels_{};
};

}  // namespace lumen::cache
