// See the header for threads, memory and errors.
#include "engine/express_lane.h"

#include <lumen/base/cpu.h>

namespace lumen::engine {

ExpressLane::ExpressLane(const LaneContext& context)
    : QueueLane(context, Threads::kExpressWorker, 1) {
  add_worker(worker_options());
}

WorkerOptions ExpressLane::worker_options() noexcept {
  return {
      .index = context_.config.thread_count,  // the next after the other workers
      .place = 0,
      .config = context_.config,
      // Not pinned: it is for the moments in which the other workers' CPUs are taken. It stays on
      // those of a list.
      .cpu = {},
      .cpus = context_.options.pin_threads.cpus,
      .may_spin = false,  // on a CPU that another worker may need
      .time_slice_ns = kShortestTimeSliceNs,
      .load = {.outstanding = &context_.load.express,
               .admission = &admission_,
               .shares = source_->shares()},
      .regions = context_.options.regions,
      .counters = &context_.counters};
}

bool ExpressLane::serves(const models::Model& model) noexcept {
  const uint64_t ns = model.service_time().mean_ns();
  const models::ModelScheduling& scheduling = model.scheduling();
  if (scheduling.is_on_some_workers() || scheduling.queue_type == models::QueueType::kInline)
    return false;
  return model.state() == models::ModelState::kReady && !model.traits().shares_instances &&
         ns != 0 && ns <= kMostNs;
}

bool ExpressLane::push(uint32_t submitter, models::InferRequest& request) noexcept {
  std::atomic<uint32_t>& outstanding = context_.load.express;
  outstanding.fetch_add(1, std::memory_order_relaxed);  // relaxed: a hint for the others
  if (source_->push(submitter, request)) return true;
  outstanding.fetch_sub(1, std::memory_order_relaxed);  // relaxed: as above
  return false;
}

Status ExpressLane::add(std::span<models::Model* const> models, models::Builders& builders,
                        Runner::OnFailure on_failure) {
  RunnerModels one{runners_.front(), std::nullopt};
  for (models::Model* model : models) {
    if (serves(*model)) one.models.push_back(model);
    source_->add(*model, {});
  }
  return one.models.empty() ? Status()
                            : make_instances({&one, 1}, context_.config, builders, on_failure);
}

}  // namespace lumen::engine
