// Counters: the region in which every thread counts for itself, and the sums that readers see.
//
//   head │ tables: descriptors, models, writers │ the server's slots │ flight recorder │ a section for each model
//                                                  └ of each writer     └ of each shard    ├ slots of each writer
//                                                                                          └ histograms
//
// A thread counts through a CounterWriter, which holds a row of slots: each slot has one writing
// thread at a time, so that counting is a plain load and store on a line that no other thread
// writes. A total is the sum over all rows. A row stays when its writer ends, and the next writer
// goes on from its values: no total ever goes down, however often a live change ends workers and
// starts others.
//
// The counters of a model lie together, so that a file needs room for the models that there are,
// not for as many as there could be.
//
// A model's slots are used again for another model once the first is gone: assign_model() clears
// them, by the control plane, at a moment when no thread counts for that index. That moment exists,
// since a model lives until its last request is recorded; a base line that readers subtract would
// need one for each bucket of each histogram, and clearing by the owners would need each of them to
// wake.
//
// Threads: a writer belongs to one thread at a time; totals by any; assign_model() and
// release_model() by the control plane. Memory: one mapping, virtual until touched, or a file
// (counters_file.h), of which 0.5 MiB and 0.3 MiB a model are taken, with one shard. Errors:
// assign_model(), where the file gets no room; more writers at once than kMaxWriters are our own
// bug.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/limits.h>
#include <lumen/base/result.h>
#include <lumen/base/thread_times.h>
#include <lumen/memory/mapping.h>
#include <lumen/telemetry/counter_region.h>
#include <lumen/telemetry/counter_table.h>
#include <lumen/telemetry/stage_histograms.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>

namespace lumen::telemetry {

class CountersFile;

struct CountersOptions {
  size_t shards = 1;  // threads that record stages
  // By the numbers that records of requests have.
  std::span<const std::string_view> queue_types = {};
  std::span<const std::string_view> allocator_types = {};
};

class Counters {
 public:
  // A row for each I/O thread, for each runner of the engine's two configurations while one
  // replaces the other, and for threads that count for a moment: backends' threads, the control
  // plane.
  static constexpr size_t kMaxWriters =
      limits::kMaxIoThreads + 2 * std::max(limits::kMaxWorkers, limits::kMaxIoThreads) + 64;

  [[nodiscard]] static size_t bytes_for(size_t shards) noexcept;
  // In memory that no other process sees. `region`: at least so many bytes, all zero.
  explicit Counters(Mapping region, const CountersOptions& options = {}) noexcept;
  // In a file of at least so many bytes that outlives it, and that it publishes.
  [[nodiscard]] static Result<std::unique_ptr<Counters>> create(CountersFile& file,
                                                                const CountersOptions& options);
  // With one shard, in memory that has to be there: for tests and tools.
  Counters() noexcept;
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

  [[nodiscard]] uint64_t total(ServerCounter counter) const noexcept;
  // `model` < limits::kMaxModels.
  [[nodiscard]] uint64_t total(uint32_t model, ModelCounter counter) const noexcept;
  [[nodiscard]] StageHistograms& stages() noexcept { return stages_; }
  [[nodiscard]] const StageHistograms& stages() const noexcept { return stages_; }

  // From here on `index` counts for this model, from zero. Nobody counts for it yet, nor any more
  // for the one before.
  [[nodiscard]] Status assign_model(uint32_t index, std::string_view name,
                                    std::string_view version) noexcept;
  void release_model(uint32_t index) noexcept;
  // Of a model that was assigned; a look at the file that finds 0 finds it at the next one.
  void set_precision(uint32_t index, uint32_t precision) noexcept;
  // Of a model that was assigned, for the one thread at a time that counts them; 0 at first.
  [[nodiscard]] std::atomic<uint64_t>& live_sequences(uint32_t index) noexcept;
  // A number that no other model has; 0: the index has none.
  [[nodiscard]] uint64_t generation(uint32_t index) const noexcept;

  // Of the flight recorder: kRecentBytes and kSlowBytes, for the thread that has `shard`.
  [[nodiscard]] std::span<std::byte> recent(size_t shard) const noexcept;
  [[nodiscard]] std::span<std::byte> slow(size_t shard) const noexcept;

  // As another process would map it: docs/formats/counters.md.
  [[nodiscard]] std::span<const std::byte> region() const noexcept;

 private:
  friend class CounterWriter;
  using Slot = std::atomic<uint64_t>;

  Counters(std::byte* region, size_t bytes, const CountersOptions& options) noexcept;
  [[nodiscard]] RegionWriter& writer(size_t row) const noexcept;
  [[nodiscard]] Slot* server_slots(size_t row) const noexcept;
  [[nodiscard]] Slot* model_slots(size_t row, uint32_t model) const noexcept;
  template <typename Function>
  void for_used_rows(Function&& function) const noexcept;
  void widen(size_t row, bool is_long) noexcept;
  template <typename SlotOf>
  [[nodiscard]] uint64_t gather(CounterKind kind, SlotOf&& slot_of) const noexcept;
  void describe(const CountersOptions& options) noexcept;

  Mapping memory_;                // where there is no file
  CountersFile* file_ = nullptr;  // where there is one
  std::byte* region_;
  // Those in the region are for readers: it may be lost (TruncationGuard), and this process does
  // not rely on it.
  const std::unique_ptr<std::atomic<WriterState>[]> states_ =
      std::make_unique<std::atomic<WriterState>[]>(kMaxWriters);
  // Rows from long_end_ to moment_begin_ were never taken: a total need not look at them.
  std::atomic<size_t> long_end_{0};
  std::atomic<size_t> moment_begin_{kMaxWriters};
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

// A thread's own row. It may be handed from one thread to another as any object is.
class CounterWriter {
 public:
  enum class Stay : uint8_t {
    kLong,    // takes the lowest row that is free, so that few are touched
    kMoment,  // the highest, which the last such writer had; waits if all are taken
  };

  explicit CounterWriter(Counters& counters, Stay stay = Stay::kLong) noexcept;
  ~CounterWriter();
  CounterWriter(const CounterWriter&) = delete;
  CounterWriter& operator=(const CounterWriter&) = delete;

  [[nodiscard]] size_t row() const noexcept { return row_; }
  // Tells readers the owner of the row: the calling thread.
  void is_thread(WriterRole role, uint32_t number) noexcept;
  // Where the time of that thread is kept.
  [[nodiscard]] ThreadTimes thread_times() noexcept;
  void add(ServerCounter counter, uint64_t n = 1) noexcept { bump(server_[counter.index()], n); }
  // Of a gauge, the earlier additions of this writer or another.
  void subtract(ServerGauge gauge, uint64_t n = 1) noexcept { bump(server_[gauge.index()], -n); }
  void subtract(uint32_t model, ModelGauge gauge, uint64_t n = 1) noexcept {
    bump(slot(model, gauge), -n);
  }
  // Makes this writer's share of the gauge so much.
  void set(ServerGauge gauge, uint64_t value) noexcept {
    server_[gauge.index()].store(value, std::memory_order_relaxed);  // relaxed: as in bump()
  }
  // A name of its own: by a text alone the compiler can't tell a gauge from a time.
  void set_gauge(uint32_t model, ModelGauge gauge, uint64_t value) noexcept {
    slot(model, gauge).store(value, std::memory_order_relaxed);  // relaxed: as in bump()
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
  static void bump(Slot& slot, uint64_t n) noexcept {
    // relaxed: this thread alone writes it; counters order nothing, and a reader accepts a view a
    // moment old
    slot.store(slot.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  [[nodiscard]] Slot& slot(uint32_t model, ModelCounter counter) noexcept {
    return reinterpret_cast<Slot*>(models_ + model * section_bytes_)[counter.index()];
  }
  [[nodiscard]] bool take(size_t row) noexcept;

  Counters& counters_;
  size_t row_ = 0;
  Slot* server_ = nullptr;
  std::byte* models_ = nullptr;  // its slots of model 0
  size_t section_bytes_ = 0;     // from a model's to the next one's
};

}  // namespace lumen::telemetry
