// StageHistograms: how long the requests of each model spent in each stage, for /metrics. Views of
// histograms in the counters' region.
// Threads: each shard is written by one thread, an I/O thread; readers any.
// Memory: none of its own; 144 KiB a model and shard, of which only written pages are touched.
// Errors: indices out of range are left out, so that a refused request (no model) needs no case of
// its own at the caller.
//
// Why shards: shared, a request with seven stages is some 20 locked increments, 74 ns where nobody
// else counts and more where threads take the lines from each other; plain stores are 14 ns.
#pragma once

#include <lumen/telemetry/histogram.h>
#include <lumen/telemetry/request_record.h>
#include <lumen/telemetry/stages.h>

#include <cstddef>
#include <cstdint>

namespace lumen::telemetry {

class StageHistograms {
 public:
  // `first`: those of model 0, shards * kStageCount one behind the other; `stride`: bytes from a
  // model's to the next one's.
  StageHistograms(std::byte* first, size_t stride, size_t models, size_t shards) noexcept
      : first_(first), stride_(stride), models_(models), shards_(shards) {}

  // All stages that are present, by record.model; by the thread that has `shard`.
  void record(const RequestRecord& record, size_t shard = 0) noexcept {
    if (record.model >= models_ || shard >= shards_) return;
    for (size_t i = 0; i < kStageCount; ++i) {
      if (record.stage_ns[i] != RequestRecord::kAbsent) {
        at(record.model, i, shard).record(record.stage_ns[i]);
      }
    }
  }
  // While nobody records requests of that model.
  void clear(size_t model) noexcept {
    for (size_t shard = 0; shard < shards_; ++shard) {
      for (size_t i = 0; i < kStageCount; ++i) {
        if (Histogram& used = at(model, i, shard); !used.was_empty()) used.reset();
      }
    }
  }

  [[nodiscard]] size_t models() const noexcept { return models_; }
  [[nodiscard]] size_t shards() const noexcept { return shards_; }
  // `model` < models(), `shard` < shards().
  [[nodiscard]] const Histogram& of(size_t model, Stage stage, size_t shard = 0) const noexcept {
    return at(model, static_cast<size_t>(stage), shard);
  }

 private:
  [[nodiscard]] Histogram& at(size_t model, size_t stage, size_t shard) const noexcept {
    return reinterpret_cast<Histogram*>(first_ + model * stride_)[shard * kStageCount + stage];
  }

  std::byte* first_;
  size_t stride_;
  size_t models_;
  size_t shards_;
};

}  // namespace lumen::telemetry
