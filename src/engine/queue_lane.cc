// See the header for threads, memory and errors.
#include "engine/queue_lane.h"

namespace lumen::engine {
namespace {

EngineConfig with_threads(EngineConfig config, uint32_t thread_count) noexcept {
  config.thread_count = thread_count;
  return config;
}

}  // namespace

QueueLane::QueueLane(const LaneContext& context, Threads threads, uint32_t thread_count)
    : Lane(context, threads, thread_count, order_of(context.config)),
      source_(make_work_source(with_threads(context.config, thread_count),
                               context.options.submitter_count)) {}

void QueueLane::add_worker(const WorkerOptions& options) {
  workers_.push_back(std::make_unique<Worker>(options, *source_, context_.closed));
  runners_.push_back(&workers_.back()->runner());
}

void QueueLane::start() {
  for (const auto& worker : workers_) {
    worker->prepare();
    warn_of_pin(worker->pin_status());
  }
  for (const auto& worker : workers_) worker->go();
}

void QueueLane::announce_all() noexcept {
  source_->announce_all();
  wake_all();
}

void QueueLane::wake_all() noexcept {
  for (uint32_t i = 0; i < workers_.size(); ++i) source_->wake(i);
}

void QueueLane::close() noexcept {
  wake_all();
  for (const auto& worker : workers_) worker->join();
}

}  // namespace lumen::engine
