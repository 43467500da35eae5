// Lane: one way of requests to threads that run models: the workers (WorkerLane), the express
// worker (ExpressLane), or the I/O threads themselves (InlineLane). A scheduler has one lane, or
// with `auto` all three.
//
//   Submitter ──► LaneChooser: which lane? ──► Lane::push() ──► Runner ──► complete()
//
// Threads: the functions for submitters by the submitter with that number, the others on the
// control plane. Memory: at construction and add(). Errors: push() is false where the lane has no
// room; add() says why an instance was not made.
#pragma once

#include "engine/admission.h"
#include "engine/instance_making.h"
#include "engine/runner.h"

#include <lumen/base/cache_line.h>
#include <lumen/base/cpu_pinning.h>
#include <lumen/engine/engine.h>
#include <lumen/models/builders.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lumen::engine {

// Whether a lane gets instances of a model, by the model's configuration and its measured times.
using ModelFilter = bool (*)(const models::Model& model) noexcept;
[[nodiscard]] inline bool every_model(const models::Model&) noexcept { return true; }
[[nodiscard]] inline bool no_model(const models::Model&) noexcept { return false; }

// Requests that are on their way to workers, by which the express lane is chosen. All accesses are
// relaxed: hints.
struct WorkerLoad {
  alignas(kFalseSharingRange) std::atomic<uint32_t> heavy{0};    // heavy ones that the workers have
  alignas(kFalseSharingRange) std::atomic<uint32_t> express{0};  // all that the express worker has
};

// Shared by the lanes of a scheduler, which it outlives.
struct LaneContext {
  const EngineConfig& config;
  const EngineOptions& options;
  telemetry::Counters& counters;
  // Set once no submitter pushes any more.
  const std::atomic<bool>& closed;
  WorkerLoad& load;
};

class Lane {
 public:
  // The threads whose runners serve it.
  enum class Threads : uint8_t { kWorkers, kExpressWorker, kSubmitters };

  virtual ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // --- for submitters ----------------------------------------------------------------------------
  [[nodiscard]] virtual bool push(uint32_t submitter, models::InferRequest& request) noexcept = 0;
  // A guess whether push() would find room for a request of the model.
  [[nodiscard]] virtual bool has_room(uint32_t submitter,
                                      const models::Model& model) const noexcept = 0;
  // Wakes workers for this submitter's pushes since its last call. Runs no model.
  virtual void wake(uint32_t submitter) noexcept { (void)submitter; }
  // wake(), or one call of a model on this thread. Returns how many requests it ran or refused
  // here.
  virtual size_t end_turn(uint32_t submitter) noexcept {
    wake(submitter);
    return 0;
  }
  // Requests wait for end_turn() to run their model on this thread.
  [[nodiscard]] virtual bool has_runs(uint32_t submitter) const noexcept {
    (void)submitter;
    return false;
  }
  // When end_turn() may have something to do by the clock alone; UINT64_MAX: never.
  [[nodiscard]] virtual uint64_t next_ns(uint32_t submitter) const noexcept {
    (void)submitter;
    return UINT64_MAX;
  }
  // How many more requests may wait for this thread; SIZE_MAX: it runs no model.
  [[nodiscard]] virtual size_t room(uint32_t submitter) const noexcept {
    (void)submitter;
    return SIZE_MAX;
  }
  // Nothing waits for this thread and nothing that it started is on its way. By it, or once it has
  // gone.
  [[nodiscard]] virtual bool is_done(uint32_t submitter) const noexcept {
    (void)submitter;
    return true;
  }
  [[nodiscard]] Admission& admission() noexcept { return admission_; }
  [[nodiscard]] Threads threads() const noexcept { return threads_; }

  // --- for the control plane ---------------------------------------------------------------------
  // Makes and measures instances of the models that it serves, for all its runners.
  [[nodiscard]] virtual Status add(std::span<models::Model* const> models,
                                   models::Builders& builders, Runner::OnFailure on_failure) = 0;
  // Once every request of `model` is complete and no other can come.
  void remove(const models::Model& model) noexcept {
    for (Runner* runner : runners_) runner->remove(model);
  }
  virtual void start() {}
  // Runs all that this submitter's runner still has, once that thread is gone; waits for the
  // backend's callbacks.
  virtual void finish(uint32_t submitter) noexcept { (void)submitter; }
  // Wakes that submitter for a completion by a backend's thread.
  virtual void set_wake_sink(uint32_t submitter, models::CompletionSink* sink) noexcept {
    (void)submitter;
    (void)sink;
  }
  // No submitter pushes any more, and all pushes are visible to the caller: the workers find them,
  // also those for which no submitter has woken them.
  virtual void announce_all() noexcept {}
  // After `closed` was set: runs the requests that are left and joins the workers.
  virtual void close() noexcept {}

  [[nodiscard]] std::span<Runner* const> runners() const noexcept { return runners_; }
  [[nodiscard]] const PinnedCpus& pinned() const noexcept { return pinned_; }

 protected:
  Lane(const LaneContext& context, Threads threads, uint32_t thread_count, Admission::Order order)
      : context_(context),
        admission_(context.config.latency_budget_us, thread_count, order),
        threads_(threads) {}
  void warn_of_pin(const Status& status) const {
    if (!status.ok()) context_.options.warn(status.message());
  }

  const LaneContext context_;
  Admission admission_;
  PinnedCpus pinned_;
  std::vector<Runner*> runners_;  // one a thread; of the derived class

 private:
  const Threads threads_;
};

}  // namespace lumen::engine
