// QueueLane: a lane whose requests wait in a queue for threads of its own: the base of WorkerLane
// and ExpressLane, which choose the models that have instances there.
// Threads, memory, errors: see lane.h.
#pragma once

#include "engine/lane.h"
#include "engine/work_source.h"
#include "engine/worker.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace lumen::engine {

class QueueLane : public Lane {
 public:
  [[nodiscard]] bool has_room(uint32_t, const models::Model& model) const noexcept final {
    return source_->has_room(model);
  }
  void wake(uint32_t submitter) noexcept final { source_->wake_workers(submitter); }
  void start() final;
  void announce_all() noexcept final;
  void close() noexcept final;

 protected:
  // Its queue is made for `thread_count` workers, which the derived class adds.
  QueueLane(const LaneContext& context, Threads threads, uint32_t thread_count);
  void add_worker(const WorkerOptions& options);

  const std::unique_ptr<WorkSource> source_;
  std::vector<std::unique_ptr<Worker>> workers_;

 private:
  void wake_all() noexcept;
};

}  // namespace lumen::engine
