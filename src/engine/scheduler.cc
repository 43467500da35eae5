// See the header for threads, memory and errors.
#include "engine/scheduler.h"

#include <lumen/base/clock.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lumen::engine {

Result<std::unique_ptr<Scheduler>> Scheduler::create(const EngineOptions& options,
                                                     const EngineConfig& config,
                                                     std::span<models::Model* const> models,
                                                     telemetry::Counters& counters,
                                                     models::Builders& builders,
                                                     Runner::OnFailure on_failure) {
  std::unique_ptr<Scheduler> scheduler(new Scheduler(config, options));
  scheduler->make_lanes(counters);
  LUMEN_RETURN_IF_ERROR(scheduler->add(models, builders, on_failure));
  for (const auto& lane : scheduler->lanes_) lane->start();
  return scheduler;
}

template <typename LaneType, typename... Rest>
LaneType& Scheduler::make_lane(Rest&&... rest) {
  auto lane = std::make_unique<LaneType>(std::forward<Rest>(rest)...);
  LaneType& made = *lane;
  lanes_.push_back(std::move(lane));
  return made;
}

void Scheduler::make_lanes(telemetry::Counters& counters) {
  const LaneContext context{config_, options_, counters, closed_, load_};
  if (config_.queue_type == models::QueueType::kInline) {
    auto& lane = make_lane<InlineLane>(context, every_model, true, nullptr);
    chooser_ = std::make_unique<OneLane>(lane, config_.queue_type);
  } else if (config_.queue_type == models::QueueType::kAuto) {
    auto& workers = make_lane<WorkerLane>(context, placement_, AutoChooser::is_for_workers,
                                          AutoChooser::is_packed_by_workers);
    auto& express = make_lane<ExpressLane>(context);
    auto& submitters =
        make_lane<InlineLane>(context, AutoChooser::is_for_submitters, false, workers.shares());
    chooser_ = std::make_unique<AutoChooser>(workers, express, submitters);
  } else {
    auto& lane = make_lane<WorkerLane>(context, placement_, every_model, no_model);
    chooser_ = std::make_unique<OneLane>(lane, config_.queue_type);
  }
}

Status Scheduler::add(std::span<models::Model* const> models, models::Builders& builders,
                      Runner::OnFailure on_failure) {
  for (models::Model* model : models) {
    chooser_->forget(*model);
    Status placed = placement_.place(*model);
    if (placed.ok()) continue;
    if (on_failure == Runner::OnFailure::kFail) return placed;
    model->mark_unavailable(std::string(placed.message()));
  }
  Status status;
  for (const auto& lane : lanes_) {
    status = lane->add(models, builders, on_failure);
    if (!status.ok()) break;
  }
  if (status.ok()) return {};
  for (const models::Model* model : models) remove(*model);
  return status;
}

void Scheduler::remove(const models::Model& model) noexcept {
  for (const auto& lane : lanes_) lane->remove(model);
}

Engine::UsualLane Scheduler::usual_lane_of(const models::Model& model) {
  return {chooser_->usual(0, model).type, chooser_->explain(model), placement_.workers_of(model)};
}

Engine::Instances Scheduler::instances_of(const models::Model& model) const {
  Engine::Instances found;
  std::set<const models::Instance*> different;
  for (const auto& lane : lanes_) {
    uint32_t threads = 0;
    for (const Runner* runner : lane->runners()) {
      const ModelSlot* slot = runner->slot(model);
      if (slot == nullptr) continue;
      ++threads;
      different.insert(slot->instance.get());
      found.bytes += slot->made_bytes;
    }
    switch (lane->threads()) {
      case Lane::Threads::kWorkers: found.workers = threads; break;
      case Lane::Threads::kExpressWorker: found.express_workers = threads; break;
      case Lane::Threads::kSubmitters: found.io_threads = threads; break;
    }
  }
  found.count = static_cast<uint32_t>(different.size());
  if (found.count > 0) found.bytes = found.bytes / found.count + model.first_run_bytes();
  return found;
}

bool Scheduler::fits_budget(uint32_t submitter, models::InferRequest& request) noexcept {
  // Its shape is not known yet: as the model's others.
  Lane& lane = chooser_->choose(submitter, request, request.model->run_costs().usual_bytes());
  return lane.admission().fits(request);
}

Submitter::Types Scheduler::types(uint32_t submitter, const models::Model& model) noexcept {
  const LaneChooser::Choice usual = chooser_->usual(submitter, model);
  return {usual.type, config_.queue_type, config_.allocator_type, config_.latency_budget_us > 0,
          usual.lane->has_room(submitter, model)};
}

void Scheduler::set_default_deadline(models::InferRequest& request) const noexcept {
  const bool has_none = request.deadline_ns == UINT64_MAX && !request.waits_for_ever;
  if (!has_none || config_.default_timeout_us == 0) return;
  const uint64_t begun_ns = request.times.received_ns;
  request.deadline_ns =
      (begun_ns != 0 ? begun_ns : request.times.parsed_ns) + config_.default_timeout_us * 1000;
}

SubmitOutcome Scheduler::submit(uint32_t submitter, models::InferRequest& request) noexcept {
  Lane& lane = chooser_->choose(submitter, request, input_bytes_of(request));
  request.configured_type = config_.queue_type;
  if (request.times.parsed_ns == 0) request.times.parsed_ns = now_ns();
  set_default_deadline(request);
  if (!lane.admission().fits(request)) return SubmitOutcome::kOverBudget;
  lane.admission().charge(request);
  submitters_[submitter].has_pushed = lane.threads() != Lane::Threads::kSubmitters;
  if (lane.push(submitter, request)) return SubmitOutcome::kAccepted;
  lane.admission().take_back(request);
  return SubmitOutcome::kFull;
}

void Scheduler::wake_workers(uint32_t submitter) noexcept {
  for (const auto& lane : lanes_) lane->wake(submitter);
}

size_t Scheduler::end_turn(uint32_t submitter) noexcept {
  size_t done = 0;
  for (const auto& lane : lanes_) done += lane->end_turn(submitter);
  return done;
}

bool Scheduler::has_runs(uint32_t submitter) const noexcept {
  return std::ranges::any_of(lanes_, [&](const auto& lane) { return lane->has_runs(submitter); });
}

void Scheduler::finish(uint32_t submitter) noexcept {
  for (const auto& lane : lanes_) lane->finish(submitter);
}

uint64_t Scheduler::next_ns(uint32_t submitter) const noexcept {
  uint64_t next = UINT64_MAX;
  for (const auto& lane : lanes_) next = std::min(next, lane->next_ns(submitter));
  return next;
}

size_t Scheduler::room(uint32_t submitter) const noexcept {
  size_t room = SIZE_MAX;
  for (const auto& lane : lanes_) room = std::min(room, lane->room(submitter));
  return room;
}

bool Scheduler::is_done(uint32_t submitter) const noexcept {
  return std::ranges::all_of(lanes_, [&](const auto& lane) { return lane->is_done(submitter); });
}

std::optional<uint32_t> Scheduler::cpu_of(uint32_t submitter) const noexcept {
  const Lane& lane = *lanes_.back();
  return lane.threads() == Lane::Threads::kSubmitters ? lane.pinned().of(submitter) : std::nullopt;
}

void Scheduler::set_wake_sink(uint32_t submitter, models::CompletionSink* sink) noexcept {
  for (const auto& lane : lanes_) lane->set_wake_sink(submitter, sink);
}

void Scheduler::announce_all() noexcept {
  for (const auto& lane : lanes_) lane->announce_all();
}

void Scheduler::close() noexcept {
  if (is_closed_) return;
  is_closed_ = true;
  announce_all();
  // sync[engine.closed]: release; the submitters' pushes came before, this thread has seen them
  // leave
  closed_.store(true, std::memory_order_release);
  for (const auto& lane : lanes_) lane->close();
}

}  // namespace lumen::engine
