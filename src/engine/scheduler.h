// Scheduler: one configuration of the engine at work: its lanes and the choice among them. Built
// beside another and swapped for it.
// Threads: create and close on the control plane; the functions for submitters by the submitter
// with that number.
// Memory: all of it at create() and add(). Errors: SubmitOutcome.
#pragma once

#include "engine/lane.h"
#include "engine/lane_chooser.h"
#include "engine/placement.h"

#include <lumen/engine/engine.h>
#include <lumen/models/builders.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lumen::engine {

class Scheduler {
 public:
  // `config`: checked, with a thread_count of at least 1.
  [[nodiscard]] static Result<std::unique_ptr<Scheduler>> create(
      const EngineOptions& options, const EngineConfig& config,
      std::span<models::Model* const> models, telemetry::Counters& counters,
      models::Builders& builders, Runner::OnFailure on_failure);
  ~Scheduler() { close(); }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // --- for submitters ----------------------------------------------------------------------------
  [[nodiscard]] bool fits_budget(uint32_t submitter, models::InferRequest& request) noexcept;
  void set_default_deadline(models::InferRequest& request) const noexcept;
  [[nodiscard]] SubmitOutcome submit(uint32_t submitter, models::InferRequest& request) noexcept;
  // A request of the last submit() waits for a worker, which is to be woken.
  [[nodiscard]] bool has_pushed(uint32_t submitter) const noexcept {
    return submitters_[submitter].has_pushed;
  }
  // As in Submitter, for the thread with that number.
  [[nodiscard]] Submitter::Types types(uint32_t submitter, const models::Model& model) noexcept;
  void wake_workers(uint32_t submitter) noexcept;
  size_t end_turn(uint32_t submitter) noexcept;
  [[nodiscard]] bool has_runs(uint32_t submitter) const noexcept;
  [[nodiscard]] uint64_t next_ns(uint32_t submitter) const noexcept;
  [[nodiscard]] size_t room(uint32_t submitter) const noexcept;
  // This submitter's thread has nothing to do here any more. By it, or once it has gone.
  [[nodiscard]] bool is_done(uint32_t submitter) const noexcept;
  // The CPU that its thread should run on, where models run on it.
  [[nodiscard]] std::optional<uint32_t> cpu_of(uint32_t submitter) const noexcept;
  // Counts the changes of an engine: unlike an address it does not come back.
  [[nodiscard]] uint64_t generation() const noexcept { return generation_; }

  // --- for the control plane ---------------------------------------------------------------------
  // Requests of other models running or not. Instances for all lanes, at once as far as the backend
  // allows, then the measurements. On a failure no runner has any of them.
  [[nodiscard]] Status add(std::span<models::Model* const> models, models::Builders& builders,
                           Runner::OnFailure on_failure);
  // Once every request of `model` is complete and no other can come.
  void remove(const models::Model& model) noexcept;

  [[nodiscard]] const EngineConfig& config() const noexcept { return config_; }
  // The workers, or the submitters' threads where there are no workers.
  [[nodiscard]] const PinnedCpus& pinned() const noexcept { return lanes_.front()->pinned(); }
  [[nodiscard]] Engine::UsualLane usual_lane_of(const models::Model& model);
  [[nodiscard]] Engine::Instances instances_of(const models::Model& model) const;
  void set_generation(uint64_t number) noexcept { generation_ = number; }
  // Wakes the submitter for a completion by a backend's thread after it has gone to sleep.
  void set_wake_sink(uint32_t submitter, models::CompletionSink* sink) noexcept;

  // No submitter pushes any more, and all that they pushed is visible to the caller: the workers
  // find it, also where a submitter has not told them. Idempotent.
  void announce_all() noexcept;
  // Runs all that this submitter's runner still has, once that thread is gone; waits for the
  // backend's callbacks.
  void finish(uint32_t submitter) noexcept;
  // No submitter pushes any more: announces, completes accepted requests, joins the workers.
  // Idempotent.
  void close() noexcept;

 private:
  struct alignas(kFalseSharingRange) SubmitterState {
    bool has_pushed = false;
  };

  Scheduler(const EngineConfig& config, const EngineOptions& options)
      : config_(config),
        options_(options),
        placement_(config, options.warn),
        submitters_(options.submitter_count) {}
  void make_lanes(telemetry::Counters& counters);
  template <typename LaneType, typename... Rest>
  LaneType& make_lane(Rest&&... rest);

  const EngineConfig config_;
  const EngineOptions options_;
  std::atomic<bool> closed_{false};
  WorkerLoad load_;
  Placement placement_;
  // The workers first: their times say which models the other lanes get.
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<LaneChooser> chooser_;
  std::vector<SubmitterState> submitters_;
  uint64_t generation_ = 0;
  bool is_closed_ = false;  // the control plane's
};

}  // namespace lumen::engine
