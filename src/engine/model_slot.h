// ModelSlot: one model in the hands of one runner: its instance, its batch plan and what is in
// flight. make_slot() makes the instance; plan_slot() checks that packed rows come out as single ones
// do and measures what each size costs.
// Threads: the runner's; in_flight is counted down by a backend's threads.
// Memory: the heap, at make_slot() and plan_slot(). Says no: Status when the instance can't be made.
#pragma once

#include "engine/batch.h"
#include "engine/batch_plan.h"

#include <lumen/base/result.h>
#include <lumen/engine/engine_config.h>
#include <lumen/engine/model_repository.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace lumen::engine {

struct ModelSlot {
  Model* model = nullptr;
  std::unique_ptr<Instance> instance;  // nullptr: the model is unavailable
  uint32_t max_in_flight = 1;
  BatchPlan plan;
  std::optional<Batch> batch;  // where the plan packs
  uint64_t service_ns = 0;     // of its last call
  uint64_t blocked_pass = 0;   // the runner's pass in which it had no room, or waits for more rows
  // Written by the runner (up) and backends' threads (down).
  std::atomic<uint32_t> in_flight{0};
  // Set by a backend's thread: the batch in flight has failed and still holds its members.
  std::atomic<bool> batch_failed{false};
};

// The sizes of the first axis that `config` may run often, beyond 1; empty where it never packs.
[[nodiscard]] std::vector<uint32_t> batch_sizes_of(const EngineConfig& config);

// An unavailable model gives a slot without instance. Control plane, by several threads at once.
[[nodiscard]] Result<std::unique_ptr<ModelSlot>> make_slot(Model& model,
                                                           const EngineConfig& config);
// Control plane, one at a time and with nothing else compiling, for it measures. Only the first slot
// of a model is measured; what it took is kept with the model.
[[nodiscard]] Status plan_slot(ModelSlot& slot, const EngineConfig& config,
                               const RegionOptions& regions);

}  // namespace lumen::engine
