// StageHistograms: which stages of which model are counted, by one thread and by several.
// Threads: up to four. Memory: tables of 150 KB a model. Errors: by gtest.
#include <lumen/telemetry/counters.h>

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

class StageHistogramsTest : public ::testing::Test {
 protected:
  Counters counters{Mapping::create(Counters::bytes_for(4)).value(), {.shards = 4}};
  StageHistograms& stages = counters.stages();
};

TEST_F(StageHistogramsTest, ARecordCountsInEachStageThatItHas) {
  stages.record(record_of(1));
  stages.record(record_of(1));
  EXPECT_EQ(stages.of(1, Stage::kConnect).count(), 0u);
  for (size_t i = 1; i < kStageCount; ++i) {
    EXPECT_EQ(stages.of(1, static_cast<Stage>(i)).count(), 2u);
    EXPECT_EQ(stages.of(1, static_cast<Stage>(i)).sum(), 20 * i);
    EXPECT_EQ(stages.of(0, static_cast<Stage>(i)).count(), 0u);
  }
}

TEST_F(StageHistogramsTest, ARequestWithoutAModelCountsNowhere) {
  stages.record(record_of(RequestRecord::kNone));
  stages.record(record_of(limits::kMaxModels));
  stages.record(record_of(0), 4);
  for (size_t shard = 0; shard < 4; ++shard) {
    EXPECT_TRUE(stages.of(0, Stage::kTotal, shard).was_empty());
    EXPECT_TRUE(stages.of(limits::kMaxModels - 1, Stage::kTotal, shard).was_empty());
  }
}

TEST_F(StageHistogramsTest, AShardIsItsThreadsOwn) {
  stages.record(record_of(2), 1);
  EXPECT_EQ(stages.of(2, Stage::kTotal, 1).count(), 1u);
  EXPECT_EQ(stages.of(2, Stage::kTotal, 0).count(), 0u);
}

TEST_F(StageHistogramsTest, ThreadsLoseNoCount) {
  constexpr uint64_t kEach = 20'000;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEach; ++i) stages.record(record_of(0), t);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < 4; ++t) EXPECT_EQ(stages.of(0, Stage::kWrite, t).count(), kEach);
}

TEST_F(StageHistogramsTest, ClearingAModelLeavesTheOthers) {
  for (size_t shard = 0; shard < 4; ++shard) {
    stages.record(record_of(0), shard);
    stages.record(record_of(1), shard);
  }
  stages.clear(0);
  for (size_t shard = 0; shard < 4; ++shard) {
    EXPECT_EQ(stages.of(0, Stage::kQueue, shard).count(), 0u);
    EXPECT_EQ(stages.of(1, Stage::kQueue, shard).count(), 1u);
  }
}

}  // namespace
}  // namespace lumen::telemetry
