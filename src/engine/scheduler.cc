// See the header for threads, memory and errors.
#include "engine/scheduler.h"

#include <lumen/base/clock.h>
#include <lumen/base/cpu.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace lumen::engine {
namespace {

// Whether the I/O threads get instances of it beside workers.
bool is_light(const models::Model& model) {
  const models::ModelScheduling& scheduling = model.scheduling();
  if (scheduling.is_on_some_workers() || scheduling.queue_type != models::QueueType::kAuto)
    return false;
  const uint64_t ns = model.service_time().mean_ns();
  // Models that share the workers' threads are left to them.
  return model.state() == models::ModelState::kReady && ns != 0 &&
         ns <= InlineChoice::kMostInlineNs && !model.traits().shares_instances;
}

// "1.9 us", "3.1 ms".
std::string duration_text(uint64_t ns) {
  char text[32];
  const bool is_short = ns < 1'000'000;
  const double value = static_cast<double>(ns) / (is_short ? 1e3 : 1e6);
  const auto end = std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed, 1).ptr;
  return std::string(text, end) + (is_short ? " us" : " ms");
}

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::create(const EngineOptions& options,
                                                     const EngineConfig& config,
                                                     std::span<models::Model* const> models,
                                                     telemetry::Counters& counters,
                                                     models::Builders& builders,
                                                     Runner::OnFailure on_failure) {
  std::unique_ptr<Scheduler> scheduler(new Scheduler(config, options));
  const models::QueueType type = config.queue_type;
  if (type != models::QueueType::kInline) scheduler->make_workers(counters);
  if (type == models::QueueType::kInline || type == models::QueueType::kAuto) {
    scheduler->make_inline_runners(counters);
  }
  LUMEN_RETURN_IF_ERROR(scheduler->add(models, builders, on_failure));
  scheduler->start_workers();
  return scheduler;
}

void Scheduler::make_workers(telemetry::Counters& counters) {
  source_ = make_work_source(config_, options_.submitter_count);
  pinned_ = pin_cpus(options_.pin_threads, config_.thread_count, options_.cpu_claims);
  // A worker that polls on a CPU that others need takes from them the time that it hopes to save.
  // Nor is a mutex polled: the naive type waits as naive servers do.
  const bool may_spin =
      usable_cpu_count() > config_.thread_count && config_.queue_type != models::QueueType::kNaive;
  if (is_auto()) {
    // Not pinned: it is for the moments in which the other workers' CPUs are taken. A list is all that there is.
    const WorkerOptions options{.config = config_,
                                .cpu = {},
                                .cpus = options_.pin_threads.cpus,
                                .load = {},
                                .regions = options_.regions,
                                .counters = &counters};
    express_ = std::make_unique<ExpressLane>(config_, options_.submitter_count, options, closed_);
  }
  for (uint32_t i = 0; i < config_.thread_count; ++i) {
    const RunnerLoad load{.outstanding = source_->outstanding(i),
                          .admission = &admission_,
                          .shares = source_->shares(),
                          .heavy = express_ == nullptr ? nullptr : &express_->heavy()};
    const WorkerOptions worker{
        .index = i,
        .place = i,
        .config = config_,
        .cpu = pinned_.of(i),
        .may_spin = may_spin,
        .may_want_cpu = express_ == nullptr ? nullptr : &express_->outstanding(),
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
  // Beside workers, which have the CPUs, the kernel places the I/O threads.
  const bool are_pinned = source_ == nullptr;
  if (are_pinned) {
    pinned_ = pin_cpus(options_.pin_threads, options_.submitter_count, options_.cpu_claims);
  }
  EngineConfig config = config_;
  config.queue_type = models::QueueType::kInline;
  FairShares* const shares = source_ == nullptr ? nullptr : source_->shares();
  for (uint32_t i = 0; i < options_.submitter_count; ++i) {
    auto entry = std::make_unique<InlineRunner>();
    const RunnerLoad load{
        .outstanding = nullptr, .admission = &inline_admission_, .shares = shares};
    entry->runner = std::make_unique<Runner>(RunnerOptions{.index = i,
                                                           .config = config,
                                                           .capacity = config.queue_capacity,
                                                           .load = load,
                                                           .regions = options_.regions,
                                                           .listener = entry.get(),
                                                           .counters = &counters});
    // The I/O thread pins itself when it first runs a model; whether it may is known, and told, now.
    if (const auto cpu = are_pinned ? pinned_.of(i) : std::nullopt) {
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
  if (express_ != nullptr) runners.push_back(&express_->worker().runner());
  for (const auto& entry : inline_) runners.push_back(entry->runner.get());
  return runners;
}

// With `auto` the workers' instances come first: their times say which models the I/O threads get.
Status Scheduler::add(std::span<models::Model* const> models, models::Builders& builders,
                      Runner::OnFailure on_failure) {
  Status status;
  for (models::Model* model : models) {
    const Status placed = place(*model);
    if (placed.ok()) continue;
    if (on_failure == Runner::OnFailure::kFail) return placed;
    model->mark_unavailable(std::string(placed.message()));
  }
  if (source_ != nullptr) {
    status = add_workers(models, builders, on_failure);
    if (status.ok() && is_auto()) status = pack_on(models, builders);
    if (status.ok() && is_auto()) status = add_express(models, builders, on_failure);
    for (models::Model* model : models) source_->add(*model, places_[model->index()]);
  }
  if (status.ok() && !inline_.empty()) status = add_inline(models, builders, on_failure);
  if (status.ok()) return {};
  for (const models::Model* model : models) remove(*model);
  return status;
}

Status Scheduler::place(const models::Model& model) {
  const models::ModelScheduling& scheduling = model.scheduling();
  const std::string named = "model '" + model.metadata().name + "': its config.json ";
  std::vector<uint32_t>& workers = places_[model.index()];
  workers.clear();
  if (!is_auto() && scheduling.queue_type != models::QueueType::kAuto) {
    options_.warn(named +
                  "has a queue_type of its own, which counts where the engine's is auto, not " +
                  std::string(name_of(config_.queue_type)));
  }
  if (!scheduling.is_on_some_workers()) return {};
  if (source_ == nullptr || !source_->can_pin()) {
    options_.warn(named +
                  "chooses its workers, which counts with auto, mpmc and batched, not with " +
                  std::string(name_of(config_.queue_type)));
    return {};
  }
  const uint32_t count = config_.thread_count;
  for (const uint32_t worker : scheduling.workers) {
    if (worker < count) continue;
    return Status::error(
        Code::kInvalidArgument,
        "%sgives it to worker %u, and the engine has %u, from 0 on; name one of them, or "
        "raise --thread-count",
        named.c_str(), worker, count);
  }
  workers = scheduling.workers;
  // The next model begins where this one ends, about.
  for (uint32_t i = 0; scheduling.instances < count && i < scheduling.instances; ++i) {
    workers.push_back((model.index() * scheduling.instances + i) % count);
  }
  std::ranges::sort(workers);
  return {};
}

Status Scheduler::add_workers(std::span<models::Model* const> models, models::Builders& builders,
                              Runner::OnFailure on_failure) {
  std::vector<Share> shares;
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    Share& share = shares.emplace_back(Share{.runner = &workers_[i]->runner(), .models = {}});
    for (models::Model* model : models) {
      const std::vector<uint32_t>& places = places_[model->index()];
      const bool is_here = places.empty() || std::ranges::find(places, i) != places.end();
      if (is_here && !is_inline_only(*model)) share.models.push_back(model);
    }
  }
  return add_to(shares, config_, builders, on_failure);
}

Status Scheduler::add_inline(std::span<models::Model* const> models, models::Builders& builders,
                             Runner::OnFailure on_failure) {
  std::vector<models::Model*> taken;
  for (models::Model* model : models) {
    inline_choice_.reset(model->index());
    if (!is_auto() || is_inline_only(*model) || is_light(*model)) taken.push_back(model);
  }
  if (taken.empty()) return {};
  std::vector<Share> shares;
  shares.reserve(inline_.size());
  for (const auto& entry : inline_) shares.push_back({entry->runner.get(), taken});
  EngineConfig config = config_;
  config.queue_type = models::QueueType::kInline;
  return add_to(shares, config, builders, on_failure);
}

Status Scheduler::add_express(std::span<models::Model* const> models, models::Builders& builders,
                              Runner::OnFailure on_failure) {
  Share share{.runner = &express_->worker().runner(), .models = {}};
  for (models::Model* model : models) {
    if (ExpressLane::may_take(*model)) share.models.push_back(model);
    express_->source().add(*model, {});
  }
  return share.models.empty() ? Status() : add_to({&share, 1}, config_, builders, on_failure);
}

// Models that the I/O threads run are packed there, and those with a type of their own as that
// says.
Status Scheduler::pack_on(std::span<models::Model* const> models, models::Builders& builders) {
  Status status;
  InstanceMemory memory;
  const auto measure = [&] {
    for (const auto& worker : workers_) {
      for (const models::Model* model : models) {
        const bool is_open = model->scheduling().queue_type == models::QueueType::kAuto;
        if (!is_open || is_light(*model) || !worker->runner().has_instance(*model)) continue;
        const Status own = worker->runner().pack(*model, memory);
        if (status.ok()) status = own;
      }
    }
  };
  const models::Builders::Job measuring{.body = measure, .near_cpu = std::nullopt};
  builders.run({&measuring, 1});
  return status;
}

Status Scheduler::add_to(std::span<const Share> shares, const EngineConfig& config,
                         models::Builders& builders, Runner::OnFailure on_failure) {
  SharedInstances shared;
  InstanceMemory memory;
  size_t most_models = 0;
  for (const Share& share : shares) {
    share.runner->expect_instances(share.models);
    most_models = std::max(most_models, share.models.size());
  }
  // Instances of one model side by side, for all runners: then their parts of the memory are right.
  std::vector<models::Builders::Job> jobs;
  for (size_t model = 0; model < most_models; ++model) {
    for (size_t i = 0; i < shares.size(); ++i) {
      if (model >= shares[i].models.size()) continue;
      jobs.push_back(
          {.body = [&, i,
                    model] { shares[i].runner->make_instance(model, shared, memory, config); },
           .near_cpu = pinned_.of(static_cast<uint32_t>(i))});
    }
  }
  builders.run(jobs);
  Status status;
  const auto measure = [&] {
    for (const Share& share : shares) {
      const Status own = share.runner->set_up(memory, on_failure);
      if (status.ok()) status = own;
    }
  };
  const models::Builders::Job measuring{.body = measure, .near_cpu = std::nullopt};
  builders.run({&measuring, 1});
  return status;
}

void Scheduler::remove(const models::Model& model) noexcept {
  for (Runner* runner : runners()) runner->remove(model);
}

void Scheduler::start_workers() {
  for (const auto& worker : workers_) {
    worker->prepare();
    warn_of_pin(worker->pin_status());
  }
  if (express_ != nullptr) {
    express_->worker().prepare();
    warn_of_pin(express_->worker().pin_status());
    express_->worker().go();
  }
  for (const auto& worker : workers_) worker->go();
}

models::QueueType Scheduler::lane_of(uint32_t submitter, const models::Model& model,
                                     uint64_t input_bytes, uint64_t expected_ns) noexcept {
  if (!is_auto()) return config_.queue_type;
  if (is_inline_only(model)) return models::QueueType::kInline;
  const bool is_inline = inline_[submitter]->runner->has_instance(model) &&
                         inline_choice_.is_inline(model.index(), input_bytes, expected_ns);
  if (is_inline) return models::QueueType::kInline;
  return home_of(model).gathers(model) ? models::QueueType::kBatched : models::QueueType::kMpmc;
}

models::QueueType Scheduler::usual_lane_of(uint32_t submitter,
                                           const models::Model& model) noexcept {
  if (!is_auto()) return config_.queue_type;
  const uint64_t input_bytes = model.run_costs().usual_bytes();
  return lane_of(submitter, model, input_bytes, model.run_costs().expect_ns(input_bytes));
}

Engine::Lane Scheduler::explain_lane_of(const models::Model& model) {
  Engine::Lane lane = usual_lane_and_why(model);
  lane.workers = places_[model.index()];
  return lane;
}

Engine::Instances Scheduler::instances_of(const models::Model& model) const {
  Engine::Instances found;
  std::set<const models::Instance*> different;
  const auto look_at = [&](const Runner& runner, uint32_t& threads) {
    const ModelSlot* slot = runner.slot(model);
    if (slot == nullptr) return;
    ++threads;
    different.insert(slot->instance.get());
    found.bytes += slot->made_bytes;
  };
  for (const auto& worker : workers_) look_at(worker->runner(), found.workers);
  if (express_ != nullptr) look_at(express_->worker().runner(), found.additional_workers);
  for (const auto& entry : inline_) look_at(*entry->runner, found.io_threads);
  found.count = static_cast<uint32_t>(different.size());
  if (found.count > 0) found.bytes = found.bytes / found.count + model.first_run_bytes();
  return found;
}

Engine::Lane Scheduler::usual_lane_and_why(const models::Model& model) {
  const models::QueueType lane = usual_lane_of(0, model);
  if (!is_auto()) return {lane, "the engine's queue_type", {}};
  if (model.scheduling().queue_type != models::QueueType::kAuto) {
    return {lane, "the queue_type of its config.json", {}};
  }
  if (model.scheduling().is_on_some_workers()) {
    return {lane, "its config.json gives it to workers", {}};
  }
  if (model.traits().shares_instances) {
    return {lane, "its backend completes requests on threads of its own", {}};
  }
  const uint64_t expected_ns = model.run_costs().expect_ns(model.run_costs().usual_bytes());
  if (expected_ns == 0) return {lane, "what a run takes is not known yet", {}};
  std::string why = "a run takes " + duration_text(expected_ns) + ", the hand-off to a worker " +
                    duration_text(hand_off_ns());
  if (lane != models::QueueType::kInline && !inline_.front()->runner->has_instance(model)) {
    why += "; the I/O threads have no instance of it";
  }
  return {lane, why, {}};
}

bool Scheduler::push(uint32_t submitter, models::InferRequest& request) noexcept {
  const bool to_worker = request.queue_type != models::QueueType::kInline;
  submitters_[submitter].has_pushed = to_worker;
  if (to_worker) return push_to_workers(submitter, request);
  Runner& runner = *inline_[submitter]->runner;
  if (!runner.has_space()) return false;
  runner.add(request);
  return true;
}

bool Scheduler::push_to_workers(uint32_t submitter, models::InferRequest& request) noexcept {
  if (request.is_express) return express_->push(submitter, request);
  const bool is_heavy = request.is_heavy;
  // relaxed, both: hints. Before the push: the worker may be done with it when the push returns.
  if (is_heavy) express_->heavy().fetch_add(1, std::memory_order_relaxed);
  if (source_->push(submitter, request)) return true;
  if (is_heavy) express_->heavy().fetch_sub(1, std::memory_order_relaxed);  // relaxed: as above
  return false;
}

void Scheduler::choose_lane(uint32_t submitter, models::InferRequest& request,
                            uint64_t input_bytes) noexcept {
  request.expected_ns = request.model->run_costs().expect_ns(input_bytes);
  request.queue_type = lane_of(submitter, *request.model, input_bytes, request.expected_ns);
  request.priority = request.model->scheduling().priority_of(request.priority);
  const bool may_wait = express_ != nullptr && request.queue_type != models::QueueType::kInline;
  // A worker that is for some models alone leaves the others to light requests.
  request.is_heavy = may_wait && ExpressLane::is_heavy(request) &&
                     !request.model->scheduling().is_on_some_workers();
  request.is_express = may_wait && express_->takes(request);
}

Admission& Scheduler::admission_of(const models::InferRequest& request) noexcept {
  if (request.queue_type == models::QueueType::kInline) return inline_admission_;
  return request.is_express ? express_->admission() : admission_;
}

bool Scheduler::fits_budget(uint32_t submitter, models::InferRequest& request) noexcept {
  // Its shape is not known yet: as the model's others.
  choose_lane(submitter, request, request.model->run_costs().usual_bytes());
  return admission_of(request).fits(request);
}

bool Scheduler::has_room(uint32_t submitter, const models::Model& model,
                         models::QueueType lane) const noexcept {
  return lane == models::QueueType::kInline ? inline_[submitter]->runner->has_space()
                                            : source_->has_room(model);
}

void Scheduler::set_default_deadline(models::InferRequest& request) const noexcept {
  const bool has_none = request.deadline_ns == UINT64_MAX && !request.waits_for_ever;
  if (!has_none || config_.default_timeout_us == 0) return;
  const uint64_t begun_ns = request.times.received_ns;
  request.deadline_ns =
      (begun_ns != 0 ? begun_ns : request.times.parsed_ns) + config_.default_timeout_us * 1000;
}

SubmitOutcome Scheduler::submit(uint32_t submitter, models::InferRequest& request) noexcept {
  choose_lane(submitter, request, input_bytes_of(request));
  if (request.times.parsed_ns == 0) request.times.parsed_ns = now_ns();
  set_default_deadline(request);
  Admission& admission = admission_of(request);
  if (!admission.fits(request)) return SubmitOutcome::kOverBudget;
  admission.charge(request);
  if (push(submitter, request)) return SubmitOutcome::kAccepted;
  admission.take_back(request);
  return SubmitOutcome::kFull;
}

size_t Scheduler::end_turn(uint32_t submitter) noexcept {
  wake_workers(submitter);
  if (inline_.empty()) return 0;
  Runner& runner = *inline_[submitter]->runner;
  const size_t done = runner.run(Runner::Pass::kOneCall);
  // The caller looks at completions itself after each call; other owners of completions are told.
  runner.wake_sinks();
  return done;
}

void Scheduler::finish(uint32_t submitter) noexcept {
  if (inline_.empty()) return;
  Runner& runner = *inline_[submitter]->runner;
  while (true) {
    const uint64_t completions = runner.completions();
    while (runner.run(Runner::Pass::kAll) > 0) {
    }
    runner.wake_sinks();
    if (runner.is_done()) return;
    // Waiting requests have no room before a call comes back. A deadline may pass meanwhile: it is
    // then answered that much later.
    runner.wait_for_completion(completions);
  }
}

void Scheduler::wake_workers(uint32_t submitter) noexcept {
  if (source_ != nullptr) source_->wake_workers(submitter);
  if (express_ != nullptr) express_->source().wake_workers(submitter);
}

uint64_t Scheduler::next_ns(uint32_t submitter) const noexcept {
  return inline_.empty() ? UINT64_MAX : inline_[submitter]->runner->next_ns();
}

bool Scheduler::is_done(uint32_t submitter) const noexcept {
  return inline_.empty() || inline_[submitter]->runner->is_done();
}

std::optional<uint32_t> Scheduler::cpu_of(uint32_t submitter) const noexcept {
  return source_ != nullptr ? std::nullopt : pinned_.of(submitter);
}

void Scheduler::set_wake_sink(uint32_t submitter, models::CompletionSink* sink) noexcept {
  if (inline_.empty()) return;
  // sync[scheduler.wake_sink]: release; pairs with on_room()
  inline_[submitter]->wake_sink.store(sink, std::memory_order_release);
}

void Scheduler::announce_all() noexcept {
  if (source_ != nullptr) source_->announce_all();
  if (express_ != nullptr) express_->source().announce_all();
  wake_all();
}

void Scheduler::wake_all() noexcept {
  for (uint32_t i = 0; i < workers_.size(); ++i) source_->wake(i);
  if (express_ != nullptr) express_->source().wake(0);
}

void Scheduler::close() noexcept {
  if (is_closed_) return;
  is_closed_ = true;
  announce_all();
  // sync[engine.closed]: release; the submitters' pushes came before, this thread has seen them leave
  closed_.store(true, std::memory_order_release);
  wake_all();
  for (const auto& worker : workers_) worker->join();
  if (express_ != nullptr) express_->worker().join();
}

}  // namespace lumen::engine
