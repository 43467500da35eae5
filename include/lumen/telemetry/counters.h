// Counters: the region in which every thread counts for itself, and the sums that readers see.
//
//   head │ tables: descriptors, models │ state of each block │ blocks │ stage histograms, by shard
//                                                              └ one writer each: server's slots, models' slots
//
// A thread counts through a CounterWriter, which holds a block: each slot has one writing thread at a time,
// so that counting is a plain load and store on a line that nobody else writes. A total is the sum over
// all blocks. A block stays when its writer ends, and the next writer goes on from what it holds: no total
// ever goes down, however often a live change ends workers and starts others.
//
// A model's slots are used again for another model once the first is gone: assign_model() clears them, by the
// control plane, at a moment when no thread counts for that index. That moment exists, since a model lives until
// its last request is recorded; a base line that readers subtract would need one for each bucket of each
// histogram, and clearing by the owners would need each of them to wake.
//
// Threads: a writer belongs to one thread at a time; totals by any; assign_model() and release_model() by the
// control plane. Memory: one mapping, virtual until touched: 21 MiB, and 36 MiB for each shard.
// Errors: none; more writers at once than kMaxWriters are our own bug.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/limits.h>
#include <lumen/memory/mapping.h>
#include <lumen/telemetry/counter_region.h>
#include <lumen/telemetry/counter_table.h>
#include <lumen/telemetry/stage_histograms.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

namespace lumen::telemetry {

class Counters {
 public:
  // A block for each I/O thread, for each runner of the engine's two configurations while one replaces the
  // other, and for those who count but for a moment: backends' threads, the control plane.
  static constexpr size_t kMaxWriters =
      limits::kMaxIoThreads + 2 * std::max(limits::kMaxWorkers, limits::kMaxIoThreads) + 64;

  // `shards`: threads that record stages.
  [[nodiscard]] static size_t bytes_for(size_t shards) noexcept;
  // `region`: at least so many bytes, all zero.
  Counters(Mapping region, size_t shards) noexcept;
  // With one shard, in memory that has to be there: for tests and tools.
  Counters() noexcept;
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

  [[nodiscard]] uint64_t total(ServerCounter counter) const noexcept;
  // `model` < limits::kMaxModels.
  [[nodiscard]] uint64_t total(uint32_t model, ModelCounter counter) const noexcept;
  [[nodiscard]] StageHistograms& stages() noexcept { return stages_; }
  [[nodiscard]] const StageHistograms& stages() const noexcept { return stages_; }

  // From here on `index` counts for this model, from zero. Nobody counts for it yet, nor any more for the one
  // before.
  void assign_model(uint32_t index, std::string_view name, std::string_view version) noexcept;
  void release_model(uint32_t index) noexcept;

  // As another process would map it: docs/formats/counters.md.
  [[nodiscard]] std::span<const std::byte> region() const noexcept;

 private:
  friend class CounterWriter;
  using Slot = std::atomic<uint64_t>;

  [[nodiscard]] std::atomic<BlockState>& state(size_t block) const noexcept;
  [[nodiscard]] Slot* server_slots(size_t block) const noexcept;
  [[nodiscard]] Slot* model_slots(size_t block, uint32_t model) const noexcept;
  template <typename SlotOf>
  [[nodiscard]] uint64_t gather(CounterKind kind, SlotOf&& slot_of) const noexcept;
  void describe(size_t shards) noexcept;

  Mapping memory_;
  StageHistograms stages_;
  uint64_t generations_ = 0;  // models assigned so far
};

// The counters of one model, to read.
class ModelCounters {
 public:
  ModelCounters(const Counters& all, uint32_t model) noexcept : all_(&all), model_(model) {}
  [[nodiscard]] uint64_t total(ModelCounter counter) const noexcept {
    return all_->total(model_, counter);
  }

 private:
  const Counters* all_;
  uint32_t model_;
};

// A thread's own block. It may be handed from one thread to another as any object is.
class CounterWriter {
 public:
  enum class Stay : uint8_t {
    kLong,    // takes the lowest block that is free, so that few are touched
    kMoment,  // the highest, which the last such writer had; waits if all are taken
  };

  explicit CounterWriter(Counters& counters, Stay stay = Stay::kLong) noexcept;
  ~CounterWriter();
  CounterWriter(const CounterWriter&) = delete;
  CounterWriter& operator=(const CounterWriter&) = delete;

  [[nodiscard]] size_t block() const noexcept { return block_; }
  void add(ServerCounter counter, uint64_t n = 1) noexcept { bump(server_[counter.index()], n); }
  // Of a gauge, what this writer has added before.
  void subtract(ServerGauge gauge, uint64_t n = 1) noexcept { bump(server_[gauge.index()], -n); }
  // Makes this writer's share of the gauge so much.
  void set(ServerGauge gauge, uint64_t value) noexcept {
    server_[gauge.index()].store(value, std::memory_order_relaxed);  // relaxed: as in bump()
  }
  void add(uint32_t model, ModelCounter counter, uint64_t n = 1) noexcept {
    bump(slot(model, counter), n);
  }
  void add_time(uint32_t model, ModelTime time, uint64_t ns) noexcept {
    bump(slot(model, time.count), 1);
    bump(slot(model, time.ns), ns);
  }
  void set(uint32_t model, ModelLatest latest, uint64_t value) noexcept {
    slot(model, latest).store(value, std::memory_order_relaxed);  // relaxed: as in bump()
  }

 private:
  using Slot = Counters::Slot;
  // Slots of a model in a block, filled up so that a model's begin on a line of their own.
  static constexpr size_t kModelSlots =
      (std::size(kModelCounters) * sizeof(Slot) + kFalseSharingRange - 1) / kFalseSharingRange *
      kFalseSharingRange / sizeof(Slot);
  friend class Counters;

  static void bump(Slot& slot, uint64_t n) noexcept {
    // relaxed: this thread alone writes it; counters order nothing, and a reader accepts a view a moment old
    slot.store(slot.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  [[nodiscard]] Slot& slot(uint32_t model, ModelCounter counter) noexcept {
    return models_[model * kModelSlots + counter.index()];
  }
  [[nodiscard]] bool take(size_t block) noexcept;

  Counters& counters_;
  size_t block_ = 0;
  Slot* server_ = nullptr;
  Slot* models_ = nullptr;
};

}  // namespace lumen::telemetry
