// WorkerLane: requests wait for the pinned worker threads.
// Threads, memory, errors: see lane.h.
#pragma once

#include "engine/placement.h"
#include "engine/queue_lane.h"

#include <span>
#include <vector>

namespace lumen::engine {

class WorkerLane final : public QueueLane {
 public:
  // `serves`: models that the workers get instances of. `packs`: models that they pack though the
  // queue type does not say so, where a trial shows a gain. `placement` outlives it.
  WorkerLane(const LaneContext& context, const Placement& placement, ModelFilter serves,
             ModelFilter packs);

  [[nodiscard]] bool push(uint32_t submitter, models::InferRequest& request) noexcept override;
  [[nodiscard]] Status add(std::span<models::Model* const> models, models::Builders& builders,
                           Runner::OnFailure on_failure) override;

  // Whether its workers take several requests of the model before they run one.
  [[nodiscard]] bool gathers(const models::Model& model) const noexcept {
    const std::vector<uint32_t>& workers = placement_.workers_of(model);
    return runners_[workers.empty() ? 0 : workers.front()]->gathers(model);
  }
  // How the workers' time is shared among models; nullptr where requests are taken as they came.
  [[nodiscard]] FairShares* shares() noexcept { return source_->shares(); }

 private:
  [[nodiscard]] Status pack(std::span<models::Model* const> models, models::Builders& builders);

  const Placement& placement_;
  const ModelFilter serves_;
  const ModelFilter packs_;
};

}  // namespace lumen::engine
