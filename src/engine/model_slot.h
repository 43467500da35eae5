// ModelSlot: one model in the hands of one runner: its instance, its batch plan and the requests in
// flight. make_slot() makes the instance; plan_slot() checks that packed rows give the same as
// single ones and measures the cost of each size.
// Threads: the runner's; in_flight is counted down by a backend's threads.
// Memory: the heap, at make_slot() and plan_slot(). Errors: Status when the instance can't be made.
#pragma once

#include "engine/batch.h"
#include "engine/batch_plan.h"

#include <lumen/base/result.h>
#include <lumen/engine/engine_config.h>
#include <lumen/models/model_repository.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace lumen::engine {

// Where a slot packs one call. As many as it may have in flight, so that one is free where there is
// room.
struct BatchPlace {
  explicit BatchPlace(Batch made) noexcept : batch(std::move(made)) {}
  Batch batch;
  // Set by the runner, cleared by the thread that is done with the batch.
  std::atomic<bool> is_taken{false};
  BatchPlace* next_failed = nullptr;
};

struct ModelSlot {
  models::Model* model = nullptr;
  std::shared_ptr<models::Instance> instance;  // nullptr: the model is unavailable
  uint64_t made_bytes = 0;                     // taken by its making
  uint64_t run_bytes = 0;                      // and then by trials that ran it
  bool has_run = false;
  uint32_t max_in_flight = 1;
  BatchPlan plan;
  std::vector<std::unique_ptr<BatchPlace>> batches;  // empty where the plan never packs
  // A worker takes requests that it can pack from the queue before it runs one.
  bool gathers = false;
  uint64_t service_ns = 0;    // of its last call
  uint64_t blocked_pass = 0;  // the runner's pass in which it had no room, or waits for more rows
  // Written by the runner (up) and backends' threads (down).
  std::atomic<uint32_t> in_flight{0};
  // The runner's thread is inside instance->start(): a completion may come, and the model go,
  // before it returns.
  std::atomic<bool> is_starting{false};
};

// The sizes of the first axis that `config` may run often, beyond 1; empty where it never packs.
[[nodiscard]] std::vector<uint32_t> batch_sizes_of(const EngineConfig& config);

// The instances of backends that share them, among the runners of one scheduler.
class SharedInstances {
 public:
  // That of `model`, made at the first call for it.
  [[nodiscard]] Result<std::shared_ptr<models::Instance>> of(models::Model& model,
                                                             std::span<const uint32_t> batch_sizes);

 private:
  std::mutex mutex_;
  std::map<const models::Model*, std::shared_ptr<models::Instance>> made_;
};

// An unavailable model gives a slot without instance. Control plane, by several threads at once.
[[nodiscard]] Result<std::unique_ptr<ModelSlot>> make_slot(models::Model& model,
                                                           const EngineConfig& config,
                                                           SharedInstances& shared);
// Control plane, one at a time and with nothing else compiling, for it measures. Only the first
// slot of a model is measured; the result is kept with the model.
[[nodiscard]] Status plan_slot(ModelSlot& slot, const EngineConfig& config,
                               const RegionOptions& regions);
// Of `auto`, after plan_slot(): packs as `batched` does, with the instance as it is, where a trial
// shows that several rows in one call cost less. No size is compiled for: each would keep the
// weights once more.
[[nodiscard]] Status pack_slot(ModelSlot& slot, const EngineConfig& config,
                               const RegionOptions& regions);

}  // namespace lumen::engine
