// Scheduler: one configuration of the engine at work: a queue type with its workers, a runner for each I/O
// thread (`inline`), or both, with a choice for each request (`auto`). Built beside another and swapped for
// it.
// Threads: create and close on the control plane; submit and end_turn by the submitter with that
// number. Memory: all of it at create(). Errors: SubmitOutcome.
#pragma once

#include <lumen/models/builders.h>
#include "engine/admission.h"
#include "engine/express_lane.h"
#include "engine/inline_choice.h"
#include "engine/runner.h"
#include "engine/work_source.h"
#include "engine/worker.h"

#include <lumen/engine/engine.h>

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

  // Control plane, requests of other models running or not. Instances for all runners, at once as
  // far as the backend allows, then the measurements. On a failure no runner has any of them.
  [[nodiscard]] Status add(std::span<models::Model* const> models, models::Builders& builders,
                           Runner::OnFailure on_failure);
  // Once every request of `model` is complete and no other can come.
  void remove(const models::Model& model) noexcept;

  [[nodiscard]] const EngineConfig& config() const noexcept { return config_; }
  [[nodiscard]] const PinnedCpus& pinned() const noexcept { return pinned_; }
  // Counts the changes of an engine: unlike an address it does not come back.
  void set_generation(uint64_t number) noexcept { generation_ = number; }
  [[nodiscard]] uint64_t generation() const noexcept { return generation_; }
  // Any thread.
  [[nodiscard]] bool fits_budget(uint32_t submitter, models::InferRequest& request) noexcept;
  // On that lane, by that submitter.
  [[nodiscard]] bool has_room(uint32_t submitter, const models::Model& model,
                              models::QueueType lane) const noexcept;
  // How many more requests may wait for that submitter's own thread; SIZE_MAX: it runs no model.
  [[nodiscard]] size_t room(uint32_t submitter) const noexcept {
    return inline_.empty() ? SIZE_MAX : inline_[submitter]->runner->room();
  }
  void set_default_deadline(models::InferRequest& request) const noexcept;
  [[nodiscard]] SubmitOutcome submit(uint32_t submitter, models::InferRequest& request) noexcept;
  // By that submitter: a request of its last submit() waits for a worker, which is to be woken.
  [[nodiscard]] bool has_pushed(uint32_t submitter) const noexcept {
    return submitters_[submitter].has_pushed;
  }
  // How a request of `model` of so many bytes, which is expected to take so long, would go now; one as those
  // that came last. By that submitter.
  [[nodiscard]] models::QueueType lane_of(uint32_t submitter, const models::Model& model,
                                          uint64_t input_bytes, uint64_t expected_ns) noexcept;
  // Control plane.
  [[nodiscard]] Engine::Lane explain_lane_of(const models::Model& model);
  [[nodiscard]] Engine::Instances instances_of(const models::Model& model) const;
  [[nodiscard]] models::QueueType usual_lane_of(uint32_t submitter,
                                                const models::Model& model) noexcept;
  // For the submitted requests so far; runs nothing.
  void wake_workers(uint32_t submitter) noexcept;
  // One call of a model with `inline`. Returns how many requests it ran or refused here.
  size_t end_turn(uint32_t submitter) noexcept;
  // Where models run inline: runs all that this submitter's runner still has. By the control plane, once the thread
  // is gone; waits for the backend's callbacks.
  void finish(uint32_t submitter) noexcept;
  // By its thread; UINT64_MAX: end_turn() has nothing to do by the clock alone.
  [[nodiscard]] uint64_t next_ns(uint32_t submitter) const noexcept;
  // Where models run inline: this submitter's runner has nothing any more. Asked by its thread, or while that is out.
  [[nodiscard]] bool is_done(uint32_t submitter) const noexcept;
  // The CPU that a submitter's thread should run on, where models run on it.
  [[nodiscard]] std::optional<uint32_t> cpu_of(uint32_t submitter) const noexcept;
  // Wakes the submitter for a completion by a backend's thread after it has gone to sleep.
  void set_wake_sink(uint32_t submitter, models::CompletionSink* sink) noexcept;

  // No submitter pushes any more, and all that they pushed is visible to the caller: the workers find it, also where
  // a submitter has not told them. Idempotent.
  void announce_all() noexcept;
  // No submitter pushes any more: announces, completes accepted requests, joins the workers.
  // Idempotent.
  void close() noexcept;

 private:
  void wake_all() noexcept;
  // An I/O thread that runs models itself.
  struct InlineRunner final : RoomListener {
    std::unique_ptr<Runner> runner;
    std::atomic<models::CompletionSink*> wake_sink{nullptr};
    void on_room() noexcept override {
      // sync[scheduler.wake_sink]: acquire; the sink is whole
      models::CompletionSink* sink = wake_sink.load(std::memory_order_acquire);
      if (sink != nullptr) sink->wake();
    }
  };

  struct alignas(kFalseSharingRange) SubmitterState {
    bool has_pushed = false;
  };

  Scheduler(const EngineConfig& config, const EngineOptions& options)
      : config_(config),
        options_(options),
        admission_(config.latency_budget_us, config.thread_count, order_of(config)),
        inline_admission_(config.latency_budget_us, options.submitter_count,
                          Admission::Order::kOfArrival),
        places_(limits::kMaxModels),
        submitters_(options.submitter_count) {}
  [[nodiscard]] bool is_auto() const noexcept {
    return config_.queue_type == models::QueueType::kAuto;
  }
  // Decides how the request goes, by its known costs.
  void choose_lane(uint32_t submitter, models::InferRequest& request,
                   uint64_t input_bytes) noexcept;
  [[nodiscard]] Admission& admission_of(const models::InferRequest& request) noexcept;
  void make_workers(telemetry::Counters& counters);
  void make_inline_runners(telemetry::Counters& counters);
  [[nodiscard]] std::vector<Runner*> runners() const;
  // A runner and the models that it gets instances of.
  struct Share {
    Runner* runner;
    std::vector<models::Model*> models;
  };
  [[nodiscard]] Status add_to(std::span<const Share> shares, const EngineConfig& config,
                              models::Builders& builders, Runner::OnFailure on_failure);
  // Decides which workers get an instance of the model.
  [[nodiscard]] Status place(const models::Model& model);
  [[nodiscard]] Status add_workers(std::span<models::Model* const> models,
                                   models::Builders& builders, Runner::OnFailure on_failure);
  [[nodiscard]] Engine::Lane usual_lane_and_why(const models::Model& model);
  // A worker that has an instance, where the workers have some.
  [[nodiscard]] const Runner& home_of(const models::Model& model) const noexcept {
    const std::vector<uint32_t>& workers = places_[model.index()];
    return workers_[workers.empty() ? 0 : workers.front()]->runner();
  }
  [[nodiscard]] bool is_inline_only(const models::Model& model) const noexcept {
    return is_auto() && model.scheduling().queue_type == models::QueueType::kInline;
  }
  [[nodiscard]] Status pack_on(std::span<models::Model* const> models, models::Builders& builders);
  [[nodiscard]] Status add_express(std::span<models::Model* const> models,
                                   models::Builders& builders, Runner::OnFailure on_failure);
  [[nodiscard]] bool push_to_workers(uint32_t submitter, models::InferRequest& request) noexcept;
  [[nodiscard]] Status add_inline(std::span<models::Model* const> models,
                                  models::Builders& builders, Runner::OnFailure on_failure);
  void start_workers();
  void warn_of_pin(const Status& status) const;
  [[nodiscard]] bool push(uint32_t submitter, models::InferRequest& request) noexcept;

  const EngineConfig config_;
  const EngineOptions options_;
  Admission admission_;  // of requests that wait for workers
  Admission inline_admission_;
  std::unique_ptr<WorkSource> source_;  // nullptr with `inline`
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::vector<uint32_t>> places_;  // by Model::index(): its workers; empty: all
  std::unique_ptr<ExpressLane> express_;       // with `auto`
  std::vector<std::unique_ptr<InlineRunner>> inline_;
  std::vector<SubmitterState> submitters_;
  InlineChoice inline_choice_;
  PinnedCpus pinned_;  // the workers, or the inline runners where there are no workers
  uint64_t generation_ = 0;
  bool is_closed_ = false;  // the control plane's
  std::atomic<bool> closed_{false};
};

}  // namespace lumen::engine
