// A concurrent ChronoCache under readers and writers at once. Under TSan this shows that readers
// and writers share no plain memory; everywhere it shows that no reader ever sees half of a write.
// Threads: two writers, two readers, one that ticks. Memory: one cache. Errors: by gtest, the seed.
#include "support/stress.h"

#include <lumen/cache/chrono_cache.h>
#include <lumen/cache/lfu.h>
#include <lumen/cache/lru.h>
#include <lumen/cache/s3_fifo.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

namespace lumen {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

// A value that says which key it is of, all over: a torn one contradicts itself.
struct Wide {
  std::array<uint64_t, 8> words;
};
template <typename V>
V value_of(uint64_t key, uint64_t turn) {
  if constexpr (std::is_same_v<V, Wide>) {
    Wide wide;
    for (uint64_t& word : wide.words) word = key << 32 | turn;
    return wide;
  } else if constexpr (std::is_same_v<V, std::string>) {
    return std::to_string(key) + std::string(40 + turn % 5, 'v');
  } else {
    return static_cast<V>(key << 32 | turn);
  }
}
template <typename V>
bool is_of(const V& value, uint64_t key) {
  if constexpr (std::is_same_v<V, Wide>) {
    for (const uint64_t word : value.words) {
      if (word != value.words[0] || word >> 32 != key) return false;
    }
    return true;
  } else if constexpr (std::is_same_v<V, std::string>) {
    const std::string name = std::to_string(key);
    return value.starts_with(name) && value.find_first_not_of('v', name.size()) == value.npos;
  } else {
    return value >> 32 == key;
  }
}

template <typename K>
K key_of(uint64_t key) {
  if constexpr (std::is_same_v<K, std::string>) {
    return "key number " + std::to_string(key);
  } else {
    return static_cast<K>(key);
  }
}

template <typename K, typename V, typename... Policies>
struct Case {
  using Key = K;
  using Value = V;
  using Cache = ChronoCache<K, V, Policies...>;
};

// Four keys share a hash, so a search goes on from one node to the next. Was: nothing ordered the
// reads of the first node before its end.
struct HashOfFour {
  uint64_t operator()(std::string_view key, uint64_t seed) const noexcept {
    uint64_t number = 0;
    for (const char c : key)
      number = c >= '0' && c <= '9' ? number * 10 + static_cast<uint64_t>(c - '0') : 0;
    return cache::SeededHash{}(number / 4, seed);
  }
};

template <typename T>
class ChronoCacheStress : public testing::Test {};
using Cases =
    testing::Types<Case<uint64_t, uint64_t>, Case<uint64_t, Wide, cache::BackgroundTick>,
                   Case<uint64_t, std::string>, Case<std::string, std::string, cache::Lru>,
                   Case<uint64_t, uint64_t, cache::Lru>, Case<uint64_t, Wide, cache::S3Fifo>,
                   Case<uint64_t, uint64_t, cache::Lfu>,
                   Case<std::string, std::string, cache::HashWith<HashOfFour>>,
                   Case<std::string, uint64_t, cache::HashWith<HashOfFour>>,
                   Case<std::string, Wide, cache::HashWith<HashOfFour>, cache::Lru>>;
TYPED_TEST_SUITE(ChronoCacheStress, Cases);

// With no writer left.
template <typename K, typename V, typename Cache>
void expect_each_key_once(const Cache& cache) {
  const size_t before = cache.size();
  size_t seen = 0;
  cache.for_each([&](const K&, const V&) { ++seen; });
  EXPECT_LE(seen, before);  // some end meanwhile
  EXPECT_GE(seen, cache.size());
}

TYPED_TEST(ChronoCacheStress, NeverShowsAReaderHalfOfAWrite) {
  using K = typename TypeParam::Key;
  using V = typename TypeParam::Value;
  constexpr uint64_t kKeys = 5'000;
  const uint64_t operations = test::stress_count(100'000);
  const uint64_t seed = test::stress_seed();
  cache::Options options;
  options.shards = 2;  // so that writers and readers meet
  if constexpr (TypeParam::Cache::kBounded) options.max_entries = 2'000;
  typename TypeParam::Cache cache(options);
  // relaxed everywhere: counts, read after the joins
  std::atomic<uint64_t> wrong{0}, found{0};
  std::atomic<bool> over{false};
  std::latch begun(2);  // the readers
  const auto writer = [&](uint64_t number) {
    std::mt19937_64 random(seed + number);
    for (uint64_t i = 0; i < operations; ++i) {
      const uint64_t key = random() % (i % 8 == 0 ? kKeys : 64);
      switch (random() % 16) {
        case 0: cache.erase(key_of<K>(key)); break;
        case 1:
          cache.put(key_of<K>(key), value_of<V>(key, i), microseconds(random() % 3'000));
          break;
        case 2:
          if (random() % 2'000 == 0) cache.clear();
          break;
        default: cache.put(key_of<K>(key), value_of<V>(key, i), seconds(100));
      }
    }
  };
  const auto reader = [&](uint64_t number) {
    std::mt19937_64 random(seed + 100 + number);
    uint64_t bad = 0;
    uint64_t hits = 0;
    begun.count_down();
    // Until it has found one: a busy machine may keep it from its CPU for as long as the writers
    // need.
    while (!over.load(std::memory_order_relaxed) || hits == 0) {
      const uint64_t key = random() % (random() % 8 == 0 ? kKeys : 64);
      const auto value = cache.get(key_of<K>(key));
      if (!value) continue;
      ++hits;
      bad += is_of<V>(*value, key) ? 0 : 1;
    }
    wrong.fetch_add(bad, std::memory_order_relaxed);
    found.fetch_add(hits, std::memory_order_relaxed);
  };
  const auto ticker = [&] {
    while (!over.load(std::memory_order_relaxed)) {
      cache.tick();
      static_cast<void>(cache.size());
      std::this_thread::yield();
    }
  };
  std::vector<std::thread> readers;
  readers.reserve(3);
  for (uint64_t i = 0; i < 2; ++i) readers.emplace_back(reader, i);
  readers.emplace_back(ticker);
  begun.wait();
  std::thread first(writer, 0);
  std::thread second(writer, 1);
  first.join();
  second.join();
  cache.put(key_of<K>(0), value_of<V>(0, 0), seconds(100));  // the last step may have been clear()
  over.store(true, std::memory_order_relaxed);
  for (std::thread& thread : readers) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GT(found.load(), 0u);
  expect_each_key_once<K, V>(cache);
}

// A key that stays is never missed, however much its neighbours come and go, grow and split.
TEST(ChronoCacheStress, NeverMissesAKeyThatStays) {
  constexpr uint64_t kStays = 512;
  const uint64_t operations = test::stress_count(400'000);
  const uint64_t seed = test::stress_seed();
  cache::Options options;
  options.shards = 1;
  ChronoCache<uint64_t, uint64_t> cache(options);
  for (uint64_t key = 0; key < kStays; ++key) cache.put(key, key, seconds(1'000));
  std::atomic<bool> over{false};  // relaxed everywhere: a stop sign and a count
  std::atomic<uint64_t> missed{0};
  std::vector<std::thread> readers;
  readers.reserve(3);
  for (uint64_t number = 0; number < 2; ++number) {
    readers.emplace_back([&, number] {
      std::mt19937_64 random(seed + number);
      while (!over.load(std::memory_order_relaxed)) {
        const uint64_t key = random() % kStays;
        const auto value = cache.get(key);
        if (!value || *value != key) missed.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  for (uint64_t i = 0; i < operations; ++i) {
    cache.put(kStays + i, i, seconds(1'000));
    if (i % 3 == 0) cache.erase(kStays + i / 2);
  }
  over.store(true, std::memory_order_relaxed);
  for (std::thread& thread : readers) thread.join();
  EXPECT_EQ(missed.load(), 0u);
}

// While a reader stands still in the middle of a value, writers go on, and the nodes that wait for
// it are bounded.
TEST(ChronoCacheStress, AReaderThatStandsStillStopsNoWriter) {
  cache::Options options;
  options.shards = 1;
  ChronoCache<int, std::string> cache(options);
  cache.put(1, std::string(100, 'a'), seconds(1'000));
  size_t most_waiting = 0;
  cache.visit(1, [&](const std::string& value) {
    std::thread writer([&] {
      for (int i = 0; i < 20'000; ++i) {
        cache.put(1, std::string(100, 'b'), seconds(1'000));
        cache.put(2 + i % 100, std::string(100, 'c'), seconds(1'000));
        if (i % 1'000 == 0) most_waiting = std::max(most_waiting, cache.stats().bytes_retired);
      }
    });
    writer.join();
    EXPECT_EQ(value, std::string(100, 'a'));
  });
  EXPECT_LT(most_waiting, size_t{64} << 10);
  EXPECT_EQ(cache.get(1), std::string(100, 'b'));
}

}  // namespace
}  // namespace lumen
