// See the header for threads, memory and errors.
#include <lumen/service/intake.h>

#include "service/refusal.h"

#include <lumen/engine/engine.h>
#include <lumen/service/shared_region.h>

#include <utility>

namespace lumen::service {
namespace {

Admission refuse(Call& call, const Status& why) noexcept {
  call.infer.status = why;
  return Admission::kRefused;
}

}  // namespace

Status shutting_down() noexcept {
  return Status::error(Code::kUnavailable, "the server is shutting down");
}

Status refusal(engine::SubmitOutcome outcome, const models::Model& model) noexcept {
  using engine::SubmitOutcome;
  const char* const name = model.metadata().name.c_str();
  switch (outcome) {
    case SubmitOutcome::kAccepted: break;
    case SubmitOutcome::kFull:
      return Status::error(Code::kResourceExhausted,
                           "the queue of model '%s' is full; try again, or raise --queue-capacity",
                           name);
    case SubmitOutcome::kOverBudget:
      return Status::error(
          Code::kOverBudget,
          "by the times of recent requests this one to model '%s' would take longer than the "
          "latency budget; try again, or raise --latency-budget-us",
          name);
    case SubmitOutcome::kClosed: return shutting_down();
  }
  return {};
}

Admission Intake::admit(const Arrival& arrival, Call& call, RequestMemory& memory,
                        CallRoom& room) noexcept {
  const CatalogModel* const entry = catalog_.now().find(arrival.model, arrival.version);
  if (entry == nullptr) return refuse(call, model_not_found(arrival.model, arrival.version));
  return admit(*entry, arrival, call, memory, room);
}

Admission Intake::admit(const CatalogModel& entry, const Arrival& arrival, Call& call,
                        RequestMemory& memory, CallRoom& room) noexcept {
  models::Model& model = *entry.model;
  hold(model);  // until leave()
  models::InferRequest& infer = call.infer;
  infer.model = &model;
  // The engine knows no model that came while it served and can't be loaded.
  if (model.state() != models::ModelState::kReady) return refuse(call, model_unavailable(model));
  // An ensemble's steps are asked once more, each when its turn comes.
  const models::EnsemblePlan* const plan = model.ensemble();
  const engine::Submitter::Types types =
      submitter_.types(plan == nullptr ? model : *plan->steps.front().model);
  infer.queue_type = types.queue_type;
  infer.configured_type = types.configured_type;
  infer.allocator_type = types.allocator_type;
  memory.use(types.allocator_type == models::AllocatorType::kStandard
                 ? RequestMemory::Kind::kHeap
                 : RequestMemory::Kind::kArena);
  // A body that would be refused need not come in. A request that may be answered from the cache
  // needs no place in the queue.
  if (!model.response_cache().enable && !types.has_room) {
    return refuse(call, refusal(engine::SubmitOutcome::kFull, model));
  }
  if (types.has_latency_budget && plan == nullptr) {
    infer.outside_ns = arrival.outside_ns;
    if (!submitter_.fits_budget(infer)) {
      return refuse(call, refusal(engine::SubmitOutcome::kOverBudget, model));
    }
  }
  return room.take(call, entry.need, arrival.body) ? Admission::kAdmitted : Admission::kNoRoom;
}

void Intake::hold(const models::Model& model) noexcept {
  catalog_.hold(model);
  if (model.ensemble() == nullptr) return;
  for (const auto& step : model.ensemble()->steps) catalog_.hold(*step.model);
}

void Intake::release(const models::Model& model) noexcept {
  if (model.ensemble() != nullptr) {
    for (const auto& step : model.ensemble()->steps) catalog_.release(*step.model);
  }
  catalog_.release(model);
}

Result<std::span<std::byte>> Intake::use_region(Call& call, const wire::SharedPlace& place,
                                                uid_t user) noexcept {
  const SharedRegion* const region = catalog_.now().find_region(place.region);
  if (region == nullptr) return region_not_found(place.region);
  if (region->user() != user) {
    return Status::error(Code::kForbidden, "region '%.128s' of shared memory is another user's",
                         region->name().c_str());
  }
  const std::span<HeldRegion> held = call.scratch->allocate_array<HeldRegion>(1);
  if (held.empty()) {
    return Status::error(Code::kTooLarge, "the request's memory has no room for its regions");
  }
  catalog_.hold(*region);
  held[0] = {region, call.regions};
  call.regions = held.data();
  return region->part(place.offset, place.byte_size);
}

void Intake::leave_regions(Call& call) noexcept {
  for (HeldRegion* held = std::exchange(call.regions, nullptr); held != nullptr;
       held = held->next) {
    catalog_.release(*held->region);
  }
}

bool Intake::is_awaited(const Call& call) const noexcept {
  const models::Model* const model = call.infer.model;
  if (model != nullptr && catalog_.is_awaited(*model)) return true;
  for (const HeldRegion* held = call.regions; held != nullptr; held = held->next) {
    if (catalog_.is_awaited(*held->region)) return true;
  }
  return false;
}

void Intake::leave(Call& call) noexcept {
  leave_regions(call);
  call.let_go_of_outputs();  // while their model is held
  if (call.infer.model != nullptr) release(*call.infer.model);
}

size_t Intake::waiting_room() noexcept { return submitter_.room(); }

}  // namespace lumen::service
