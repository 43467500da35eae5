// See the header for threads, memory and errors.
#include "engine/scheduler.h"

#include <lumen/base/clock.h>
#include <lumen/base/cpu.h>

#include <thread>
#include <vector>

namespace lumen::engine {

Result<std::unique_ptr<Scheduler>> Scheduler::create(
    const EngineOptions& options, const EngineConfig& config, std::span<Model* const> models,
    telemetry::Counters& counters, Builders& builders, Runner::OnFailure on_failure) {
  std::unique_ptr<Scheduler> scheduler(new Scheduler(config, options));
  if (config.queue_type == QueueType::kInline) {
    scheduler->make_inline_runners(counters);
  } else {
    scheduler->make_workers(counters);
  }
  LUMEN_RETURN_IF_ERROR(scheduler->add(models, builders, on_failure));
  scheduler->start_workers();
  return scheduler;
}

void Scheduler::make_workers(telemetry::Counters& counters) {
  source_ = make_work_source(config_, options_.submitter_count);
  pinned_ = pin_cpus(options_.pin_threads, config_.thread_count, options_.cpu_claims);
  // A worker that polls on a CPU that others need takes from them what it hopes to save.
  // Nor is a mutex polled: the naive type waits as naive servers do.
  const bool may_spin =
      usable_cpu_count() > config_.thread_count && config_.queue_type != QueueType::kNaive;
  for (uint32_t i = 0; i < config_.thread_count; ++i) {
    const RunnerLoad load{.outstanding = source_->outstanding(i), .admission = &admission_};
    const WorkerOptions worker{.index = i,
                               .config = config_,
                               .cpu = pinned_.of(i),
                               .may_spin = may_spin,
                               .load = load,
                               .regions = options_.regions,
                               .counters = &counters};
    workers_.push_back(std::make_unique<Worker>(worker, *source_, closed_));
  }
}

void Scheduler::warn_of_pin(const Status& status) const {
  if (!status.ok()) options_.warn(status.message());
}

void Scheduler::make_inline_runners(telemetry::Counters& counters) {
  pinned_ = pin_cpus(options_.pin_threads, options_.submitter_count, options_.cpu_claims);
  for (uint32_t i = 0; i < options_.submitter_count; ++i) {
    auto entry = std::make_unique<InlineRunner>();
    const RunnerLoad load{.outstanding = nullptr, .admission = &admission_};
    entry->runner = std::make_unique<Runner>(RunnerOptions{.index = i,
                                                           .config = config_,
                                                           .capacity = config_.queue_capacity,
                                                           .load = load,
                                                           .regions = options_.regions,
                                                           .listener = entry.get(),
                                                           .counters = &counters});
    // The I/O thread pins itself when it first runs a model; whether it may is known, and told, now.
    if (const auto cpu = pinned_.of(i)) {
      Status pin_status;
      std::thread([&] { pin_status = pin_this_thread(*cpu); }).join();
      warn_of_pin(pin_status);
    }
    inline_.push_back(std::move(entry));
  }
}

std::vector<Runner*> Scheduler::runners() const {
  std::vector<Runner*> runners;
  runners.reserve(workers_.size() + inline_.size());
  for (const auto& worker : workers_) runners.push_back(&worker->runner());
  for (const auto& entry : inline_) runners.push_back(entry->runner.get());
  return runners;
}

Status Scheduler::add(std::span<Model* const> models, Builders& builders,
                      Runner::OnFailure on_failure) {
  const std::vector<Runner*> all = runners();
  SharedInstances shared;
  std::vector<Builders::Job> jobs;
  jobs.reserve(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    jobs.push_back({.body = [&, runner = all[i]] { runner->make_instances(models, shared); },
                    .near_cpu = pinned_.of(static_cast<uint32_t>(i))});
  }
  builders.run(jobs);
  Status status;
  const auto measure = [&] {
    for (Runner* runner : all) {
      const Status own = runner->set_up(on_failure);
      if (status.ok()) status = own;
    }
  };
  const Builders::Job measuring{.body = measure, .near_cpu = std::nullopt};
  builders.run({&measuring, 1});
  if (status.ok()) return {};
  for (const Model* model : models) remove(*model);
  return status;
}

void Scheduler::remove(const Model& model) noexcept {
  for (Runner* runner : runners()) runner->remove(model);
}

void Scheduler::start_workers() {
  for (const auto& worker : workers_) {
    worker->prepare();
    warn_of_pin(worker->pin_status());
  }
  for (const auto& worker : workers_) worker->go();
}

bool Scheduler::push(uint32_t submitter, InferRequest& request) noexcept {
  if (source_ != nullptr) return source_->push(submitter, request);
  Runner& runner = *inline_[submitter]->runner;
  if (!runner.has_space()) return false;
  runner.add(request);
  return true;
}

bool Scheduler::fits_budget(const InferRequest& request) const noexcept {
  return admission_.fits(request);
}

void Scheduler::set_default_deadline(InferRequest& request) const noexcept {
  const bool has_none = request.deadline_ns == UINT64_MAX && !request.waits_for_ever;
  if (!has_none || config_.default_timeout_us == 0) return;
  const uint64_t begun_ns = request.times.received_ns;
  request.deadline_ns =
      (begun_ns != 0 ? begun_ns : request.times.parsed_ns) + config_.default_timeout_us * 1000;
}

SubmitOutcome Scheduler::submit(uint32_t submitter, InferRequest& request) noexcept {
  request.queue_type = config_.queue_type;
  if (request.times.parsed_ns == 0) request.times.parsed_ns = now_ns();
  set_default_deadline(request);
  if (!fits_budget(request)) return SubmitOutcome::kOverBudget;
  admission_.charge(request);
  if (push(submitter, request)) return SubmitOutcome::kAccepted;
  admission_.take_back(request);
  return SubmitOutcome::kFull;
}

size_t Scheduler::end_turn(uint32_t submitter) noexcept {
  if (source_ != nullptr) {
    source_->wake_workers(submitter);
    return 0;
  }
  Runner& runner = *inline_[submitter]->runner;
  const size_t done = runner.run(Runner::Pass::kOneCall);
  // The caller looks at completions itself after each call; who else has some is told.
  runner.wake_sinks();
  return done;
}

void Scheduler::finish(uint32_t submitter) noexcept {
  if (source_ != nullptr) return;
  Runner& runner = *inline_[submitter]->runner;
  while (true) {
    const uint64_t completions = runner.completions();
    while (runner.run(Runner::Pass::kAll) > 0) {
    }
    runner.wake_sinks();
    if (runner.is_done()) return;
    // What waits has no room before a call comes back. A deadline may pass meanwhile: it is then
    // answered that much later.
    runner.wait_for_completion(completions);
  }
}

void Scheduler::wake_workers(uint32_t submitter) noexcept {
  if (source_ != nullptr) source_->wake_workers(submitter);
}

uint64_t Scheduler::next_ns(uint32_t submitter) const noexcept {
  return source_ != nullptr ? UINT64_MAX : inline_[submitter]->runner->next_ns();
}

bool Scheduler::is_done(uint32_t submitter) const noexcept {
  return source_ != nullptr || inline_[submitter]->runner->is_done();
}

std::optional<uint32_t> Scheduler::cpu_of(uint32_t submitter) const noexcept {
  return source_ != nullptr ? std::nullopt : pinned_.of(submitter);
}

void Scheduler::set_wake_sink(uint32_t submitter, CompletionSink* sink) noexcept {
  if (source_ != nullptr) return;
  // sync[scheduler.wake_sink]: release; pairs with on_room()
  inline_[submitter]->wake_sink.store(sink, std::memory_order_release);
}

void Scheduler::close() noexcept {
  if (is_closed_) return;
  is_closed_ = true;
  // sync[engine.closed]: release; the submitters' pushes came before, this thread has seen them leave
  closed_.store(true, std::memory_order_release);
  for (uint32_t i = 0; i < workers_.size(); ++i) source_->wake(i);
  for (const auto& worker : workers_) worker->join();
}

}  // namespace lumen::engine
