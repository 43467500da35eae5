// See the header for threads, memory and errors.
#include "engine/worker_lane.h"

#include "engine/instance_memory.h"

#include <lumen/base/cpu.h>

#include <optional>

namespace lumen::engine {

WorkerLane::WorkerLane(const LaneContext& context, const Placement& placement, ModelFilter serves,
                       ModelFilter packs)
    : QueueLane(context, Threads::kWorkers, context.config.thread_count),
      placement_(placement),
      serves_(serves),
      packs_(packs) {
  const EngineConfig& config = context.config;
  pinned_ = pin_cpus(context.options.pin_threads, config.thread_count, context.options.cpu_claims);
  // A worker that polls on a CPU that others need takes from them the time that it hopes to save.
  // Nor is a mutex polled: the naive type waits as naive servers do.
  const bool may_spin =
      usable_cpu_count() > config.thread_count && config.queue_type != models::QueueType::kNaive;
  for (uint32_t i = 0; i < config.thread_count; ++i) {
    const RunnerLoad load{.outstanding = source_->outstanding(i),
                          .admission = &admission_,
                          .shares = source_->shares(),
                          .heavy = &context.load.heavy};
    add_worker({.index = i,
                .place = i,
                .config = config,
                .cpu = pinned_.of(i),
                .may_spin = may_spin,
                .may_want_cpu = &context.load.express,
                .load = load,
                .regions = context.options.regions,
                .counters = &context.counters});
  }
}

bool WorkerLane::push(uint32_t submitter, models::InferRequest& request) noexcept {
  const bool is_heavy = request.is_heavy;
  std::atomic<uint32_t>& heavy = context_.load.heavy;
  // relaxed, both: hints. Before the push: the worker may be done with it when the push returns.
  if (is_heavy) heavy.fetch_add(1, std::memory_order_relaxed);
  if (source_->push(submitter, request)) return true;
  if (is_heavy) heavy.fetch_sub(1, std::memory_order_relaxed);  // relaxed: as above
  return false;
}

Status WorkerLane::add(std::span<models::Model* const> models, models::Builders& builders,
                       Runner::OnFailure on_failure) {
  std::vector<RunnerModels> all;
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    RunnerModels& one = all.emplace_back(RunnerModels{runners_[i], pinned_.of(i)});
    for (models::Model* model : models) {
      if (placement_.is_on(i, *model) && serves_(*model)) one.models.push_back(model);
    }
  }
  Status status = make_instances(all, context_.config, builders, on_failure);
  if (status.ok()) status = pack(models, builders);
  for (models::Model* model : models) source_->add(*model, placement_.workers_of(*model));
  return status;
}

Status WorkerLane::pack(std::span<models::Model* const> models, models::Builders& builders) {
  std::vector<const models::Model*> packed;
  for (const models::Model* model : models) {
    if (packs_(*model)) packed.push_back(model);
  }
  if (packed.empty()) return {};
  Status status;
  InstanceMemory memory;
  const auto measure = [&] {
    for (Runner* runner : runners_) {
      for (const models::Model* model : packed) {
        if (!runner->has_instance(*model)) continue;
        const Status own = runner->pack(*model, memory);
        if (status.ok()) status = own;
      }
    }
  };
  const models::Builders::Job measuring{.body = measure, .near_cpu = std::nullopt};
  builders.run({&measuring, 1});
  return status;
}

}  // namespace lumen::engine
