// Histogram: bounds of its buckets exhaustively, percentiles against sorted values, merging,
// threads.
// Threads: one that records and one that reads. Memory: a few histograms. Errors: by gtest.
#include <lumen/telemetry/histogram.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace lumen::telemetry {
namespace {

TEST(Histogram, BucketsCoverAllValuesWithoutGapOrOverlap) {
  uint64_t next = 0;
  for (size_t i = 0; i < Histogram::kBuckets; ++i) {
    ASSERT_EQ(Histogram::lowest_of(i), next);
    next += Histogram::width_of(i);
    ASSERT_EQ(Histogram::bucket_of(Histogram::lowest_of(i)), i);
    ASSERT_EQ(Histogram::bucket_of(next - 1), i);
  }
  EXPECT_EQ(next, Histogram::kMaxValue + 1);
  EXPECT_EQ(Histogram::bucket_of(UINT64_MAX), Histogram::kBuckets - 1);
}

TEST(Histogram, NoBucketIsWiderThanASixtyFourthOfItsValues) {
  for (size_t i = Histogram::kSubBuckets; i < Histogram::kBuckets; ++i) {
    ASSERT_LE(Histogram::width_of(i) * Histogram::kSubBuckets, Histogram::lowest_of(i)) << i;
  }
}

TEST(Histogram, AnEmptyOneSaysZeroEverywhere) {
  const auto h = std::make_unique<Histogram>();
  EXPECT_TRUE(h->was_empty());
  const Histogram::Summary s = h->summary();
  EXPECT_EQ(s.count + s.min + s.p50 + s.p90 + s.p99 + s.p999 + s.max, 0u);
  EXPECT_EQ(s.mean, 0);
}

TEST(Histogram, SmallValuesAreExact) {
  const auto h = std::make_unique<Histogram>();
  for (uint64_t v = 1; v <= 100; ++v) h->record(v);
  for (int p = 1; p <= 100; ++p) EXPECT_EQ(h->percentile(p), static_cast<uint64_t>(p));
  EXPECT_EQ(h->percentile(0), 1u);
  EXPECT_EQ(h->percentile(-5), 1u);
  EXPECT_EQ(h->percentile(300), 100u);
  EXPECT_DOUBLE_EQ(h->mean(), 50.5);
}

TEST(Histogram, ASingleValueIsAllItsPercentiles) {
  const auto h = std::make_unique<Histogram>();
  h->record(123'456'789);
  EXPECT_EQ(h->percentile(0), 123'456'789u);
  EXPECT_EQ(h->percentile(50), 123'456'789u);
  EXPECT_EQ(h->percentile(100), 123'456'789u);
  EXPECT_EQ(h->min(), h->max());
}

TEST(Histogram, ZeroIsAValueAndTheMinimum) {
  const auto h = std::make_unique<Histogram>();
  h->record(0);
  h->record(7);
  EXPECT_EQ(h->min(), 0u);
  EXPECT_EQ(h->count(), 2u);
  EXPECT_EQ(h->percentile(50), 0u);
}

TEST(Histogram, HugeValuesCountAsTheLargestButTheMaximumIsExact) {
  const auto h = std::make_unique<Histogram>();
  h->record(UINT64_MAX - 1);
  EXPECT_EQ(h->count_of(Histogram::kBuckets - 1), 1u);
  EXPECT_EQ(h->max(), UINT64_MAX - 1);
}

TEST(Histogram, PercentilesAreWithinOnePercentOfTheSortedValues) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    std::lognormal_distribution<double> latency(11, 1.5);  // about 60 µs, with a long tail
    const auto h = std::make_unique<Histogram>();
    std::vector<uint64_t> values;
    for (int i = 0; i < 10'000; ++i) {
      values.push_back(static_cast<uint64_t>(latency(random)));
      h->record(values.back());
    }
    std::sort(values.begin(), values.end());
    for (const size_t per_mille : {1u, 10u, 100u, 500u, 900u, 990u, 999u, 1000u}) {
      const auto exact = static_cast<double>(values[per_mille * 10 - 1]);
      const auto percent = static_cast<double>(per_mille) / 10;
      EXPECT_NEAR(static_cast<double>(h->percentile(percent)), exact, exact * 0.01 + 1)
          << "seed " << seed << ", p" << percent;
    }
    EXPECT_EQ(h->min(), values.front());
    EXPECT_EQ(h->max(), values.back());
  }
}

// In four that are merged, as four I/O threads have them.
TEST(Histogram, OfTenMillionMergedValuesP999IsWithinOnePercent) {
  constexpr size_t kValues = 10'000'000;
  std::mt19937_64 random(41);
  std::vector<uint64_t> values(kValues);
  // An even spread over the octaves from 1 us to 1 s: a tail that is longer than any server's.
  for (uint64_t& value : values) {
    const uint64_t bits = random();
    value = (1000 + (bits >> 32) % 1000) << (bits % 20);
  }
  const auto parts = std::make_unique<std::array<Histogram, 4>>();
  for (size_t i = 0; i < kValues; ++i) (*parts)[i % parts->size()].record(values[i]);
  const auto all = std::make_unique<Histogram>();
  for (const Histogram& part : *parts) all->merge(part);
  EXPECT_EQ(all->count(), kValues);
  for (const double percent : {50.0, 99.0, 99.9, 99.99}) {
    const auto rank = static_cast<size_t>(std::ceil(percent / 100 * kValues)) - 1;
    std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(rank));
    const auto exact = static_cast<double>(values[rank]);
    EXPECT_NEAR(static_cast<double>(all->percentile(percent)), exact, exact * 0.01) << percent;
  }
}

TEST(Histogram, MergingIsAsIfAllHadBeenRecordedInOne) {
  std::mt19937_64 random(7);
  const auto all = std::make_unique<Histogram>();
  const auto sum = std::make_unique<Histogram>();
  for (int part = 0; part < 5; ++part) {
    const auto h = std::make_unique<Histogram>();
    for (int i = 0; i < 1000; ++i) {
      const uint64_t value = random() >> (random() % 60);
      all->record(value);
      h->record(value);
    }
    sum->merge(*h);
  }
  sum->merge(*std::make_unique<Histogram>());
  for (size_t i = 0; i < Histogram::kBuckets; ++i) ASSERT_EQ(sum->count_of(i), all->count_of(i));
  EXPECT_EQ(sum->min(), all->min());
  EXPECT_EQ(sum->max(), all->max());
  EXPECT_EQ(sum->mean(), all->mean());
  sum->reset();
  EXPECT_EQ(sum->count(), 0u);
  EXPECT_EQ(sum->max(), 0u);
}

TEST(Histogram, AReaderSeesNoCountGoDownWhileItsWriterRecords) {
  const auto h = std::make_unique<Histogram>();
  std::thread writer([&] {
    for (uint64_t i = 0; i < 200'000; ++i) h->record(i + 1);
  });
  uint64_t last = 0;
  while (last < 200'000) {
    const uint64_t seen = h->count();
    ASSERT_GE(seen, last);
    last = seen;
  }
  writer.join();
  EXPECT_EQ(h->count(), 200'000u);
  EXPECT_EQ(h->min(), 1u);
  EXPECT_EQ(h->max(), 200'000u);
  EXPECT_DOUBLE_EQ(h->mean(), 100'000.5);
}

TEST(Histogram, ZeroesAreAnEmptyOneAndItsBytesLieAsTheFormatSays) {
  alignas(Histogram) std::array<uint64_t, sizeof(Histogram) / 8> bytes{};
  auto& h = *reinterpret_cast<Histogram*>(bytes.data());
  EXPECT_TRUE(h.was_empty());
  EXPECT_EQ(h.summary().count, 0u);
  h.record(3);
  h.record(9);
  EXPECT_FALSE(h.was_empty());
  EXPECT_EQ(bytes[0], 12u);
  EXPECT_EQ(bytes[1], ~uint64_t{3});
  EXPECT_EQ(bytes[2], 9u);
  EXPECT_EQ(bytes[8 + 3], 1u);
  EXPECT_EQ(bytes[8 + 9], 1u);
}

}  // namespace
}  // namespace lumen::telemetry
