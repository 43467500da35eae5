// ExpressLane: one more worker, the express worker, for models that are light beside others and yet
// too long for an I/O thread (queue type `auto`). While as many heavy requests are on their way as
// there are workers, each worker may be in the middle of a long run; light requests go to this one
// then. It is pinned to no CPU (it stays on those of a list in pin_threads): the kernel wakes it on
// one that is idle, or, if none is, lets it in at once beside a worker: it asks for a short time
// slice, and a thread that asks for less is served sooner and gets no more in all (EEVDF, Linux
// 6.12 on; before that a thread that has slept goes before one that has run for long, most of the
// time).
//
// Threads, memory, errors: see lane.h; takes() by any submitter.
#pragma once

#include "engine/queue_lane.h"

#include <atomic>
#include <cstdint>
#include <span>

namespace lumen::engine {

class ExpressLane final : public QueueLane {
 public:
  // Heavier runs take more than about a third of the time slice that the kernel gives a thread that
  // asks for none (3 ms). A request that waits for a lighter run hardly waits longer than for the
  // kernel's turn.
  static constexpr uint64_t kMostNs = 1'000'000;
  // More wait with the other workers: the kernel shares the CPU of this one's runs by threads, and
  // no model's weight counts. Of a model with more requests than this some then pass others.
  static constexpr uint32_t kMostOutstanding = 16;

  explicit ExpressLane(const LaneContext& context);

  [[nodiscard]] bool takes(const models::InferRequest& request) const noexcept {
    const WorkerLoad& load = context_.load;
    // relaxed, both: hints; a moment late, and a light request waits for one heavy run
    return !is_heavy(request) &&
           load.heavy.load(std::memory_order_relaxed) >= context_.config.thread_count &&
           load.express.load(std::memory_order_relaxed) < kMostOutstanding &&
           runners_.front()->has_instance(*request.model);
  }
  // A request of unknown cost may be heavy.
  [[nodiscard]] static bool is_heavy(const models::InferRequest& request) noexcept {
    return request.expected_ns == 0 || request.expected_ns > kMostNs;
  }
  [[nodiscard]] static bool serves(const models::Model& model) noexcept;

  [[nodiscard]] bool push(uint32_t submitter, models::InferRequest& request) noexcept override;
  [[nodiscard]] Status add(std::span<models::Model* const> models, models::Builders& builders,
                           Runner::OnFailure on_failure) override;

 private:
  [[nodiscard]] WorkerOptions worker_options() noexcept;
};

}  // namespace lumen::engine
