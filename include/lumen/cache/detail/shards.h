// Shards: the tables of a cache: one for a OneThread cache, a power of two of them for a concurrent
// one.
// Threads: a shard's table is written under its lock. Memory: at construction. Errors:
// std::bad_alloc then.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/cache/detail/table.h>
#include <lumen/cache/detail/writer_lock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

namespace lumen::cache {

// The hits of readers, until a thread that has the lock tells the policy: a line a stripe, written
// without a locked instruction. Two threads on one stripe may lose a hit of each other's, which an
// order of use survives.
struct alignas(kCacheLine) HitStripe {
  static constexpr uint32_t kHits = 15;
  std::array<std::atomic<Handle>, kHits> handles;
  std::atomic<uint32_t> count{0};

  // True: the stripe is full.
  [[nodiscard]] bool add(Handle handle) noexcept {
    // relaxed, all of them: hits may be lost, and the policy survives any handle.
    const uint32_t at = count.load(std::memory_order_relaxed) % (kHits + 1);
    if (at < kHits) handles[at].store(handle, std::memory_order_relaxed);
    count.store(std::min(at + 1, kHits), std::memory_order_relaxed);
    return at + 1 >= kHits;
  }
  template <typename F>
  void drain(F&& f) noexcept {
    // relaxed, all of them: as above.
    const uint32_t hits = std::min(count.load(std::memory_order_relaxed), kHits);
    for (uint32_t i = 0; i < hits; ++i) f(handles[i].load(std::memory_order_relaxed));
    count.store(0, std::memory_order_relaxed);
  }
};
// This thread's number, for its stripe.
[[nodiscard]] inline uint32_t thread_number() noexcept {
  static std::atomic<uint32_t> next{0};
  thread_local const uint32_t mine =
      next.fetch_add(1, std::memory_order_relaxed);  // relaxed: a number
  return mine;
}

struct NoLock {
  explicit operator bool() const noexcept { return true; }
  ~NoLock() {}  // a guard that is not used is no mistake
};

template <typename TableT>
class OneShard {
 public:
  OneShard(const Options& options, uint64_t seed)
      : table_(options, seed, {options.max_entries, options.max_weight}) {
    table_.reserve(options.reserve_entries);
  }
  [[nodiscard]] OneShard& of(uint64_t) noexcept { return *this; }
  [[nodiscard]] const OneShard& of(uint64_t) const noexcept { return *this; }
  template <typename F>
  void each(F&& f) {
    f(*this);
  }
  [[nodiscard]] NoLock lock() const noexcept { return {}; }
  [[nodiscard]] NoLock try_lock() const noexcept { return {}; }
  [[nodiscard]] TableT& table() noexcept { return table_; }
  void drain() noexcept {}

 private:
  TableT table_;
};

template <typename TableT>
class alignas(kFalseSharingRange) LockedShard {
 public:
  static constexpr bool kBuffersHits = TableT::kRecords && !TableT::Eviction::kConcurrentHits;
  static constexpr uint32_t kStripes = 8;

  LockedShard(const Options& options, uint64_t seed, const typename TableT::Bound& bound)
      : table_(options, seed, bound) {}

  [[nodiscard]] std::unique_lock<WriterLock> lock() { return std::unique_lock(lock_); }
  [[nodiscard]] std::unique_lock<WriterLock> try_lock() {
    return std::unique_lock(lock_, std::try_to_lock);
  }
  [[nodiscard]] TableT& table() noexcept { return table_; }

  // By a reader that has found it.
  void hit(Handle handle) noexcept {
    if constexpr (kBuffersHits) {
      if (stripes_[thread_number() % kStripes].add(handle)) {
        const auto guard = try_lock();
        if (guard) drain();
      }
    } else if constexpr (TableT::kRecords) {
      table_.eviction().touch(handle);
    }
  }
  // Under the lock.
  void drain() noexcept {
    if constexpr (kBuffersHits) {
      for (HitStripe& stripe : stripes_) {
        stripe.drain([this](Handle handle) { table_.eviction().used(handle); });
      }
    }
  }

 private:
  WriterLock lock_;
  alignas(kFalseSharingRange) TableT table_;
  struct NoStripes {};
  [[no_unique_address]] std::conditional_t<kBuffersHits, std::array<HitStripe, kStripes>, NoStripes>
      stripes_;
};

template <typename TableT>
class ManyShards {
 public:
  using Shard = LockedShard<TableT>;
  // Bits 40 to 47 of the hash choose one, so neighbours share a shard as they share a segment: two
  // threads that put ids of their own meet in one of 16.
  static constexpr uint32_t kMost = 256;
  static constexpr uint32_t kShardsACpu =
      8;  // two writers meet in one sixteenth of puts on two CPUs

  // Of a bound: ids one after the other fall on the shards by blocks of 4,096. With 1,024 blocks in
  // a shard, the shards differ by 3 % (a standard deviation), so 95 % of the bound is used.
  static constexpr size_t kLeastBoundOfAShard = size_t{1} << 22;

  ManyShards(const Options& options, uint64_t seed) {
    const uint32_t shards = shards_for(options);
    mask_ = shards - 1;
    shards_ = static_cast<Shard*>(::operator new(shards * sizeof(Shard), kAlignment));
    try {
      for (; made_ < shards; ++made_) make(options, seed, shards);
    } catch (...) {
      destroy();
      throw;
    }
  }
  ~ManyShards() { destroy(); }
  ManyShards(const ManyShards&) = delete;
  ManyShards& operator=(const ManyShards&) = delete;

  [[nodiscard]] Shard& of(uint64_t hash) const noexcept {
    // NOLINTNEXTLINE(clang-analyzer-security.ArrayBound): mask_ is one less than there are
    return shards_[hash >> 40 & mask_];
  }
  template <typename F>
  void each(F&& f) const {
    for (uint32_t i = 0; i < made_; ++i) f(shards_[i]);
  }

 private:
  static constexpr std::align_val_t kAlignment{alignof(Shard)};

  [[nodiscard]] static uint32_t cpus() noexcept {
    return std::max(std::thread::hardware_concurrency(), 1u);
  }
  [[nodiscard]] static uint32_t shards_for(const Options& options) noexcept {
    size_t shards = options.shards;
    if (shards == 0) {
      shards = std::bit_ceil(kShardsACpu * cpus());
      if (options.max_entries != 0) {
        shards = std::min(shards, std::max<size_t>(options.max_entries / kLeastBoundOfAShard, 1));
      }
      // A value may be as heavy as the whole bound.
      if (options.max_weight != 0) shards = 1;
    }
    // A part of a bound that was 0 would be none.
    if (options.max_entries != 0) shards = std::min(shards, options.max_entries);
    if (options.max_weight != 0) shards = std::min(shards, options.max_weight);
    return static_cast<uint32_t>(std::min<size_t>(std::bit_floor(shards), kMost));
  }
  // A shard has its part of the bound, and of a reserve six standard deviations more.
  void make(const Options& options, uint64_t seed, size_t shards) {
    const auto share = [&](size_t whole) {
      return whole / shards + (made_ < whole % shards ? 1 : 0);
    };
    const typename TableT::Bound bound{share(options.max_entries), share(options.max_weight)};
    Options own = options;
    if (numa_nodes() > 1 && own.numa_node < 0)
      own.numa_node = static_cast<int>(made_) % numa_nodes();
    auto* shard = ::new (static_cast<void*>(shards_ + made_)) Shard(own, seed, bound);
    const size_t reserve = share(options.reserve_entries);
    const double spread = shards == 1 ? 0 : 6 * std::sqrt(static_cast<double>(reserve));
    try {
      shard->table().reserve(reserve + static_cast<size_t>(spread));
    } catch (...) {
      std::destroy_at(shard);
      throw;
    }
  }
  void destroy() noexcept {
    std::destroy_n(shards_, made_);
    ::operator delete(shards_, kAlignment);
  }

  Shard* shards_ = nullptr;
  uint32_t made_ = 0;
  uint64_t mask_ = 0;
};

}  // namespace lumen::cache
