// StageHistograms: how long the requests of each model spent in each stage, for /metrics.
// Threads: record() from any, wait-free; record_alone() where each shard has one thread; readers any.
// Memory: 18 KiB a stage, model and shard, all at construction. Says no: indices out of range are
// left out, so that a refused request (no model) needs no case of its own at the caller.
//
// Shards: record() of a request with seven stages is some 20 locked increments, 74 ns where nobody else
// counts, more where threads take the lines from each other. A thread with a shard of its own pays
// plain stores, 14 ns.
#pragma once

#include <lumen/telemetry/histogram.h>
#include <lumen/telemetry/request_record.h>
#include <lumen/telemetry/stages.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lumen::telemetry {

class StageHistograms {
 public:
  explicit StageHistograms(size_t models, size_t shards = 1)
      : models_(models), shards_(shards), tables_(models * shards) {}

  // All stages that are present, by record.model.
  void record(const RequestRecord& record) noexcept {
    if (record.model >= models_) return;
    Table& table = tables_[record.model];
    for (size_t i = 0; i < kStageCount; ++i) {
      if (record.stage_ns[i] != RequestRecord::kAbsent) table[i].record(record.stage_ns[i]);
    }
  }
  // The same by the only thread that has `shard`; not while others call record().
  void record_alone(const RequestRecord& record, size_t shard) noexcept {
    if (record.model >= models_ || shard >= shards_) return;
    Table& table = tables_[shard * models_ + record.model];
    for (size_t i = 0; i < kStageCount; ++i) {
      if (record.stage_ns[i] != RequestRecord::kAbsent) table[i].record_alone(record.stage_ns[i]);
    }
  }

  [[nodiscard]] size_t models() const noexcept { return models_; }
  [[nodiscard]] size_t shards() const noexcept { return shards_; }
  // `model` < models(), `shard` < shards().
  [[nodiscard]] const Histogram& of(size_t model, Stage stage, size_t shard = 0) const noexcept {
    return tables_[shard * models_ + model][static_cast<size_t>(stage)];
  }

 private:
  using Table = std::array<Histogram, kStageCount>;

  size_t models_;
  size_t shards_;
  std::vector<Table> tables_;
};

}  // namespace lumen::telemetry
