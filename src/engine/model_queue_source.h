// ModelQueueSource: the queue types mpmc, batched and auto: a queue for each model (queues.h) and
// one word of bits that says which workers sleep (sleepers.h).
// Threads: as in WorkSource. Memory: all at construction and add(). Errors: push() is false when
// the model's queue is full. A submitter that dies between claim and publication blocks that queue
// (see MpmcQueue).
#pragma once

#include "engine/model_queues.h"
#include "engine/sleepers.h"
#include "engine/work_source.h"

#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace lumen::engine {

template <typename Hooks = NoHooks>
class ModelQueueSource : public WorkSource {
 public:
  ModelQueueSource(Policy policy, size_t capacity, uint32_t submitters, uint32_t workers)
      : queues_(policy, capacity, workers), sleepers_(queues_, workers), pushed_(submitters) {}

  void add(const models::Model& model, std::span<const uint32_t> workers) override {
    queues_.add(model, workers);
  }
  [[nodiscard]] FairShares* shares() noexcept override { return &queues_.shares(); }
  [[nodiscard]] bool has_room(const models::Model& model) const noexcept override {
    return queues_.has_room(model);
  }
  bool push(uint32_t submitter, models::InferRequest& request) noexcept override {
    return queues_.push(request, pushed_[submitter]);
  }
  void wake_workers(uint32_t submitter) noexcept override {
    ModelQueues::Pushed& pushed = pushed_[submitter];
    if (pushed.for_any == 0 && !pushed.has_some) return;
    queues_.announce(pushed);
    if (pushed.for_any > 0) sleepers_.wake(std::exchange(pushed.for_any, 0));
    if (std::exchange(pushed.has_some, false)) wake_each_of(std::exchange(pushed.some, {}));
  }
  void announce_all() noexcept override { queues_.announce_all(); }

  models::InferRequest* try_take(uint32_t worker) noexcept override {
    return sleepers_.try_take(worker);
  }
  models::InferRequest* try_take_like(uint32_t,
                                      const models::InferRequest& request) noexcept override {
    models::InferRequest* const next = queues_.try_pop_like(request);
    if (next != nullptr) sleepers_.pass_on();
    return next;
  }
  bool was_empty(uint32_t worker) const noexcept override { return queues_.was_empty(worker); }
  bool begin_search(uint32_t) noexcept override { return sleepers_.begin_search(); }
  models::InferRequest* end_search(uint32_t worker) noexcept override {
    return sleepers_.end_search(worker);
  }
  models::InferRequest* park(uint32_t worker, bool may_take, uint64_t deadline_ns,
                             WakeReason& reason) noexcept override {
    // Only by a thread that looks at the queues afterwards: it may hide one for a moment from a
    // thread that wakes others.
    if (may_take) wake_each_of(queues_.tidy(worker));
    return sleepers_.park(worker, may_take, deadline_ns, reason);
  }
  void wake(uint32_t worker) noexcept override { sleepers_.wake_one(worker); }

 private:
  // All workers that may take requests which not all may take: the workers that are on the way are
  // not counted.
  void wake_each_of(const ModelQueues::WorkerSet& workers) noexcept {
    for (uint32_t group = 0; group < workers.size(); ++group) {
      for (uint64_t bits = workers[group]; bits != 0; bits &= bits - 1) {
        sleepers_.wake_one(group * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
      }
    }
  }

  ModelQueues queues_;
  Sleepers<ModelQueues, Hooks> sleepers_;
  std::vector<ModelQueues::Pushed> pushed_;
};

}  // namespace lumen::engine
