// A ChronoCache's values of any size and alignment come back as they were put.
#include <lumen/cache/chrono_cache.h>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace lumen {
namespace {

using std::chrono::seconds;

template <size_t kBytes, size_t kAlign>
struct Value {
  alignas(kAlign) std::array<uint8_t, kBytes> bytes;
  bool operator==(const Value&) const = default;
};

template <typename K>
K key_of(int number) {
  if constexpr (std::is_same_v<K, std::string>) {
    return "key " + std::to_string(number);
  } else {
    return static_cast<K>(number);
  }
}

template <typename V>
V value_of(int number) {
  V value;
  for (size_t i = 0; i < value.bytes.size(); ++i) {
    value.bytes[i] = static_cast<uint8_t>(static_cast<size_t>(number) * 31 + i * 7 + 1);
  }
  return value;
}

// Put anew, put over, read by copy and in place, and taken out, while the table grows.
template <typename Threads, typename K, size_t kBytes, size_t kAlign>
void check() {
  using V = Value<kBytes, kAlign>;
  SCOPED_TRACE(std::to_string(kBytes) + " bytes, aligned to " + std::to_string(kAlign));
  ChronoCache<K, V, Threads> cache;
  constexpr int kKeys = 500;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kKeys; ++i) {
      cache.put(key_of<K>(i), value_of<V>(i + round), seconds(60));
      ASSERT_EQ(cache.get(key_of<K>(i)), value_of<V>(i + round));
    }
  }
  for (int i = 0; i < kKeys; ++i) {
    ASSERT_EQ(cache.get(key_of<K>(i)), value_of<V>(i + 1));
    ASSERT_TRUE(
        cache.visit(key_of<K>(i), [&](const V& value) { ASSERT_EQ(value, value_of<V>(i + 1)); }));
    ASSERT_EQ(cache.take(key_of<K>(i)), value_of<V>(i + 1));
  }
}

// Some are copied by words, some by vectors, some lie in nodes.
template <typename Threads, typename K>
void check_sizes() {
  check<Threads, K, 31, 1>();
  check<Threads, K, 32, 8>();
  check<Threads, K, 40, 1>();
  check<Threads, K, 40, 8>();
  check<Threads, K, 264, 8>();
}

template <typename Threads>
class CacheValues : public testing::Test {};
using Flavours = testing::Types<cache::OneThread, cache::Concurrent>;
TYPED_TEST_SUITE(CacheValues, Flavours);

TYPED_TEST(CacheValues, OfAnySizeComeBackForNumbersOf4Bytes) { check_sizes<TypeParam, int32_t>(); }
TYPED_TEST(CacheValues, OfAnySizeComeBackForNumbersOf8Bytes) { check_sizes<TypeParam, uint64_t>(); }
TYPED_TEST(CacheValues, OfAnySizeComeBackForStrings) { check_sizes<TypeParam, std::string>(); }

}  // namespace
}  // namespace lumen
