// WorkSource: how requests get from I/O threads to workers, one class a queue type.
// Threads: push() and wake_workers() by the submitter with that number, the others by the worker
// with that number, wake() by any. Memory: all of it at make_work_source(). Errors: push() is false
// when there is no room.
#pragma once

#include "engine/fair_shares.h"

#include <lumen/base/cache_line.h>
#include <lumen/engine/engine_config.h>
#include <lumen/models/infer_request.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lumen::engine {

// An event other than a request that ends a worker's sleep; looked at after the sleep was
// announced.
class WakeReason {
 public:
  [[nodiscard]] virtual bool has_reason() noexcept = 0;

 protected:
  ~WakeReason() = default;
};

// Requests that each worker has, given to it and not complete; counted where the queue type chooses
// a worker by it.
struct alignas(kFalseSharingRange) Outstanding {
  std::atomic<uint32_t> requests{0};
};

class WorkSource {
 public:
  virtual ~WorkSource() = default;

  // Control plane, before the first request of the model can come. `workers`: those that may take
  // its requests; empty: all.
  virtual void add(const models::Model& model, std::span<const uint32_t> workers) {
    (void)model;
    (void)workers;
  }
  // Control plane: no submitter pushes any more, and all that was pushed is visible to the caller.
  // Each worker that is woken after it finds all requests that it may take.
  virtual void announce_all() noexcept {}
  // How the workers' time is shared among models; nullptr where requests are taken as they came.
  [[nodiscard]] virtual FairShares* shares() noexcept { return nullptr; }
  // Any thread: a guess whether push() of a request of the model would find room now.
  [[nodiscard]] virtual bool has_room(const models::Model& model) const noexcept {
    (void)model;
    return true;
  }

  [[nodiscard]] virtual bool push(uint32_t submitter, models::InferRequest& request) noexcept = 0;
  // Wakes parked workers for this submitter's pushes since its last call: one for each request at
  // most, and none if others are on the way already.
  virtual void wake_workers(uint32_t submitter) noexcept = 0;

  // nullptr: nothing there.
  [[nodiscard]] virtual models::InferRequest* try_take(uint32_t worker) noexcept = 0;
  // One more, to be run in one call with `request`, which was taken: of the same model where each
  // model has a queue.
  [[nodiscard]] virtual models::InferRequest* try_take_like(
      uint32_t worker, const models::InferRequest& request) noexcept {
    (void)request;
    return try_take(worker);
  }
  [[nodiscard]] virtual bool was_empty(uint32_t worker) const noexcept = 0;
  // Around a worker's polling of was_empty() before it parks. begin_search() is false if enough
  // others poll. If wake_workers() counts on pollers, end_search() looks once more and returns the
  // request that it takes; elsewhere it is nullptr.
  [[nodiscard]] virtual bool begin_search(uint32_t worker) noexcept {
    (void)worker;
    return true;
  }
  [[nodiscard]] virtual models::InferRequest* end_search(uint32_t worker) noexcept {
    (void)worker;
    return nullptr;
  }
  // Sleeps until there is a request (which it returns, if it may take one), wake(), a reason or the
  // deadline.
  virtual models::InferRequest* park(uint32_t worker, bool may_take, uint64_t deadline_ns,
                                     WakeReason& reason) noexcept = 0;
  // That worker has a reason to look. Any thread.
  virtual void wake(uint32_t worker) noexcept = 0;
  [[nodiscard]] virtual std::atomic<uint32_t>* outstanding(uint32_t worker) noexcept {
    (void)worker;
    return nullptr;
  }
};

// For all types but `inline`, which has no workers.
[[nodiscard]] std::unique_ptr<WorkSource> make_work_source(const EngineConfig& config,
                                                           uint32_t submitters);

}  // namespace lumen::engine
