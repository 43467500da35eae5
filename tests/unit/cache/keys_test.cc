// A ChronoCache's keys and values, and hashes that are bad or meant to do harm.
#include <lumen/cache/chrono_cache.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace lumen {
namespace {

using cache::Concurrent;
using cache::FakeClock;
using cache::OneThread;
using std::chrono::seconds;

template <typename T>
class CacheKeys : public testing::Test {
 protected:
  void SetUp() override { FakeClock::set_ns(FakeClock::kStartNs); }
  template <typename K, typename V, typename... More>
  using Cache = ChronoCache<K, V, T, FakeClock, More...>;
};
using Flavours = testing::Types<OneThread, Concurrent>;
TYPED_TEST_SUITE(CacheKeys, Flavours);

TYPED_TEST(CacheKeys, TellsNegativeNumbersOfAnyWidthApart) {
  typename TestFixture::template Cache<int64_t, int> cache;
  cache.put(-1, 1, seconds(1));
  cache.put(std::numeric_limits<int64_t>::min(), 2, seconds(1));
  cache.put(0xffff'ffff, 3, seconds(1));
  EXPECT_EQ(cache.get(-1), 1);
  EXPECT_EQ(cache.get(short{-1}), 1);
  EXPECT_EQ(cache.get(INT64_MIN), 2);
  EXPECT_EQ(cache.get(0xffff'ffffu), 3);
  EXPECT_FALSE(cache.contains(-2));
}

enum class Colour : uint8_t { kRed, kGreen };
TYPED_TEST(CacheKeys, MayBeOfAnEnumeration) {
  typename TestFixture::template Cache<Colour, int> cache;
  cache.put(Colour::kGreen, 1, seconds(1));
  EXPECT_EQ(cache.get(Colour::kGreen), 1);
  EXPECT_FALSE(cache.contains(Colour::kRed));
}

TYPED_TEST(CacheKeys, MayBeOfFloatingPoint) {
  typename TestFixture::template Cache<double, int> cache;
  cache.put(0.5, 1, seconds(1));
  cache.put(0.0, 2, seconds(1));
  EXPECT_EQ(cache.get(0.5), 1);
  EXPECT_EQ(cache.get(-0.0), 2) << "they are equal";
  EXPECT_EQ(cache.get(0), 2);
  EXPECT_FALSE(cache.contains(std::nan("")));
  typename TestFixture::template Cache<float, float> narrow;
  for (int i = 0; i < 5'000; ++i) narrow.put(static_cast<float>(i) / 4, 1, seconds(1));
  for (int i = 0; i < 5'000; ++i) ASSERT_TRUE(narrow.contains(static_cast<float>(i) / 4));
}

TYPED_TEST(CacheKeys, MayBeViewsOfStringsThatLiveElsewhere) {
  std::vector<std::string> texts;
  texts.reserve(3'000);
  for (int i = 0; i < 3'000; ++i) texts.push_back("key " + std::to_string(i));
  typename TestFixture::template Cache<std::string_view, int> cache;
  for (int i = 0; i < 3'000; ++i) cache.put(texts[static_cast<size_t>(i)], i, seconds(1));
  for (int i = 0; i < 3'000; ++i) ASSERT_EQ(cache.get("key " + std::to_string(i)), i);
  EXPECT_FALSE(cache.contains("key"));
  EXPECT_FALSE(cache.contains(std::string("key 3000")));
}

// Was: such a key was stored by its address and asked for by the text behind it.
TYPED_TEST(CacheKeys, MayBePointersAndAreThenAddresses) {
  const std::array<char, 3> text = {'k', '1', 0};
  const std::array<char, 3> same = text;
  typename TestFixture::template Cache<const char*, int> cache;
  cache.put(text.data(), 1, seconds(1));
  EXPECT_EQ(cache.get(text.data()), 1);
  EXPECT_FALSE(cache.contains(same.data()));
  EXPECT_TRUE(cache.erase(text.data()));
}

TYPED_TEST(CacheKeys, MayBeEmptyStringsAndHoldNulBytes) {
  typename TestFixture::template Cache<std::string, int> cache;
  cache.put("", 1, seconds(1));
  cache.put(std::string(1, '\0'), 2, seconds(1));
  cache.put(std::string(17, '\0'), 3, seconds(1));
  EXPECT_EQ(cache.get(""), 1);
  EXPECT_EQ(cache.get(std::string_view("\0", 1)), 2);
  EXPECT_EQ(cache.get(std::string(17, '\0')), 3);
  EXPECT_FALSE(cache.contains(std::string(16, '\0')));
}

struct Point {
  int32_t x;
  int32_t y;
  bool operator==(const Point&) const = default;
};
struct Wide {
  std::array<uint64_t, 38> words{};  // 304 bytes: held by pointer in a Concurrent cache
};
TYPED_TEST(CacheKeys, MayBePlainStructsWithLargeValues) {
  typename TestFixture::template Cache<Point, Wide> cache;
  for (int i = 0; i < 3'000; ++i) {
    Wide wide;
    wide.words.fill(static_cast<uint64_t>(i));
    cache.put(Point{i, -i}, wide, seconds(1));
  }
  for (int i = 0; i < 3'000; ++i) {
    ASSERT_TRUE(cache.visit(Point{i, -i}, [&](const Wide& wide) {
      for (const uint64_t word : wide.words) ASSERT_EQ(word, static_cast<uint64_t>(i));
    }));
  }
  EXPECT_FALSE(cache.contains(Point{1, 1}));
}

// Was: a Concurrent cache of a type without a default constructor, or with a const member, did not
// compile.
struct Made {
  explicit Made(int its_number) : number(its_number) {}
  const int number;
};
TYPED_TEST(CacheKeys, MayHaveValuesThatAreNeitherMadeEmptyNorAssigned) {
  typename TestFixture::template Cache<int, Made> numbers;
  typename TestFixture::template Cache<std::string, Made> texts;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3'000; ++i) {
      numbers.put(i, Made(i + round), seconds(1));
      texts.put(std::to_string(i), Made(i + round), seconds(1));
    }
    for (int i = 0; i < 3'000; ++i) {
      ASSERT_EQ(numbers.get(i)->number, i + round);
      ASSERT_EQ(texts.get(std::to_string(i))->number, i + round);
    }
  }
}

// A string that counts how often it was copied.
struct Copied {
  static inline int copies = 0;
  explicit Copied(std::string its_text) : text(std::move(its_text)) {}
  Copied(const Copied& other) : text(other.text) { ++copies; }
  Copied(Copied&&) noexcept = default;
  Copied& operator=(const Copied&) = default;
  Copied& operator=(Copied&&) noexcept = default;
  ~Copied() = default;
  bool operator==(const Copied&) const = default;
  std::string text;
};
struct HashOfCopied {
  uint64_t operator()(const Copied& key, uint64_t seed) const noexcept {
    return cache::SeededHash{}(key.text, seed);
  }
};
// Was: each put copied its key, 9 ns for one of 16 characters.
TYPED_TEST(CacheKeys, AreNotCopiedByAPutOverAnEntry) {
  typename TestFixture::template Cache<Copied, std::array<uint64_t, 3>,
                                       cache::HashWith<HashOfCopied>>
      cache;
  const Copied key("a key");
  Copied::copies = 0;
  cache.put(key, {1, 2, 3}, seconds(1));
  EXPECT_EQ(Copied::copies, 1);
  cache.put(key, {4, 5, 6}, seconds(2));
  cache.put(key, {7, 8, 9}, seconds(2));
  cache.put(Copied("a key"), {10, 11, 12}, seconds(2));
  EXPECT_EQ(Copied::copies, 1);
  cache.put(Copied("another"), {1, 1, 1}, seconds(2));
  EXPECT_EQ(Copied::copies, 1) << "it is moved";
  EXPECT_EQ(cache.get(key), (std::array<uint64_t, 3>{10, 11, 12}));
}

// A key that counts how often it was hashed and compared.
template <typename T>
struct Watched {
  static inline int hashes = 0;
  static inline int comparisons = 0;
  T content;
  bool operator==(const Watched& other) const noexcept {
    ++comparisons;
    return content == other.content;
  }
};
template <typename T>
struct HashOfWatched {
  uint64_t operator()(const Watched<T>& key, uint64_t seed) const noexcept {
    ++Watched<T>::hashes;
    return cache::SeededHash{}(key.content, seed);
  }
};
template <typename Cache, typename T>
void put_and_get_watched(Cache& cache, const std::vector<T>& contents) {
  Watched<T>::hashes = Watched<T>::comparisons = 0;
  for (const T& content : contents) cache.put(Watched<T>{content}, {}, seconds(1));
  const auto count = static_cast<int>(contents.size());
  EXPECT_EQ(Watched<T>::hashes, count) << "growth needs the hash of each entry, but not its key";
  EXPECT_EQ(Watched<T>::comparisons, 0);
  for (const T& content : contents) {
    ASSERT_TRUE(cache.contains(Watched<T>{content}));
  }
  EXPECT_EQ(Watched<T>::comparisons, count);
}
std::vector<std::string> texts(int count) {
  std::vector<std::string> texts;
  texts.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) texts.push_back(std::to_string(i));
  return texts;
}
// Was: one put of four compared its key with another one, whose hash has the same 8 bits.
TYPED_TEST(CacheKeys, AreComparedWhereTheWholeHashIsTheSameAlone) {
  using Key = Watched<std::string>;
  typename TestFixture::template Cache<Key, int, cache::HashWith<HashOfWatched<std::string>>> cache;
  put_and_get_watched(cache, texts(50'000));
}
// Was: each step of growth read the key of each entry, which lies in a node of its own.
TEST(ConcurrentCacheOfTexts, GrowsWithoutALookAtItsKeys) {
  std::vector<int> numbers(50'000);
  std::iota(numbers.begin(), numbers.end(), 0);
  ChronoCache<Watched<int>, std::string, Concurrent, FakeClock, cache::HashWith<HashOfWatched<int>>>
      cache;
  put_and_get_watched(cache, numbers);
}

// Letters of either case are one key; asked by anything that has text.
struct Text {
  std::string_view text;
};
struct AnyCase {
  using is_transparent = void;
  static std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result) c = static_cast<char>(c | 0x20);
    return result;
  }
  uint64_t operator()(std::string_view key, uint64_t seed) const {
    return cache::SeededHash{}(lower(key), seed);
  }
  uint64_t operator()(const Text& key, uint64_t seed) const { return (*this)(key.text, seed); }
  bool operator()(std::string_view a, std::string_view b) const { return lower(a) == lower(b); }
  bool operator()(const std::string& a, const Text& b) const { return (*this)(a, b.text); }
};
TYPED_TEST(CacheKeys, AreAskedForByTypesThatBothHashAndComparisonTake) {
  typename TestFixture::template Cache<std::string, int, cache::HashWith<AnyCase>,
                                       cache::EqualWith<AnyCase>>
      cache;
  EXPECT_TRUE(cache.put("Lumen", 1, seconds(1)));
  EXPECT_TRUE(cache.put("LUMEN", 2, seconds(1)));
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_EQ(cache.get("lumen"), 2);
  EXPECT_EQ(cache.get(Text{"lUMEN"}), 2);
  EXPECT_TRUE(cache.erase(Text{"lumeN"}));
  EXPECT_FALSE(cache.contains("Lumen"));
}

struct Constant {
  uint64_t operator()(int, uint64_t) const noexcept { return 0; }
};
struct Identity {
  uint64_t operator()(uint64_t key, uint64_t) const noexcept { return key; }
};
TYPED_TEST(CacheKeys, AreFoundThoughAllHaveOneHash) {
  typename TestFixture::template Cache<int, int, cache::HashWith<Constant>> cache;
  constexpr int kKeys = 3'000;
  for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(cache.put(i, i, seconds(1)));
  for (int i = 0; i < kKeys; ++i) ASSERT_EQ(cache.get(i), i);
  EXPECT_FALSE(cache.contains(kKeys));
  for (int i = 0; i < kKeys; i += 3) ASSERT_TRUE(cache.erase(i));
  for (int i = 0; i < kKeys; ++i) ASSERT_EQ(cache.contains(i), i % 3 != 0);
  EXPECT_LT(cache.stats().slots, 2u * kKeys + 4'096) << "in each shard's segments";
}

// More of them than a segment that can be split has slots: it grows, since no split would take them
// apart.
TEST(CacheOfOneHash, GrowsBeyondALargestSegment) {
  FakeClock::set_ns(FakeClock::kStartNs);
  ChronoCache<int, Wide, OneThread, FakeClock, cache::HashWith<Constant>> cache;
  constexpr int kKeys = 2'000;  // groups of 5 KB: a largest segment has 608 slots
  for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(cache.put(i, Wide{}, seconds(1)));
  for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(cache.contains(i)) << i;
  EXPECT_EQ(cache.stats().segments, 1u);
  EXPECT_LT(cache.stats().slots, 2u * kKeys);
  // And comes down again, as entries come and go.
  FakeClock::advance_ns(1'000'000'000);
  EXPECT_EQ(cache.size(), 0u);
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_TRUE(cache.put(i % 10, Wide{}, seconds(1)));
    if (i % 10 == 9) FakeClock::advance_ns(1'000'000'000);
    cache.tick();
  }
  EXPECT_EQ(cache.size(), 0u);
}

cache::Options one_shard(std::optional<uint64_t> seed = std::nullopt) {
  cache::Options options;
  options.shards = 1;
  options.seed = seed;
  return options;
}

// Was: numbers are multiplied by the seed, and by a small one they all stay in one segment.
TYPED_TEST(CacheKeys, AreSpreadBySmallSeedsToo) {
  for (const uint64_t seed : {0U, 1U, 2U, 77U}) {
    typename TestFixture::template Cache<int, int> cache(one_shard(seed));
    for (int i = 0; i < 60'000; ++i) ASSERT_TRUE(cache.put(i, 1, seconds(1)));
    EXPECT_GE(cache.stats().segments, 4u) << "seed " << seed;
  }
}

// Was: neighbours filled a segment that no split took apart, and it was never tried again.
TYPED_TEST(CacheKeys, AreSplitThoughNeighboursFillASegmentFirst) {
  typename TestFixture::template Cache<int, std::array<uint64_t, 24>> cache(one_shard(5));
  for (int i = 0; i < 30'000; ++i) ASSERT_TRUE(cache.put(i, {}, seconds(1)));
  EXPECT_GE(cache.stats().segments, 4u);
  for (int i = 0; i < 30'000; ++i) ASSERT_TRUE(cache.contains(i));
}

TYPED_TEST(CacheKeys, AreSpreadThoughTheirHashIsTheNumberItself) {
  typename TestFixture::template Cache<uint64_t, int, cache::HashWith<Identity>> cache(
      one_shard(1));
  constexpr uint64_t kKeys = 100'000;
  for (uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(cache.put(i << 32, 1, seconds(1)));
  for (uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(cache.contains(i << 32));
  EXPECT_LT(cache.stats().slots, 2 * kKeys);
  EXPECT_GT(cache.stats().segments, 5u);
}

// Keys that share their place in a table of std::hash, and such as collide under another seed, meet
// in no segment of this one: they take no more room, and as little work, as any keys.
TYPED_TEST(CacheKeys, ThatWereChosenToMeetAreSpreadByTheSeed) {
  using Hashes = cache::SeededHash;
  const uint64_t known_seed = 0x9abc'def0'1234'5679;
  std::vector<uint64_t> chosen;
  // 16 bits of the hash alike under the seed that the attacker knows: one of 65,536 keys.
  for (uint64_t key = 0; chosen.size() < 60; key += uint64_t{1} << Hashes::kNeighbourBits) {
    if (Hashes{}(key, known_seed) >> 48 == 0x5555) chosen.push_back(key);
  }
  // Under another seed a pair meets in one of 256 parts of the table by chance, twice as often at
  // most: 14 of 1,770.
  std::mt19937_64 random(3);
  constexpr int kSeeds = 400;
  uint64_t meetings = 0;
  for (int i = 0; i < kSeeds; ++i) {
    std::array<uint64_t, 256> keys_at{};
    const uint64_t seed = random() | 1;
    for (const uint64_t key : chosen) meetings += keys_at[Hashes{}(key, seed) >> 56]++;
  }
  EXPECT_LT(meetings / kSeeds, 20u);

  typename TestFixture::template Cache<uint64_t, int> cache(one_shard());
  constexpr uint64_t kKeys = 100'000;
  for (uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(cache.put(i << 40, 1, seconds(1)));
  for (uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(cache.contains(i << 40));
  EXPECT_LT(cache.stats().slots, 2 * kKeys);
  EXPECT_GE(cache.stats().segments, 6u);
}

TEST(SeededHashes, DifferBySeed) {
  EXPECT_NE(cache::SeededHash{}(1, cache::kHashFactor), cache::SeededHash{}(1, cache::kHashSecond));
  EXPECT_NE(cache::SeededHash{}(std::string_view("a"), 3),
            cache::SeededHash{}(std::string_view("a"), 5));
  EXPECT_NE(cache::SeededHash{}(0.5, 3), cache::SeededHash{}(0.5, 5));
  EXPECT_EQ(cache::SeededHash{}(std::string("text of some length"), 3),
            cache::SeededHash{}(std::string_view("text of some length"), 3));
}

}  // namespace
}  // namespace lumen
