// Random operations on a ChronoCache and on a model of it, with a clock that jumps by microseconds
// and by years.
#include "support/cache_model.h"
#include "support/stress.h"

#include <lumen/cache/lfu.h>
#include <lumen/cache/lru.h>
#include <lumen/cache/s3_fifo.h>

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace lumen {
namespace {

using cache::Concurrent;
using cache::FakeClock;
using cache::Lfu;
using cache::Lru;
using cache::OneThread;
using cache::S3Fifo;
using cache::TtlOnly;

template <typename K, typename V, typename Threads, typename Eviction>
struct Case {
  using Key = K;
  using Value = V;
  using Cache = ChronoCache<K, V, Threads, Eviction, FakeClock, cache::OnRemoval<test::Removals>>;
  static constexpr bool kBounded = Eviction::kKeepsRecords;
};

template <typename T>
class CacheAgainstItsModel : public testing::Test {};
using Cases =
    testing::Types<Case<int, int, OneThread, TtlOnly>, Case<int, int, Concurrent, TtlOnly>,
                   Case<std::string, std::string, OneThread, TtlOnly>,
                   Case<std::string, std::string, Concurrent, TtlOnly>,
                   Case<std::string, uint64_t, Concurrent, TtlOnly>,
                   Case<int, std::string, OneThread, Lru>, Case<int, int, Concurrent, Lru>,
                   Case<uint64_t, uint64_t, OneThread, S3Fifo>,
                   Case<std::string, int, Concurrent, S3Fifo>, Case<int, int, OneThread, Lfu>,
                   Case<int, uint64_t, Concurrent, Lfu>>;
TYPED_TEST_SUITE(CacheAgainstItsModel, Cases);

TYPED_TEST(CacheAgainstItsModel, GivesTheAnswersThatTheModelAllows) {
  const uint64_t seed = test::stress_seed();
  for (uint64_t round = 0; round < 4; ++round) {
    std::mt19937_64 random(seed + round);
    FakeClock::set_ns(FakeClock::kStartNs);
    cache::Options options;
    options.seed = random();
    if (round % 2 == 1) options.shards = 4;
    if (round == 3) options.reserve_entries = 4'000;
    if (TypeParam::kBounded) options.max_entries = 1'000;
    test::CacheModel<typename TypeParam::Cache, typename TypeParam::Key, typename TypeParam::Value,
                     TypeParam::kBounded>
        model(options);
    for (int i = 0; i < 20'000; ++i) {
      const auto kind = static_cast<uint32_t>(random());
      const auto number = static_cast<uint32_t>(random());
      const auto wrong = model.step(kind, number);
      ASSERT_FALSE(wrong) << *wrong << ", operation " << i << ", kind " << kind % 16 << ", number "
                          << number << ", round " << round;
    }
    const auto wrong = model.settled();
    ASSERT_FALSE(wrong) << *wrong << ", round " << round;
  }
}

}  // namespace
}  // namespace lumen
