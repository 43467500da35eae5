// Failures inside a call: memory that is refused, and keys and values that throw. The cache is then
// as it was before the call, and nothing is lost or destroyed twice.
#include <lumen/cache/chrono_cache.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace lumen {
namespace {

using cache::Concurrent;
using cache::FakeClock;
using cache::Lfu;
using cache::Lru;
using cache::OneThread;
using cache::S3Fifo;
using cache::TtlOnly;
using std::chrono::seconds;

// Counts allocations that are out, and refuses new ones once `left` calls were served.
class Refusing final : public std::pmr::memory_resource {
 public:
  static constexpr size_t kAll = SIZE_MAX;
  size_t left = kAll;
  size_t out = 0;
  size_t calls = 0;

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    if (left == 0) throw std::bad_alloc();
    if (left != kAll) --left;
    ++calls;
    void* memory = ::operator new(bytes, std::align_val_t(alignment));
    out += bytes;
    return memory;
  }
  void do_deallocate(void* memory, size_t bytes, size_t alignment) override {
    out -= bytes;
    ::operator delete(memory, std::align_val_t(alignment));
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }
};

template <typename T, typename P, typename V>
struct Case {
  using Value = V;
  using Cache = ChronoCache<int, V, T, P, FakeClock>;
  static V value(int i) {
    if constexpr (std::is_same_v<V, std::string>) {
      return "value " + std::to_string(i);
    } else {
      return i;
    }
  }
};

template <typename T>
class RefusedMemory : public testing::Test {
 protected:
  using Cache = typename T::Cache;
  void SetUp() override { FakeClock::set_ns(FakeClock::kStartNs); }

  cache::Options options() {
    cache::Options options;
    options.memory = &memory_;
    options.shards = 1;
    options.seed = 5;
    return options;
  }
  // As many entries as `count`, and none else.
  static void expect_entries(const Cache& cache, int count) {
    ASSERT_EQ(cache.size(), static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) ASSERT_EQ(cache.get(i), T::value(i)) << i;
    ASSERT_FALSE(cache.contains(count));
  }
  // Calls f with the n-th allocation from here on refused, for n from 0 until none is.
  template <typename F, typename Check>
  size_t refuse_each(F&& f, Check&& check) {
    for (size_t n = 0;; ++n) {
      memory_.left = n;
      try {
        f();
        memory_.left = Refusing::kAll;
        return n;
      } catch (const std::bad_alloc&) {
        memory_.left = Refusing::kAll;
        check();
        if (testing::Test::HasFatalFailure()) return n;
      }
    }
  }
  Refusing memory_;
};
using Cases =
    testing::Types<Case<OneThread, TtlOnly, int>, Case<Concurrent, TtlOnly, int>,
                   Case<OneThread, TtlOnly, std::string>, Case<Concurrent, TtlOnly, std::string>,
                   Case<OneThread, Lru, int>, Case<Concurrent, Lru, std::string>,
                   Case<OneThread, S3Fifo, std::string>, Case<Concurrent, S3Fifo, int>,
                   Case<OneThread, Lfu, int>, Case<Concurrent, Lfu, int>>;
TYPED_TEST_SUITE(RefusedMemory, Cases);

TYPED_TEST(RefusedMemory, LeavesNothingBehindWhenTheCacheCannotBeMade) {
  for (const size_t reserve : {0U, 1'000U, 30'000U}) {
    cache::Options options = this->options();
    options.reserve_entries = reserve;
    const size_t refused =
        this->refuse_each([&] { typename TestFixture::Cache cache(options); },
                          [&] { ASSERT_EQ(this->memory_.out, 0u) << "reserve " << reserve; });
    EXPECT_GE(refused, 3u);
    EXPECT_EQ(this->memory_.out, 0u);
  }
}

// Each put that needs memory, through growth in place, in new regions, splits and a larger
// directory.
TYPED_TEST(RefusedMemory, ChangesNothingWhenAPutFails) {
  constexpr int kEntries = 60'000;
  size_t failures = 0;
  {
    typename TestFixture::Cache cache(this->options());
    int looked_at = 0;
    for (int i = 0; i < kEntries; ++i) {
      this->refuse_each([&] { cache.put(i, TypeParam::value(i), seconds(60)); },
                        [&] {
                          ++failures;
                          ASSERT_EQ(cache.size(), static_cast<size_t>(i));
                          ASSERT_FALSE(cache.contains(i));
                          // All of them now and then: nodes fail at each put.
                          if (i < looked_at * 5 / 4) return;
                          looked_at = i + 1;
                          this->expect_entries(cache, i);
                        });
      if (this->HasFatalFailure()) return;
    }
    this->expect_entries(cache, kEntries);
    EXPECT_GT(failures, 10u);
    EXPECT_GE(cache.stats().segments, 4u);
  }
  EXPECT_EQ(this->memory_.out, 0u);
}

TYPED_TEST(RefusedMemory, LeavesTheOldValueWhenItsReplacementFails) {
  {
    typename TestFixture::Cache cache(this->options());
    for (int i = 0; i < 1'000; ++i) cache.put(i, TypeParam::value(i), seconds(60));
    for (int i = 0; i < 1'000; ++i) {
      this->refuse_each([&] { cache.put(i, TypeParam::value(i + 1), seconds(1 + i)); },
                        [&] { ASSERT_EQ(cache.get(i), TypeParam::value(i)); });
      if (this->HasFatalFailure()) return;
      ASSERT_EQ(cache.get(i), TypeParam::value(i + 1));
    }
    EXPECT_EQ(cache.size(), 1'000u);
  }
  EXPECT_EQ(this->memory_.out, 0u);
}

TYPED_TEST(RefusedMemory, ComputesAgainWhenItsResultCouldNotBeStored) {
  {
    typename TestFixture::Cache cache(this->options());
    for (int i = 0; i < 2'000; ++i) {
      this->refuse_each(
          [&] {
            ASSERT_EQ(cache.get_or_compute(i, seconds(60), [&] { return TypeParam::value(i); }),
                      TypeParam::value(i));
          },
          [&] { ASSERT_FALSE(cache.contains(i)); });
      if (this->HasFatalFailure()) return;
    }
    this->expect_entries(cache, 2'000);
  }
  EXPECT_EQ(this->memory_.out, 0u);
}

// Was: a small first segment was asked for when all entries were gone already.
TYPED_TEST(RefusedMemory, NeedsNoneToTakeEntriesAway) {
  {
    typename TestFixture::Cache cache(this->options());
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 20'000; ++i) cache.put(i, TypeParam::value(i), seconds(60));
      this->memory_.left = 0;
      for (int i = 0; i < 20'000; i += 3) ASSERT_TRUE(cache.erase(i));
      for (int i = 1; i < 20'000; i += 3) ASSERT_EQ(cache.take(i), TypeParam::value(i));
      FakeClock::advance_ns(30'000'000'000);
      cache.tick();
      EXPECT_EQ(cache.size(), 6'666u);
      cache.clear();
      this->memory_.left = Refusing::kAll;
      this->expect_entries(cache, 0);
    }
  }
  EXPECT_EQ(this->memory_.out, 0u);
}

// Was: each put over an entry that is held by pointer had the allocator make a node and free one.
TEST(ReplacedNodes, GiveTheirMemoryToTheNext) {
  Refusing memory;
  {
    cache::Options options;
    options.memory = &memory;
    options.shards = 1;
    ChronoCache<int, std::string> cache(options);
    for (int i = 0; i < 1'000; ++i) cache.put(1, std::to_string(i), seconds(60));
    const size_t calls = memory.calls;
    for (int i = 0; i < 10'000; ++i) cache.put(1, std::to_string(i), seconds(60));
    EXPECT_EQ(memory.calls, calls);
    EXPECT_EQ(cache.get(1), "9999");
    // Those of many entries that leave at once go back.
    for (int i = 0; i < 20'000; ++i) cache.put(i, "text", seconds(60));
    const size_t full = memory.out;
    cache.clear();
    EXPECT_LT(memory.out + 10'000 * sizeof(std::string), full) << "half of their nodes at least";
    EXPECT_LT(cache.stats().bytes_retired, size_t{64} << 10);
  }
  EXPECT_EQ(memory.out, 0u);
}

// --- exceptions of K and V
// -------------------------------------------------------------------------

// Counts its instances, and throws at the n-th copy, or move where it may.
struct Instances {
  static inline int64_t alive = 0;
  static inline int64_t left = -1;  // calls until one throws; below 0: none does
  static void maybe_throw() {
    if (left == 0) {
      left = -1;
      throw std::runtime_error("K or V");
    }
    if (left > 0) --left;
  }
};
template <bool kMoveThrows>
class Counted {
 public:
  Counted(int number) : number_(number) {  // NOLINT: as a number is written
    Instances::maybe_throw();
    ++Instances::alive;
  }
  Counted(const Counted& other) : number_(other.number_) {
    Instances::maybe_throw();
    ++Instances::alive;
  }
  Counted(Counted&& other) noexcept(!kMoveThrows) : number_(other.number_) {
    if constexpr (kMoveThrows) Instances::maybe_throw();
    other.number_ = -1;
    ++Instances::alive;
  }
  Counted& operator=(const Counted& other) {
    Instances::maybe_throw();
    number_ = other.number_;
    return *this;
  }
  Counted& operator=(Counted&& other) noexcept(!kMoveThrows) {
    if constexpr (kMoveThrows) Instances::maybe_throw();
    number_ = std::exchange(other.number_, -1);
    return *this;
  }
  ~Counted() {
    --Instances::alive;
    number_ = -2;
  }
  [[nodiscard]] int number() const noexcept { return number_; }
  bool operator==(const Counted& other) const {
    Instances::maybe_throw();
    return number_ == other.number_;
  }

 private:
  int number_;
};
struct HashOfCounted {
  template <bool kMoveThrows>
  uint64_t operator()(const Counted<kMoveThrows>& key, uint64_t seed) const {
    Instances::maybe_throw();
    return cache::SeededHash{}(key.number(), seed);
  }
};

template <typename T, typename P, bool kThrows>
struct ThrowingCase {
  static constexpr bool kMoveThrows = kThrows;
  using Key = Counted<kThrows>;
  using Cache = ChronoCache<Key, Key, T, P, FakeClock, cache::HashWith<HashOfCounted>>;
};
template <typename T>
class ThrowingTypes : public testing::Test {
 protected:
  using Cache = typename T::Cache;
  using Counting = typename T::Key;
  void SetUp() override {
    FakeClock::set_ns(FakeClock::kStartNs);
    Instances::left = -1;
    Instances::alive = 0;
  }
  template <typename F, typename Check>
  static size_t throw_at_each(F&& f, Check&& check) {
    for (int64_t n = 0;; ++n) {
      Instances::left = n;
      try {
        f();
        Instances::left = -1;
        return static_cast<size_t>(n);
      } catch (const std::runtime_error&) {
        Instances::left = -1;
        check();
        if (testing::Test::HasFatalFailure()) return 0;
      }
    }
  }
  static int value_of(const Cache& cache, int key) {
    int value = -1;
    cache.visit(Counting(key), [&](const Counting& found) { value = found.number(); });
    return value;
  }
};
using ThrowingCases =
    testing::Types<ThrowingCase<OneThread, TtlOnly, false>, ThrowingCase<OneThread, TtlOnly, true>,
                   ThrowingCase<Concurrent, TtlOnly, false>,
                   ThrowingCase<Concurrent, TtlOnly, true>, ThrowingCase<OneThread, Lru, false>,
                   ThrowingCase<Concurrent, S3Fifo, true>>;
TYPED_TEST_SUITE(ThrowingTypes, ThrowingCases);

TYPED_TEST(ThrowingTypes, LeaveTheCacheAsItWas) {
  using Key = typename TypeParam::Key;
  {
    typename TestFixture::Cache cache;
    for (int i = 0; i < 300; ++i) {
      const size_t steps = this->throw_at_each([&] { cache.put(Key(i), Key(i), seconds(60)); },
                                               [&] {
                                                 ASSERT_EQ(this->value_of(cache, i), -1);
                                                 ASSERT_EQ(cache.size(), static_cast<size_t>(i));
                                               });
      ASSERT_GT(steps, 2u) << "nothing was made to throw";
      this->throw_at_each([&] { cache.put(Key(i), Key(i + 1), seconds(60)); },
                          [&] { ASSERT_EQ(this->value_of(cache, i), i); });
      ASSERT_EQ(this->value_of(cache, i), i + 1);
      this->throw_at_each([&] { static_cast<void>(cache.get(Key(i))); }, [] {});
      this->throw_at_each(
          [&] {
            ASSERT_EQ(
                cache.get_or_compute(Key(i + 1'000), seconds(60), [&] { return Key(i); }).number(),
                i);
          },
          [] {});
      this->throw_at_each(
          [&] { ASSERT_TRUE(cache.erase(Key(i + 1'000))); },
          [&] { ASSERT_EQ(this->value_of(cache, i + 1'000), i) << "not erased, still there"; });
      if (this->HasFatalFailure()) return;
    }
    for (int i = 0; i < 300; ++i) ASSERT_EQ(this->value_of(cache, i), i + 1);
  }
  EXPECT_EQ(Instances::alive, 0);
}

TYPED_TEST(ThrowingTypes, AreNotLostWhenTakingThemThrows) {
  using Key = typename TypeParam::Key;
  {
    typename TestFixture::Cache cache;
    for (int i = 0; i < 300; ++i) cache.put(Key(i), Key(i), seconds(60));
    for (int i = 0; i < 300; ++i) {
      int taken = -1;
      this->throw_at_each(
          [&] {
            const auto value = cache.take(Key(i));
            taken = value ? value->number() : -1;
          },
          [&] {
            // Where moves throw, that of the answer to its caller may, when the entry is gone.
            if (!TypeParam::kMoveThrows) {
              ASSERT_EQ(this->value_of(cache, i), i);
            }
          });
      if (this->HasFatalFailure()) return;
      if (!TypeParam::kMoveThrows) {
        ASSERT_EQ(taken, i);
      }
    }
    EXPECT_EQ(cache.size(), 0u);
  }
  EXPECT_EQ(Instances::alive, 0);
}

TYPED_TEST(ThrowingTypes, AreDestroyedOnceInEachCase) {
  using Key = typename TypeParam::Key;
  {
    typename TestFixture::Cache cache;
    for (int i = 0; i < 20'000; ++i) cache.put(Key(i), Key(i), seconds(i % 2 == 0 ? 1 : 100));
    for (int i = 0; i < 20'000; i += 5) cache.put(Key(i), Key(i + 7), seconds(50));  // replaced
    for (int i = 0; i < 20'000; i += 7) cache.erase(Key(i));
    for (int i = 0; i < 20'000; i += 11) static_cast<void>(cache.take(Key(i)));
    FakeClock::advance_ns(2'000'000'000);
    for (int i = 0; i < 20; ++i) cache.tick();  // expired
    for (int i = 30'000; i < 34'000; ++i) cache.put(Key(i), Key(i), seconds(1));
    const cache::Stats stats = cache.stats();
    EXPECT_GE(Instances::alive, static_cast<int64_t>(2 * stats.entries));
    cache.clear();
    EXPECT_EQ(cache.size(), 0u);
    for (int i = 0; i < 5'000; ++i) cache.put(Key(i), Key(i), seconds(1));
  }
  EXPECT_EQ(Instances::alive, 0);
}

}  // namespace
}  // namespace lumen
