// The story's middle steps: a flat table with control bytes, linear probing and doubling, deadlines
// of four bytes in an array of their own, and a cached tick for put and get.
// Threads: one; v3.h adds locks. Memory: a block of the Memory's for each size. Errors: bad_alloc.
#pragma once

#include "../contender.h"
#include "../rivals.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>
#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace lumen::bench {

// Where a table's arrays come from.
struct HeapBlocks {
  static void* take(size_t bytes) { return ::operator new(bytes, std::align_val_t{64}); }
  static void give_back(void* memory, size_t) { ::operator delete(memory, std::align_val_t{64}); }
};

// Pages of its own, in huge ones where the kernel has them.
struct PageBlocks {
  static void* take(size_t bytes) {
    void* found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) throw std::bad_alloc();
    madvise(found, bytes, MADV_HUGEPAGE);
    return found;
  }
  static void give_back(void* memory, size_t bytes) { munmap(memory, bytes); }
};

// Which entry goes when the table is full, by slot. As the table grows, resize() and then
// inserted() for each entry come anew.
struct NoPolicy {
  void resize(size_t) {}
  void inserted(size_t) {}
  void used(size_t) {}
  void erased(size_t) {}
};

// A list through the slots, the last used in front.
class LruList {
 public:
  void resize(size_t slots) { links_.assign(slots + 1, {slots, slots}), end_ = slots; }
  void inserted(size_t slot) {
    const size_t first = links_[end_].next;
    links_[slot] = {end_, first};
    links_[end_].next = slot;
    links_[first].previous = slot;
  }
  void used(size_t slot) { erased(slot), inserted(slot); }
  void erased(size_t slot) {
    links_[links_[slot].previous].next = links_[slot].next;
    links_[links_[slot].next].previous = links_[slot].previous;
  }
  [[nodiscard]] size_t victim() const { return links_[end_].previous; }

 private:
  struct Link {
    size_t previous, next;
  };
  std::vector<Link> links_;
  size_t end_ = 0;
};

// A count for each slot; the least used of eight that a hand passes goes.
class LfuCounts {
 public:
  void resize(size_t slots) { counts_.assign(slots, 0); }
  void inserted(size_t slot) { counts_[slot] = 1; }
  void used(size_t slot) {
    if (counts_[slot] < 255) ++counts_[slot];
  }
  void erased(size_t slot) { counts_[slot] = 0; }
  [[nodiscard]] size_t victim() {
    size_t least = counts_.size();
    for (int seen = 0; seen < 8;) {
      hand_ = (hand_ + 1) % counts_.size();
      if (counts_[hand_] == 0) continue;
      ++seen;
      if (least == counts_.size() || counts_[hand_] < counts_[least]) least = hand_;
    }
    return least;
  }

 private:
  std::vector<uint8_t> counts_;
  size_t hand_ = 0;
};

template <typename K, typename V, typename Blocks, typename Policy = NoPolicy, bool kSweeps = false,
          typename Now = PlainTick>
class FlatTable {
 public:
  static constexpr size_t kSweepSlots = 4096;  // of one tick: bounded work

  explicit FlatTable(size_t, size_t max_entries = SIZE_MAX) : max_entries_(max_entries) {
    make_arrays(16);
  }
  FlatTable(const FlatTable&) = delete;
  FlatTable& operator=(const FlatTable&) = delete;
  ~FlatTable() {
    for (size_t slot = 0; slot < slots_; ++slot) {
      if (controls_[slot] > kGone) std::destroy_at(&items_[slot]);
    }
    Blocks::give_back(block_, block_bytes_);
  }

  void put(const K& key, const V& value, std::chrono::nanoseconds ttl) {
    const uint64_t hash = hash_of(key);
    const uint32_t deadline = std::max(clock_.deadline(ttl), 1U);
    if (const size_t slot = find(key, hash); slot != slots_) {
      items_[slot].value = value;
      deadlines_[slot] = deadline;
      policy_.used(slot);
      return;
    }
    if ((filled_ + 1) * 8 > slots_ * 7) grow();
    insert(hash, Item{key, value}, deadline);
    if constexpr (requires(Policy p) { p.victim(); }) {
      if (count_ > max_entries_) erase(policy_.victim());
    }
  }

  std::optional<V> get(const K& key) const {
    const size_t slot = find(key, hash_of(key));
    if (slot == slots_ || deadlines_[slot] <= clock_.now()) return std::nullopt;
    policy_.used(slot);
    return items_[slot].value;
  }

  void tick() {
    const uint32_t before = clock_.now();
    clock_.tick();
    if constexpr (kSweeps) {
      if (clock_.now() != before) sweep();
    }
  }

  [[nodiscard]] size_t size() const { return count_; }

  static uint64_t hash_of(const K& key) {
    // libstdc++'s hash of a number is the number: mixed, so that the top bits depend on all.
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide{std::hash<K>{}(key) ^ 0x9e3779b97f4a7c15U} * 0xd6e8feb86659fd93U;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

 private:
  struct Item {
    K key;
    V value;
  };
  static constexpr uint8_t kFree = 0;
  static constexpr uint8_t kGone = 1;  // was taken once: a search goes on past it

  static uint8_t tag_of(uint64_t hash) { return static_cast<uint8_t>(hash | 0x80); }

  [[nodiscard]] size_t find(const K& key, uint64_t hash) const {
    const uint8_t tag = tag_of(hash);
    for (size_t slot = (hash >> 8) & (slots_ - 1);; slot = (slot + 1) & (slots_ - 1)) {
      if (controls_[slot] == tag && items_[slot].key == key) return slot;
      if (controls_[slot] == kFree) return slots_;
    }
  }

  void insert(uint64_t hash, Item&& item, uint32_t deadline) {
    size_t slot = (hash >> 8) & (slots_ - 1);
    while (controls_[slot] > kGone) slot = (slot + 1) & (slots_ - 1);
    filled_ += controls_[slot] == kFree ? 1 : 0;
    ++count_;
    controls_[slot] = tag_of(hash);
    deadlines_[slot] = deadline;
    std::construct_at(&items_[slot], std::move(item));
    policy_.inserted(slot);
  }

  void erase(size_t slot) {
    policy_.erased(slot);
    std::destroy_at(&items_[slot]);
    controls_[slot] = kGone;
    deadlines_[slot] = 0;
    --count_;
  }

  void make_arrays(size_t slots) {
    slots_ = slots;
    block_bytes_ = slots * (sizeof(Item) + sizeof(uint32_t) + 1);
    block_ = static_cast<std::byte*>(Blocks::take(block_bytes_));
    items_ = reinterpret_cast<Item*>(block_);
    deadlines_ = reinterpret_cast<uint32_t*>(block_ + slots * sizeof(Item));
    controls_ = reinterpret_cast<uint8_t*>(deadlines_ + slots);
    std::memset(deadlines_, 0, slots * sizeof(uint32_t));
    std::memset(controls_, kFree, slots);
    policy_.resize(slots);
    filled_ = count_ = 0;
  }

  // Twice the slots. An LRU begins anew in the order of the slots.
  void grow() {
    const size_t old_slots = slots_;
    const size_t old_bytes = block_bytes_;
    std::byte* old_block = block_;
    Item* items = items_;
    const uint32_t* deadlines = deadlines_;
    const uint8_t* controls = controls_;
    make_arrays(old_slots * 2);
    for (size_t slot = 0; slot < old_slots; ++slot) {
      if (controls[slot] <= kGone) continue;
      const uint64_t hash = hash_of(items[slot].key);
      insert(hash, std::move(items[slot]), deadlines[slot]);
      std::destroy_at(&items[slot]);
    }
    Blocks::give_back(old_block, old_bytes);
  }

  // Looks at the next few thousand deadlines, eight at once, and frees expired entries.
  void sweep() {
    const uint32_t now = clock_.now();
    const size_t end = std::min(hand_ + kSweepSlots, slots_);
    for (size_t slot = std::min(hand_, slots_); slot < end; slot += 8) {
      for (uint32_t expired = expired_of_8(&deadlines_[slot], now); expired != 0;
           expired &= expired - 1) {
        erase(slot + static_cast<size_t>(__builtin_ctz(expired)));
      }
    }
    hand_ = end == slots_ ? 0 : end;
  }

  // A bit for each of eight deadlines that are 1 to now; a free slot's is 0.
  static uint32_t expired_of_8(const uint32_t* deadlines, uint32_t now) {
    if (now == 0) return 0;
#ifdef __AVX2__
    const __m256i found = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(deadlines));
    const __m256i less_one = _mm256_sub_epi32(found, _mm256_set1_epi32(1));
    const __m256i bound = _mm256_set1_epi32(static_cast<int>(now - 1));
    const __m256i is_expired = _mm256_cmpeq_epi32(_mm256_min_epu32(less_one, bound), less_one);
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(is_expired)));
#else
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 8; ++i) bits |= deadlines[i] - 1 <= now - 1 ? 1U << i : 0U;
    return bits;
#endif
  }

  std::byte* block_ = nullptr;
  Item* items_ = nullptr;
  uint32_t* deadlines_ = nullptr;
  uint8_t* controls_ = nullptr;
  size_t slots_ = 0;
  size_t block_bytes_ = 0;
  size_t filled_ = 0;  // slots that are not free: entries, and those that were
  size_t count_ = 0;
  size_t max_entries_;
  size_t hand_ = 0;
  TickClock<Now> clock_;
  mutable Policy policy_;
};

// A flat table on the heap.
template <typename K, typename V>
using V2_0_00 = FlatTable<K, V, HeapBlocks>;
// Its arrays in pages of their own.
template <typename K, typename V>
using V2_1_00 = FlatTable<K, V, PageBlocks>;
// With a policy; without a bound nothing is evicted, only the bookkeeping is measured.
template <typename K, typename V>
using V2_2_00Lru = FlatTable<K, V, PageBlocks, LruList>;
template <typename K, typename V>
using V2_2_00Lfu = FlatTable<K, V, PageBlocks, LfuCounts>;
// Each new millisecond sweeps 4,096 deadlines for expired entries.
template <typename K, typename V>
using V2_3_00 = FlatTable<K, V, PageBlocks, NoPolicy, true>;

}  // namespace lumen::bench
