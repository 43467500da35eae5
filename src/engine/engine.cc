// The engine's face to its I/O threads, and the change from one scheduler to the next. Threads,
// memory and errors: see engine.h.
#include <lumen/engine/engine.h>

#include <lumen/base/cache_line.h>
#include <lumen/base/clock.h>
#include <lumen/base/cpu.h>
#include <lumen/base/doorbell.h>
#include <lumen/telemetry/counters.h>

#include "engine/scheduler.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace lumen::engine {
namespace {

class GatedSubmitter final : public Submitter {
 public:
  GatedSubmitter(uint32_t index, const std::atomic<Scheduler*>& current, uint32_t cpu_count)
      : index_(index), current_(current), workers_have_a_cpu_(cpu_count > 1) {}

  SubmitOutcome submit(models::InferRequest& request) noexcept override {
    const uint64_t parsed_ns = request.times.parsed_ns;  // it may be gone once it is accepted
    Scheduler* scheduler = enter();
    const SubmitOutcome outcome =
        scheduler == nullptr ? SubmitOutcome::kClosed : scheduler->submit(index_, request);
    // With `inline` nobody is to be woken, so that wake_if_late() need not read the clock.
    const bool may_wake =
        workers_have_a_cpu_ && scheduler != nullptr && scheduler->has_pushed(index_);
    leave();
    if (outcome == SubmitOutcome::kAccepted && may_wake && unrung_since_ns_ == 0) {
      unrung_since_ns_ = parsed_ns != 0 ? parsed_ns : now_ns();
    }
    return outcome;
  }

  bool fits_budget(models::InferRequest& request) noexcept override {
    Scheduler* scheduler = enter();
    const bool fits = scheduler == nullptr || scheduler->fits_budget(index_, request);
    leave();
    return fits;
  }

  void set_default_deadline(models::InferRequest& request) noexcept override {
    const Scheduler* scheduler = enter();
    if (scheduler != nullptr) scheduler->set_default_deadline(request);
    leave();
  }

  size_t end_turn() noexcept override {
    unrung_since_ns_ = 0;
    Scheduler* scheduler = enter();
    size_t done = 0;
    if (scheduler != nullptr) {
      if (scheduler->generation() != placed_for_) place_thread(*scheduler);
      done = scheduler->end_turn(index_);
    }
    leave();
    return done + help_retire();
  }

  bool has_runs() noexcept override {
    const Scheduler* scheduler = enter();
    const bool has_runs = scheduler != nullptr && scheduler->has_runs(index_);
    leave();
    // sync[engine.retiring]: acquire; as in help_retire()
    const Scheduler* before = retiring_.load(std::memory_order_acquire);
    return has_runs || (before != nullptr && before->has_runs(index_));
  }

  void wake_if_late() noexcept override {
    if (unrung_since_ns_ == 0 || now_ns() < unrung_since_ns_ + wake_cost_ns()) return;
    unrung_since_ns_ = 0;
    Scheduler* scheduler = enter();
    if (scheduler != nullptr) scheduler->wake_workers(index_);
    leave();
  }

  uint64_t next_ns() noexcept override {
    const Scheduler* scheduler = enter();
    uint64_t next = scheduler == nullptr ? UINT64_MAX : scheduler->next_ns(index_);
    leave();
    // sync[engine.retiring]: acquire; as in help_retire()
    const Scheduler* before = retiring_.load(std::memory_order_acquire);
    if (before != nullptr) next = std::min(next, before->next_ns(index_));
    return next;
  }

  Types types(const models::Model& model) noexcept override {
    Scheduler* scheduler = enter();
    Types types;
    if (scheduler != nullptr) types = scheduler->types(index_, model);
    leave();
    return types;
  }

  size_t room() noexcept override {
    const Scheduler* scheduler = enter();
    const size_t room = scheduler == nullptr ? SIZE_MAX : scheduler->room(index_);
    leave();
    return room;
  }

  void close() noexcept override {
    // sync[engine.retiring]: an exchange, so that it comes before or after retire()'s: that one
    // either finds the thread gone, or is told here, and then runs the rest itself
    retiring_.exchange(gone(), std::memory_order_acq_rel);
    retiring_.notify_all();
  }

  void set_wake_sink(models::CompletionSink& sink) noexcept override {
    // sync[engine.wake_sink]: release; the sink is whole
    wake_sink_.store(&sink, std::memory_order_release);
    Scheduler* scheduler = enter();
    if (scheduler != nullptr) scheduler->set_wake_sink(index_, &sink);
    leave();
  }

  // --- for the control plane ---------------------------------------------------------------------
  [[nodiscard]] models::CompletionSink* wake_sink() const noexcept {
    return wake_sink_.load(
        std::memory_order_acquire);  // sync[engine.wake_sink]: acquire; see set_wake_sink()
  }
  // After the pointer was changed: until nobody uses the scheduler before.
  void wait_until_outside() const noexcept {
    // sync[engine.inside]: seq_cst, so that either this sees the submitter inside or that one sees
    // the new pointer; a submitter leaves within a call, unless preempted
    while (inside_.load(std::memory_order_seq_cst) != 0) ::sched_yield();
  }
  // `inline` alone: accepted requests are run by this submitter's own thread, or here once that has
  // left.
  void retire(Scheduler& scheduler) noexcept {
    if (scheduler.is_done(index_)) return;
    Scheduler* nobody = nullptr;
    // sync[engine.retiring]: release; pairs with help_retire(). Acquire, if the thread has left.
    if (retiring_.compare_exchange_strong(nobody, &scheduler, std::memory_order_acq_rel,
                                          std::memory_order_acquire)) {
      if (models::CompletionSink* sink = wake_sink(); sink != nullptr) sink->wake();
      // sync[engine.retiring]: acquire; the thread does not touch it any more
      retiring_.wait(&scheduler, std::memory_order_acquire);
      // sync[engine.retiring]: acquire; as above
      if (retiring_.load(std::memory_order_acquire) != gone()) return;
    }
    scheduler.finish(index_);
  }

 private:
  // Stands in retiring_ once the thread has left: no scheduler has this address.
  [[nodiscard]] Scheduler* gone() noexcept { return reinterpret_cast<Scheduler*>(this); }
  [[nodiscard]] Scheduler* enter() noexcept {
    // sync[engine.inside]: seq_cst; see wait_until_outside(). 5 ns on a line that nobody else
    // writes, where a shared count would be contended by all I/O threads.
    inside_.store(1, std::memory_order_seq_cst);
    return current_.load(std::memory_order_seq_cst);  // sync[engine.inside]: as above
  }
  void leave() noexcept {
    // sync[engine.inside]: release; all pushes are visible to the thread that sees the 0
    inside_.store(0, std::memory_order_release);
  }
  // Once for each change: where models run on this thread, it stays on one CPU.
  void place_thread(const Scheduler& scheduler) noexcept {
    placed_for_ = scheduler.generation();
    const std::optional<uint32_t> cpu = scheduler.cpu_of(index_);
    if (!cpu && !is_pinned_) return;
    if (!is_pinned_) original_cpus_ = usable_cpus();
    is_pinned_ = cpu.has_value();
    // Refused only where the cpuset has shrunk meanwhile; then the thread stays where it may run.
    if (cpu) (void)pin_this_thread(*cpu);
    if (!cpu) (void)restrict_this_thread(original_cpus_);
  }
  size_t help_retire() noexcept {
    // sync[engine.retiring]: acquire; pairs with retire()
    Scheduler* scheduler = retiring_.load(std::memory_order_acquire);
    if (scheduler == nullptr) return 0;
    const size_t done = scheduler->end_turn(index_);
    if (scheduler->is_done(index_)) {
      // sync[engine.retiring]: release; the last touch
      retiring_.store(nullptr, std::memory_order_release);
      retiring_.notify_all();
    }
    return done;
  }

  const uint32_t index_;
  const std::atomic<Scheduler*>& current_;
  // With one CPU for all, a worker woken within the turn takes it from the turn, which would have
  // brought more to pack.
  const bool workers_have_a_cpu_;
  uint64_t unrung_since_ns_ = 0;  // the first request for which nobody was woken yet; 0: none
  uint64_t placed_for_ = 0;       // generation of the scheduler
  bool is_pinned_ = false;
  std::vector<uint32_t> original_cpus_;  // CPUs that the thread had before it was pinned
  alignas(kFalseSharingRange) std::atomic<uint32_t> inside_{0};
  alignas(kFalseSharingRange) std::atomic<Scheduler*> retiring_{nullptr};
  std::atomic<models::CompletionSink*> wake_sink_{nullptr};
};

class SwappingEngine final : public Engine {
 public:
  SwappingEngine(const EngineOptions& options, models::ModelRepository& repository)
      : options_(options),
        counters_(repository.counters()),
        builders_(repository.builders()),
        background_builders_(repository.background_builders()),
        counter_writer_(counters_) {
    for (const auto& model : repository.models()) {
      if (!model->is_ensemble()) models_.push_back(model.get());
    }
    const auto cpus =
        options.cpu_count != 0 ? options.cpu_count : static_cast<uint32_t>(usable_cpus().size());
    for (uint32_t i = 0; i < options.submitter_count; ++i) {
      submitters_.push_back(std::make_unique<GatedSubmitter>(i, current_, cpus));
    }
  }
  ~SwappingEngine() override {
    for (const auto& submitter : submitters_) submitter->close();  // nobody uses them any more
    drain();
  }

  Status start() { return change(options_.config, Runner::OnFailure::kMarkUnavailable); }

  Submitter& submitter(uint32_t number) noexcept override { return *submitters_[number]; }

  Status reconfigure(const EngineConfig& config) override {
    const std::lock_guard lock(mutex_);
    if (scheduler_ == nullptr) return shutting_down();
    return change(config, Runner::OnFailure::kFail);
  }

  Status add_model(models::Model& model) override {
    if (model.is_ensemble()) return {};
    const std::lock_guard lock(mutex_);
    if (scheduler_ == nullptr) return shutting_down();
    models::Model* const added = &model;
    models_.reserve(models_.size() + 1);
    try {
      LUMEN_RETURN_IF_ERROR(
          scheduler_->add({&added, 1}, background_builders_, Runner::OnFailure::kFail));
    } catch (...) {  // no memory is left
      scheduler_->remove(model);
      throw;
    }
    models_.push_back(added);
    tell_instances(model);
    return {};
  }

  void remove_model(const models::Model& model) noexcept override {
    if (model.is_ensemble()) return;
    const std::lock_guard lock(mutex_);
    std::erase(models_, &model);
    if (scheduler_ == nullptr) return;
    scheduler_->remove(model);
    tell_instances(model, {});
  }

  EngineConfig config() const override {
    const std::lock_guard lock(mutex_);
    return scheduler_ == nullptr ? options_.config : scheduler_->config();
  }

  UsualLane usual_lane_of(const models::Model& model) const override {
    if (const models::EnsemblePlan* const plan = model.ensemble()) {
      UsualLane lane = usual_lane_of(*plan->steps.front().model);
      lane.why = "that of its first step's model; each step has the lane of its own";
      return lane;
    }
    const std::lock_guard lock(mutex_);
    return scheduler_ == nullptr ? UsualLane{} : scheduler_->usual_lane_of(model);
  }

  Instances instances_of(const models::Model& model) const override {
    if (model.is_ensemble()) return {};
    const std::lock_guard lock(mutex_);
    return scheduler_ == nullptr ? Instances{} : scheduler_->instances_of(model);
  }

  std::string pinning() const override {
    const std::lock_guard lock(mutex_);
    return scheduler_ == nullptr ? std::string() : scheduler_->pinned().text();
  }

  void drain() noexcept override {
    const std::lock_guard lock(mutex_);
    if (scheduler_ == nullptr) return;
    replace(nullptr);
    for (const models::Model* model : models_) tell_instances(*model);
  }

 private:
  static Status shutting_down() {
    return Status::error(Code::kUnavailable, "the engine is shutting down");
  }

  Status change(EngineConfig config, Runner::OnFailure on_failure) {
    LUMEN_RETURN_IF_ERROR(config.check());
    if (config.thread_count == 0) config.thread_count = usable_cpu_count();
    if (scheduler_ != nullptr && scheduler_->config() == config) return {};
    auto next = Scheduler::create(options_, config, models_, counters_, builders_, on_failure);
    if (!next.ok()) return next.status();
    (*next)->set_generation(++generations_);
    for (uint32_t i = 0; i < submitters_.size(); ++i) {
      (*next)->set_wake_sink(i, submitters_[i]->wake_sink());
    }
    if (scheduler_ != nullptr) counter_writer_.add("engine_swaps");
    replace(std::move(*next));
    for (const models::Model* model : models_) tell_instances(*model);
    return {};
  }

  // New requests go to `next`; the requests that the one before has accepted are completed before
  // it goes.
  void replace(std::unique_ptr<Scheduler> next) noexcept {
    const std::unique_ptr<Scheduler> before = std::exchange(scheduler_, std::move(next));
    // sync[engine.inside]: seq_cst; pairs with GatedSubmitter::enter()
    current_.store(scheduler_.get(), std::memory_order_seq_cst);
    if (before == nullptr) return;
    for (const auto& submitter : submitters_) submitter->wait_until_outside();
    // Their own next announcement is to `next`, and retire() may wait for calls that need the
    // workers' room.
    before->announce_all();
    for (const auto& submitter : submitters_) submitter->retire(*before);
    before->close();
  }

  // The counters get the instances once a change is over. While it lasts there are those of two
  // schedulers, and the numbers are still those of the first.
  void tell_instances(const models::Model& model) {
    tell_instances(model, scheduler_ == nullptr ? Instances{} : scheduler_->instances_of(model));
  }
  void tell_instances(const models::Model& model, const Instances& now) noexcept {
    counter_writer_.set_gauge(model.index(), "instances", now.count);
    counter_writer_.set_gauge(model.index(), "instance_bytes", now.bytes);
  }

  const EngineOptions options_;
  telemetry::Counters& counters_;
  models::Builders& builders_;
  models::Builders& background_builders_;  // of models that come while others are served
  std::vector<std::unique_ptr<GatedSubmitter>> submitters_;
  alignas(kFalseSharingRange) std::atomic<Scheduler*> current_{nullptr};
  // Control plane.
  mutable std::mutex mutex_;
  telemetry::CounterWriter counter_writer_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<models::Model*> models_;
  uint64_t generations_ = 0;
};

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options,
                                               models::ModelRepository& repository) {
  if (options.submitter_count < 1 || options.submitter_count > limits::kMaxSubmitters) {
    return Status::error(Code::kInvalidArgument, "submitter_count: got %u, wanted 1 to %zu",
                         options.submitter_count, limits::kMaxSubmitters);
  }
  auto engine = std::make_unique<SwappingEngine>(options, repository);
  LUMEN_RETURN_IF_ERROR(engine->start());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace lumen::engine
