// StageHistograms: which stages of which model are counted, by one thread and by several.
// Threads: up to four. Memory: tables of 150 KB a model. Says no: by gtest.
#include <lumen/telemetry/stage_histograms.h>

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace lumen::telemetry {
namespace {

RequestRecord record_of(uint16_t model) {
  RequestRecord record;
  record.model = model;
  for (size_t i = 1; i < kStageCount; ++i) record.stage_ns[i] = 10 * i;  // connect stays absent
  return record;
}

TEST(StageHistograms, ARecordCountsInEachStageThatItHas) {
  StageHistograms stages(2);
  stages.record(record_of(1));
  stages.record(record_of(1));
  EXPECT_EQ(stages.of(1, Stage::kConnect).count(), 0u);
  for (size_t i = 1; i < kStageCount; ++i) {
    EXPECT_EQ(stages.of(1, static_cast<Stage>(i)).count(), 2u);
    EXPECT_EQ(stages.of(1, static_cast<Stage>(i)).sum(), 20 * i);
    EXPECT_EQ(stages.of(0, static_cast<Stage>(i)).count(), 0u);
  }
}

TEST(StageHistograms, ARequestWithoutAModelCountsNowhere) {
  StageHistograms stages(1, 2);
  stages.record(record_of(RequestRecord::kNone));
  stages.record(record_of(1));
  stages.record_alone(record_of(1), 0);
  stages.record_alone(record_of(0), 2);
  for (size_t shard = 0; shard < 2; ++shard) {
    EXPECT_EQ(stages.of(0, Stage::kTotal, shard).count(), 0u);
  }
}

TEST(StageHistograms, AShardIsItsThreadsOwn) {
  StageHistograms stages(3, 2);
  stages.record_alone(record_of(2), 1);
  EXPECT_EQ(stages.of(2, Stage::kTotal, 1).count(), 1u);
  EXPECT_EQ(stages.of(2, Stage::kTotal, 0).count(), 0u);
}

TEST(StageHistograms, ThreadsLoseNoCount) {
  StageHistograms stages(1, 4);
  constexpr uint64_t kEach = 20'000;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEach; ++i) stages.record_alone(record_of(0), t);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < 4; ++t) EXPECT_EQ(stages.of(0, Stage::kWrite, t).count(), kEach);
  threads.clear();
  StageHistograms shared(1);
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = 0; i < kEach; ++i) shared.record(record_of(0));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared.of(0, Stage::kWrite).count(), 4 * kEach);
}

}  // namespace
}  // namespace lumen::telemetry
