// Calls counted by their size, by one thread and by several.
#include <lumen/models/batch_times.h>

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>
#include <vector>

namespace lumen::models {
namespace {

using Times = BatchTimes::Times;

std::vector<Times> all_of(const BatchTimes& times) {
  std::vector<Times> all;
  times.for_each([&all](const Times& one) { all.push_back(one); });
  return all;
}

TEST(BatchTimes, CountsEachSizeByItselfInAscendingOrder) {
  BatchTimes times;
  EXPECT_TRUE(all_of(times).empty());
  std::mt19937_64 random(11);
  std::map<uint64_t, Times> wanted;
  for (int i = 0; i < 2000; ++i) {
    const Times call{1 + random() % BatchTimes::kSizes, 1, random() % 100, random() % 1000,
                     random() % 10};
    times.add(random() % (2 * BatchTimes::kShards), call);
    Times& sum = wanted[call.rows];
    sum.count += 1;
    sum.input_ns += call.input_ns;
    sum.infer_ns += call.infer_ns;
    sum.output_ns += call.output_ns;
  }
  const std::vector<Times> got = all_of(times);
  ASSERT_EQ(got.size(), wanted.size());
  size_t at = 0;
  for (const auto& [rows, sum] : wanted) {
    EXPECT_EQ(got[at].rows, rows);
    EXPECT_EQ(got[at].count, sum.count);
    EXPECT_EQ(got[at].input_ns, sum.input_ns);
    EXPECT_EQ(got[at].infer_ns, sum.infer_ns);
    EXPECT_EQ(got[at].output_ns, sum.output_ns);
    ++at;
  }
}

TEST(BatchTimes, MoreSizesThanItKeepsAreCountedTogetherAndNoneIsLost) {
  BatchTimes times;
  constexpr uint64_t kDifferent = 3 * BatchTimes::kSizes;
  for (uint64_t rows = 1; rows <= kDifferent; ++rows) {
    for (size_t shard = 0; shard < BatchTimes::kShards; ++shard) {
      // Each shard sees them in another order, and so keeps others.
      times.add(shard, {1 + (rows + 17 * shard) % kDifferent, 1, 1, 2, 3});
    }
  }
  const std::vector<Times> got = all_of(times);
  EXPECT_EQ(got.size(), BatchTimes::kSizes + 1);
  EXPECT_EQ(got.back().rows, 0u) << "the others, which have no size of their own";
  Times sum;
  for (const Times& one : got) {
    sum.count += one.count;
    sum.output_ns += one.output_ns;
  }
  EXPECT_EQ(sum.count, kDifferent * BatchTimes::kShards);
  EXPECT_EQ(sum.output_ns, 3 * sum.count);
}

TEST(BatchTimes, ThreadsThatShareAShardLoseNoCall) {
  BatchTimes times;
  constexpr uint64_t kCalls = 20'000;
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (uint64_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&times, thread] {
      for (uint64_t i = 0; i < kCalls; ++i) {
        times.add(BatchTimes::kShards + thread,
                  {1 + (i * (thread + 1)) % (2 * BatchTimes::kSizes), 1, 1, 0, 0});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t count = 0;
  std::map<uint64_t, int> seen;
  for (const Times& one : all_of(times)) {
    count += one.count;
    EXPECT_EQ(one.count, one.input_ns);
    EXPECT_EQ(++seen[one.rows], 1) << "a size has one entry";
  }
  EXPECT_EQ(count, 3 * kCalls);
}

}  // namespace
}  // namespace lumen::models
