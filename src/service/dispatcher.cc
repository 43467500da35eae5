// See the header for threads, memory and errors.
#include <lumen/service/dispatcher.h>

#include "service/ensemble_run.h"
#include "service/refusal.h"

#include <lumen/base/check.h>
#include <lumen/base/clock.h>
#include <lumen/engine/engine.h>
#include <lumen/engine/record.h>
#include <lumen/models/model_repository.h>
#include <lumen/models/validate.h>

#include <algorithm>
#include <utility>

namespace lumen::service {

using models::InferRequest;

bool Dispatcher::submit(Call& call) noexcept {
  call.way = {.dispatcher = this};
  if (call.infer.times.parsed_ns == 0) call.infer.times.parsed_ns = now_ns();
  // A step may keep it for long, and the engine asks only then.
  if (!steps_.empty()) submitter_.set_default_deadline(call.infer);
  return go_on(call);
}

bool Dispatcher::go_on(Call& call) noexcept {
  while (call.way.passed < steps_.size()) {
    Step& step = *steps_[call.way.passed];
    switch (step.before(call)) {
      case StepOutcome::kNext: ++call.way.passed; break;
      case StepOutcome::kDone: complete(call); return true;
      case StepOutcome::kParked: park(call, step); return true;
    }
  }
  if (to_engine(call)) return true;
  tell_steps(call);
  count_cache(call);
  return false;
}

bool Dispatcher::to_engine(Call& call) noexcept {
  InferRequest& infer = call.infer;
  if (infer.model->ensemble() != nullptr) return begin_ensemble(call);
  infer.owner = &call;
  infer.memory = call.reply_memory;
  infer.scratch = call.scratch;
  infer.sink = &sink_;
  infer.encode = [](InferRequest& request) noexcept {
    Call& self = *static_cast<Call*>(request.owner);
    self.owner->encode(self);
    request.times.postprocessed_ns = now_ns();
  };
  infer.complete = [](InferRequest& request) noexcept {
    Call& self = *static_cast<Call*>(request.owner);
    self.way.dispatcher->finish(self);
  };
  // Before, since a worker may have taken it when submit() returns.
  const uint32_t model = infer.model->index();
  counters_.add(model, "queued");
  const engine::SubmitOutcome outcome = submitter_.submit(infer);
  if (outcome == engine::SubmitOutcome::kAccepted) return true;
  counters_.subtract(model, "queued");
  infer.status = refusal(outcome, *infer.model);
  return false;
}

bool Dispatcher::begin_ensemble(Call& call) noexcept {
  call.ensemble = EnsembleRun::create(call, submitter_, sink_, counters_);
  if (call.ensemble == nullptr) {
    call.infer.status = Status::error(
        Code::kTooLarge, "the request's memory has no room for the steps of ensemble '%s'",
        call.infer.model->metadata().name.c_str());
    return false;
  }
  if (call.ensemble->go_on()) return true;
  std::exchange(call.ensemble, nullptr)->end();
  return false;
}

// True: the call is complete.
bool Dispatcher::end_ensemble(Call& call) noexcept {
  if (call.ensemble->go_on()) return false;
  std::exchange(call.ensemble, nullptr)->end();
  if (call.infer.status.ok()) {
    call.owner->encode(call);
    call.infer.times.postprocessed_ns = now_ns();
    engine::record(call.infer, engine::run_rows_of(call.infer), counters_);
  }
  tell_steps(call);
  return true;
}

void Dispatcher::tell_steps(Call& call) noexcept {
  for (; call.way.passed > 0; --call.way.passed) steps_[call.way.passed - 1u]->after(call);
}

void Dispatcher::finish(Call& call) noexcept {
  tell_steps(call);
  call.owner->on_returned(call);
}

void complete(Call& call) noexcept {
  Dispatcher& dispatcher = *call.way.dispatcher;
  if (call.infer.status.ok()) {
    call.owner->encode(call);
    call.infer.times.postprocessed_ns = now_ns();
  }
  dispatcher.finish(call);
  dispatcher.sink_.wake();
}

void resume(Call& call) noexcept {
  Dispatcher& dispatcher = *call.way.dispatcher;
  call.way.goes_on = true;
  call.owner->on_returned(call);
  dispatcher.sink_.wake();
}

bool Dispatcher::take_back(Call& call) noexcept {
  if (call.way.parked_at != nullptr) unpark(call);
  if (call.ensemble != nullptr && !end_ensemble(call)) return false;
  if (!std::exchange(call.way.goes_on, false)) {
    if (call.infer.status.code() == Code::kCancelled) counters_.add("cancelled");
    count_cache(call);
    return true;
  }
  ++call.way.passed;
  return !go_on(call);
}

// Here, since a step does not know the counters of the thread that it is on. As the protocol has
// it, the time in the queue is that of all requests, the time of a run that of runs alone.
void Dispatcher::count_cache(const Call& call) noexcept {
  if (call.cache_outcome == CacheOutcome::kNone) return;
  const uint32_t model = call.infer.model->index();
  if (call.was_not_kept) counters_.add(model, "cache_not_kept");
  if (call.cache_outcome == CacheOutcome::kMiss) {
    return counters_.add_time(model, "cache_miss", call.cache_ns);
  }
  const models::StageTimes& times = call.infer.times;
  if (call.cache_outcome == CacheOutcome::kShared) counters_.add(model, "cache_shared");
  counters_.add_time(model, "cache_hit", call.cache_ns);
  counters_.add_time(model, "queue", times.dequeued_ns - times.parsed_ns);
}

void Dispatcher::cancel(Call& call) noexcept {
  call.infer.cancelled.set();
  if (call.ensemble != nullptr) call.ensemble->cancel();
  if (call.way.parked_at == nullptr) return;
  abandon(call, models::cancelled_before_run(call.infer.model->metadata()));
}

void Dispatcher::expire(uint64_t now) noexcept {
  if (now < next_ns_) return;
  next_ns_ = UINT64_MAX;
  for (Call* call = parked_; call != nullptr;) {
    Call* const next = call->way.next;
    const bool is_late = call->infer.deadline_ns < now;
    if (!is_late) next_ns_ = std::min(next_ns_, call->infer.deadline_ns);
    if (is_late) {
      abandon(*call, Status::error(Code::kDeadlineExceeded,
                                   "request expired before model '%s' began with it; raise "
                                   "its timeout or send less at once",
                                   call->infer.model->metadata().name.c_str()));
    }
    call = next;
  }
}

void Dispatcher::abandon(Call& call, const Status& status) noexcept {
  if (!call.way.parked_at->abandon(call)) return;  // it is on its way back
  unpark(call);
  call.infer.status = status;
  finish(call);
  sink_.wake();
}

void Dispatcher::park(Call& call, Step& step) noexcept {
  call.way.parked_at = &step;
  call.way.next = parked_;
  if (parked_ != nullptr) parked_->way.previous = &call;
  parked_ = &call;
  next_ns_ = std::min(next_ns_, call.infer.deadline_ns);
}

void Dispatcher::unpark(Call& call) noexcept {
  Call::Way& way = call.way;
  (way.previous != nullptr ? way.previous->way.next : parked_) = way.next;
  if (way.next != nullptr) way.next->way.previous = way.previous;
  way.previous = way.next = nullptr;
  way.parked_at = nullptr;
}

}  // namespace lumen::service
