// The story's last steps: locks, shards, expiry in the background, and then the library.
// Threads: any. Memory: the table's. Errors: bad_alloc.
#pragma once

#include "../ours.h"
#include "flat_table.h"

#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace lumen::bench {

template <typename K, typename V>
using SweptTable = FlatTable<K, V, PageBlocks, NoPolicy, true, SharedTick>;

// One mutex around everything.
template <typename K, typename V>
using V3_0_00Mutex = Locked<SweptTable<K, V>, std::mutex, K, V>;

// Four shards by the hash's top bits, each with a mutex on lines of its own.
template <typename K, typename V>
class V3_0_00Striped {
  static constexpr size_t kShards = 4;

 public:
  explicit V3_0_00Striped(size_t) {}
  void put(const K& key, const V& value, std::chrono::nanoseconds ttl) {
    shards_[shard_of(key)].locked.put(key, value, ttl);
  }
  std::optional<V> get(const K& key) const { return shards_[shard_of(key)].locked.get(key); }
  void tick() {
    for (Shard& shard : shards_) shard.locked.tick_locked();
  }
  [[nodiscard]] size_t size() const {
    size_t sum = 0;
    for (const Shard& shard : shards_) sum += shard.locked.size();
    return sum;
  }

 private:
  class LockedTable {
   public:
    void put(const K& key, const V& value, std::chrono::nanoseconds ttl) {
      const std::lock_guard lock(mutex_);
      table_.put(key, value, ttl);
      // relaxed: a count that others only look at.
      size_.store(table_.size(), std::memory_order_relaxed);
    }
    std::optional<V> get(const K& key) const {
      const std::lock_guard lock(mutex_);
      return table_.get(key);
    }
    void tick_locked() {
      const std::lock_guard lock(mutex_);
      table_.tick();
      // relaxed: as above.
      size_.store(table_.size(), std::memory_order_relaxed);
    }
    // relaxed: as above.
    [[nodiscard]] size_t size() const { return size_.load(std::memory_order_relaxed); }

   private:
    mutable std::mutex mutex_;
    SweptTable<K, V> table_{0};
    std::atomic<size_t> size_{0};
  };
  struct alignas(128) Shard {
    LockedTable locked;
  };

  static size_t shard_of(const K& key) { return SweptTable<K, V>::hash_of(key) >> 62; }

  std::array<Shard, kShards> shards_;
};

// A thread ticks and sweeps every millisecond, so no caller pays for it; the size is a sum of
// counts.
template <typename K, typename V>
class V3_0_01 {
 public:
  explicit V3_0_01(size_t expected) : shards_(expected) {}
  void put(const K& key, const V& value, std::chrono::nanoseconds ttl) {
    shards_.put(key, value, ttl);
  }
  std::optional<V> get(const K& key) const { return shards_.get(key); }
  void tick() {}
  [[nodiscard]] size_t size() const { return shards_.size(); }

 private:
  void sweep_until(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any nobody_wakes;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      nobody_wakes.wait_for(lock, stop, std::chrono::milliseconds(1), [] { return false; });
      shards_.tick();
    }
  }

  V3_0_00Striped<K, V> shards_;
  std::jthread sweeper_{[this](const std::stop_token& stop) { sweep_until(stop); }};
};

#ifdef LUMEN_BENCH_OURS
// The library in four shards over the heap: readers take no lock.
template <typename K, typename V>
class V3_1_00 : public OursBackground<K, V> {
 public:
  explicit V3_1_00(size_t) : OursBackground<K, V>(options()) {}

 private:
  static cache::Options options() {
    cache::Options options;
    options.shards = 4;
    options.memory = std::pmr::new_delete_resource();
    options.huge_pages = false;
    return options;
  }
};
// The library as it is: every shard maps its own pages, on its node where there are nodes.
template <typename K, typename V>
using V3_2_00 = OursBackground<K, V>;
#endif

}  // namespace lumen::bench
