// See the header for threads, memory and errors.
#include "engine/placement.h"

#include <algorithm>
#include <string>

namespace lumen::engine {

Status Placement::place(const models::Model& model) {
  const models::ModelScheduling& scheduling = model.scheduling();
  const std::string named = "model '" + model.metadata().name + "': its config.json ";
  std::vector<uint32_t>& workers = workers_[model.index()];
  workers.clear();
  if (queue_type_ != models::QueueType::kAuto &&
      scheduling.queue_type != models::QueueType::kAuto) {
    warn_(named + "has a queue_type of its own, which counts where the engine's is auto, not " +
          std::string(name_of(queue_type_)));
  }
  if (!scheduling.is_on_some_workers()) return {};
  if (!has_model_queues(queue_type_)) {
    warn_(named + "chooses its workers, which counts with auto, mpmc and batched, not with " +
          std::string(name_of(queue_type_)));
    return {};
  }
  for (const uint32_t worker : scheduling.workers) {
    if (worker < worker_count_) continue;
    return Status::error(
        Code::kInvalidArgument,
        "%sgives it to worker %u, and the engine has %u, from 0 on; name one of them, or "
        "raise --thread-count",
        named.c_str(), worker, worker_count_);
  }
  workers = scheduling.workers;
  // The next model begins where this one ends, about.
  for (uint32_t i = 0; scheduling.instances < worker_count_ && i < scheduling.instances; ++i) {
    workers.push_back((model.index() * scheduling.instances + i) % worker_count_);
  }
  std::ranges::sort(workers);
  return {};
}

bool Placement::is_on(uint32_t worker, const models::Model& model) const noexcept {
  const std::vector<uint32_t>& workers = workers_of(model);
  return workers.empty() || std::ranges::find(workers, worker) != workers.end();
}

}  // namespace lumen::engine
