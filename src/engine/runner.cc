// See the header for threads, memory and errors.
#include "engine/runner.h"

#include <lumen/base/clock.h>
#include <lumen/models/validate.h>

#include <lumen/engine/record.h>
#include "engine/run_timer.h"

#include <sched.h>

#include <algorithm>
#include <span>

namespace lumen::engine {

using telemetry::CounterWriter;

namespace {

// How long a completion may wait for those that follow it, so that one wake-up tells of all: about
// the cost of a wake-up to a sleeper anyway. Only if the model is so fast that several fit.
constexpr uint64_t kCoalesceNs = 20'000;

bool is_late(const models::InferRequest& request, uint64_t now) noexcept {
  return now > request.deadline_ns;
}

}  // namespace

Runner::Runner(const RunnerOptions& options)
    : options_(options), counters_(*options.counters), slots_(limits::kMaxModels) {
  const size_t most = std::max<size_t>(options_.config.batch_size, 1);
  waiting_.reserve(options_.capacity + most);
  candidates_.reserve(most);
  candidate_rows_.reserve(most);
  members_.reserve(most);
}

void Runner::expect_instances(std::span<models::Model* const> models) {
  made_.clear();
  made_.reserve(models.size());
  for (models::Model* model : models) {
    made_.push_back({.model = model, .config = {}, .slot = {}, .status = {}});
  }
}

void Runner::make_instance(size_t index, SharedInstances& shared, InstanceMemory& memory,
                           const EngineConfig& config) {
  Made& made = made_[index];
  made.config = config;
  if (config.queue_type == models::QueueType::kAuto) {
    made.config.queue_type = made.model->scheduling().queue_type;
  }
  InstanceMemory::Making making(memory, made.model->file_bytes());
  Result<std::unique_ptr<ModelSlot>> slot = make_slot(*made.model, made.config, shared);
  const uint64_t bytes = making.end();
  made.status = slot.status();
  made.slot = slot.ok() ? std::move(*slot) : std::make_unique<ModelSlot>();
  made.slot->model = made.model;
  made.slot->made_bytes = bytes;
}

namespace {

// A backend puts off work to the first run: OpenVINO then packs weights for its kernels, which
// takes as much again as the instance did.
template <typename Trial>
Status run_measured(ModelSlot& slot, InstanceMemory& memory, Trial&& trial) {
  InstanceMemory::Making making(memory);
  Status status = trial();
  slot.run_bytes += making.end();
  if (slot.has_run) slot.model->set_first_run_bytes(slot.run_bytes);
  slot.model->keep_known_costs();
  return status;
}

}  // namespace

Status Runner::set_up(InstanceMemory& memory, OnFailure on_failure) {
  for (Made& made : std::exchange(made_, {})) {
    Status status = made.status;
    if (status.ok()) {
      status = run_measured(*made.slot, memory,
                            [&] { return plan_slot(*made.slot, made.config, options_.regions); });
    }
    if (!status.ok()) {
      if (on_failure == OnFailure::kFail) return status;
      made.model->mark_unavailable(std::string(status.message()));
      made.slot = std::make_unique<ModelSlot>();  // without an instance
      made.slot->model = made.model;
    }
    slots_[made.model->index()] = std::move(made.slot);
  }
  return {};
}

Status Runner::pack(const models::Model& model, InstanceMemory& memory) {
  ModelSlot& slot = *slots_[model.index()];
  return run_measured(slot, memory,
                      [&] { return pack_slot(slot, options_.config, options_.regions); });
}

void Runner::remove(const models::Model& model) noexcept {
  std::unique_ptr<ModelSlot>& slot = slots_[model.index()];
  if (slot == nullptr) return;
  // sync[runner.in_flight]: acquire; the thread that completed the last request is out of the slot.
  // A few instructions of another thread, which has no thread to wake for it.
  while (slot->in_flight.load(std::memory_order_acquire) != 0) ::sched_yield();
  // sync[runner.starting]: acquire; the runner's thread has left the instance, too
  while (slot->is_starting.load(std::memory_order_acquire)) ::sched_yield();
  slot.reset();
}

bool Runner::add(models::InferRequest& request) noexcept {
  // Behind those that came before it and are no less urgent.
  auto place = waiting_.end();
  while (place != waiting_.begin() && place[-1]->priority > request.priority) --place;
  waiting_.insert(place, &request);
  const ModelSlot& slot = slot_of(request);
  // A request that one worker has taken is lost to the others: only packed ones are worth it.
  if (!slot.gathers || slot.batches.empty()) return false;
  if (gather_first_ == nullptr) {
    const auto oldest = std::ranges::find(waiting_, request.model, &models::InferRequest::model);
    gather_first_ = *oldest;
    for (const models::InferRequest* other : std::span(oldest, waiting_.end())) {
      if (can_share_call(*gather_first_, *other)) gather_rows_ += rows_of(*other);
    }
    return gather_rows_ < slot.plan.max_rows() && can_share_call(*gather_first_, request);
  }
  if (!can_share_call(*gather_first_, request)) return false;
  gather_rows_ += rows_of(request);
  return gather_rows_ < slot.plan.max_rows();
}

size_t Runner::run(Pass pass) noexcept {
  gather_first_ = nullptr;
  gather_rows_ = 0;
  // sync[runner.completions]: acquire; the room that a completion made is seen below
  const uint64_t completions = completions_.load(std::memory_order_acquire);
  if (std::exchange(completions_seen_, completions) != completions || failed_here_ != nullptr) {
    take_back_failed_batches();
  }
  if (waiting_.empty()) return 0;
  ++pass_;
  hold_until_ns_ = UINT64_MAX;
  const size_t before = waiting_.size();
  for (size_t i = 0; i < waiting_.size();) {
    models::InferRequest* request = waiting_[i];
    if (request == nullptr) {  // gone, perhaps with an older one
      ++i;
      continue;
    }
    const uint64_t now = now_ns();
    if (request->cancelled.was_set()) {
      waiting_[i] = nullptr;
      refuse(*request, cancelled_before_run(request->model->metadata()), now);
    } else if (is_late(*request, now)) {
      waiting_[i] = nullptr;
      refuse_late(*request, now);
    } else if (slot_of(*request).blocked_pass == pass_) {
      ++i;
    } else {
      start_with(i, now);  // looked at again: it is back if the batch that it was in has failed
      if (pass == Pass::kOneCall && waiting_[i] == nullptr) break;
    }
  }
  std::erase(waiting_, nullptr);
  return before - waiting_.size();
}

// Starts the request at `first`, with others if that is cheaper; or leaves it, and all of its model
// for this pass, where there is no room or more rows are waited for.
void Runner::start_with(size_t first, uint64_t now) noexcept {
  models::InferRequest& request = *waiting_[first];
  ModelSlot& slot = slot_of(request);
  // sync[runner.in_flight]: acquire; the slot's batch is this thread's again. Only this thread
  // counts up, so room once seen stays.
  if (slot.in_flight.load(std::memory_order_acquire) >= slot.max_in_flight) {
    slot.blocked_pass = pass_;
    return;
  }
  if (slot.batches.empty()) {
    waiting_[first] = nullptr;
    start_one(request, slot, now);
    return;
  }
  const BatchDecision decision = decide(first, slot, now);
  if (decision.count == 0) {
    slot.blocked_pass = pass_;
    hold_until_ns_ = std::min(hold_until_ns_, decision.until_ns);
    return;
  }
  members_.clear();
  for (size_t i = 0; i < decision.count; ++i) {
    members_.push_back(std::exchange(waiting_[candidates_[i]], nullptr));
  }
  if (decision.count == 1) {
    start_one(*members_.front(), slot, now);
  } else {
    start_batch(decision.count, decision.rows, slot, now);
  }
}

BatchDecision Runner::decide(size_t first, const ModelSlot& slot, uint64_t now) noexcept {
  const models::InferRequest& oldest = *waiting_[first];
  candidates_.clear();
  candidate_rows_.clear();
  uint32_t rows = 0;
  for (size_t i = first; i < waiting_.size() && rows < slot.plan.max_rows() &&
                         candidates_.size() < candidates_.capacity();
       ++i) {
    const models::InferRequest* other = waiting_[i];
    if (other == nullptr || !can_share_call(oldest, *other)) {
      // One that can't be packed itself runs alone.
      if (i == first) {
        candidates_.push_back(i);
        return {.count = 1, .rows = 1};
      }
      continue;
    }
    if (i != first && (is_late(*other, now) || other->cancelled.was_set())) continue;  // own turn
    candidates_.push_back(i);
    candidate_rows_.push_back(rows_of(*other));
    rows += candidate_rows_.back();
  }
  const uint64_t max_delay_ns =
      slot.gathers ? uint64_t{options_.config.max_queue_delay_us} * 1000 : 0;
  return decide_batch({candidate_rows_, oldest.times.parsed_ns}, slot.plan, now, max_delay_ns);
}

void Runner::start_one(models::InferRequest& request, ModelSlot& slot, uint64_t now) noexcept {
  leave_queue(request, now);
  if (slot.instance == nullptr) {
    request.status =
        Status::error(Code::kUnavailable, "model '%s' is unavailable: %s",
                      slot.model->metadata().name.c_str(), slot.model->reason().c_str());
    models::CompletionSink* sink = request.sink;
    finish(request, 0, counters_);
    note_sink(sink, now);
    return;
  }
  // Requests that were completed before must not wait for a slow model's turn.
  if (waiting_sink_count_ > 0 && now + slot.service_ns > waiting_sinks_since_ns_ + kCoalesceNs) {
    wake_sinks();
  }
  request.in_engine = this;
  const RunTimer timer(request.expected_ns);
  // Counted before start(): a completion may come before it returns.
  slot.in_flight.fetch_add(1, std::memory_order_relaxed);  // relaxed: this thread's own count up
  if (start(slot, request, &Runner::on_done) == models::StartOutcome::kPending) {
    note_pending();
    return;
  }
  slot.in_flight.fetch_sub(1, std::memory_order_relaxed);  // relaxed: nothing is handed over
  models::CompletionSink* sink = request.sink;
  const uint64_t done = now_ns();
  models::InferRequest* const alone = &request;
  note_service(slot, done - now, timer.used_ns(done - now), {&alone, 1});
  finish(request, run_rows_of(request), counters_);
  note_sink(sink, done);
}

void Runner::leave_queue(models::InferRequest& request, uint64_t now) noexcept {
  // Not again where a batch has failed and its members run alone.
  if (request.times.dequeued_ns == 0) counters_.subtract(request.model->index(), "queued");
  request.times.dequeued_ns = now;
  request.worker = options_.index;
}

void Runner::start_batch(size_t count, uint32_t rows, ModelSlot& slot, uint64_t now) noexcept {
  const std::span<models::InferRequest* const> members = std::span(members_).first(count);
  if (waiting_sink_count_ > 0 && now + slot.service_ns > waiting_sinks_since_ns_ + kCoalesceNs) {
    wake_sinks();
  }
  for (models::InferRequest* member : members) {
    leave_queue(*member, now);
  }
  // sync[runner.batch_free]: acquire; its last owner is through with it. There is one, as there is
  // room.
  BatchPlace& place = **std::ranges::find_if(
      slot.batches, [](const auto& one) { return !one->is_taken.load(std::memory_order_acquire); });
  const auto leave_them_alone = [&] {
    (void)place.batch.reset();
    for (size_t i = 0; i < members.size(); ++i) {
      members[i]->runs_alone = true;
      waiting_[candidates_[i]] = members[i];
    }
  };
  if (!place.batch.pack(members, slot.plan.padded(rows))) {
    leave_them_alone();
    return;
  }
  models::InferRequest& packed = place.batch.request();
  packed.in_engine = this;
  packed.owner = &place;
  uint64_t expected_ns = 0;
  for (const models::InferRequest* member : members) expected_ns += member->expected_ns;
  const RunTimer timer(expected_ns);
  place.is_taken.store(true, std::memory_order_relaxed);   // relaxed: only this thread asks
  slot.in_flight.fetch_add(1, std::memory_order_relaxed);  // relaxed: as in start_one()
  if (start(slot, packed, &Runner::on_batch_done) == models::StartOutcome::kPending) {
    note_pending();
    return;
  }
  if (packed.status.ok()) {
    const uint64_t ns = now_ns() - now;
    note_service(slot, ns, timer.used_ns(ns), members);
    finish_batch(place);
  } else {
    leave_them_alone();
  }
  place.is_taken.store(false, std::memory_order_relaxed);  // relaxed: as above
  // sync[runner.in_flight]: release; the last touch, once the members are complete the slot may go
  slot.in_flight.fetch_sub(1, std::memory_order_release);
}

// With kPending neither the slot nor the instance is touched afterwards.
models::StartOutcome Runner::start(ModelSlot& slot, models::InferRequest& request,
                                   void (*done)(models::InferRequest&) noexcept) noexcept {
  // relaxed: the thread that removes the model has seen a completion that this comes before
  slot.is_starting.store(true, std::memory_order_relaxed);
  const models::StartOutcome outcome = slot.instance->start(request, done);
  // sync[runner.starting]: release; this thread has left the instance
  slot.is_starting.store(false, std::memory_order_release);
  return outcome;
}

// The callback may have come already: then the count was below by one for a moment, and nobody
// asked.
void Runner::note_pending() noexcept {
  pending_.fetch_add(1, std::memory_order_relaxed);  // relaxed: this thread's own count up
}

void Runner::finish_batch(BatchPlace& place) noexcept {
  place.batch.split();
  const uint64_t now = now_ns();
  uint64_t run_rows = place.batch.rows();
  for (models::InferRequest* member : place.batch.members()) {
    models::CompletionSink* sink = member->sink;
    finish(*member, std::exchange(run_rows, 0), counters_);
    note_sink(sink, now);
  }
  const RequestMemory::Usage usage = place.batch.reset();
  counters_.add("request_heap_calls", usage.heap_calls);
  counters_.add("request_arena_bytes", usage.arena_bytes);
}

// A backend's thread can't start the model again, so it leaves them to this one.
void Runner::take_back_failed_batches() noexcept {
  // sync[runner.batch_failed]: acquire; the batches are this thread's again
  BatchPlace* failed = failed_.exchange(nullptr, std::memory_order_acquire);
  while (failed != nullptr) {
    BatchPlace* place = std::exchange(failed, failed->next_failed);
    place->next_failed = std::exchange(failed_here_, place);
  }
  while (failed_here_ != nullptr) {
    const auto members = failed_here_->batch.members();
    // Reserved for one; others wait until those have begun, and their calls count as in flight.
    if (waiting_.size() + members.size() > waiting_.capacity()) return;
    BatchPlace& place = *std::exchange(failed_here_, failed_here_->next_failed);
    ModelSlot& slot = slot_of(*members.front());
    for (models::InferRequest* member : members) member->runs_alone = true;
    waiting_.insert(waiting_.begin(), members.begin(), members.end());
    (void)place.batch.reset();
    place.is_taken.store(false, std::memory_order_relaxed);  // relaxed: only this thread asks
    slot.in_flight.fetch_sub(1, std::memory_order_relaxed);  // relaxed: nothing is handed over
    pending_.fetch_sub(1, std::memory_order_relaxed);        // relaxed: as above
  }
}

bool Runner::has_failed_batch() const noexcept {
  // relaxed: only a reason to run(), which looks again
  return failed_here_ != nullptr || failed_.load(std::memory_order_relaxed) != nullptr;
}

void Runner::refuse_late(models::InferRequest& request, uint64_t now) noexcept {
  const auto us_since = [now](uint64_t then_ns) {
    return static_cast<unsigned long long>(then_ns == 0 || then_ns > now ? 0 : now - then_ns) /
           1000;
  };
  refuse(request,
         Status::error(Code::kDeadlineExceeded,
                       "request expired: %llu us after its first byte, %llu us of them in the "
                       "queue, model '%s' had not begun with it; raise its timeout or send less at "
                       "once",
                       us_since(request.times.received_ns), us_since(request.times.parsed_ns),
                       request.model->metadata().name.c_str()),
         now);
}

void Runner::refuse(models::InferRequest& request, const Status& status, uint64_t now) noexcept {
  leave_queue(request, now);
  request.status = status;
  models::InferRequest* const alone = &request;
  settle_share(slot_of(request), 0, {&alone, 1});  // it was charged for a run
  models::CompletionSink* sink = request.sink;
  finish(request, 0, counters_);
  note_sink(sink, now);
}

// Hands the request over; it is gone afterwards. Its sink is still to be told.
void Runner::finish(models::InferRequest& request, uint64_t run_rows,
                    telemetry::CounterWriter& counters) noexcept {
  if (request.status.ok() && request.encode != nullptr) request.encode(request);
  if (options_.load.outstanding != nullptr) {
    // relaxed: a hint for the choice of a worker
    options_.load.outstanding->fetch_sub(1, std::memory_order_relaxed);
  }
  if (request.is_heavy && options_.load.heavy != nullptr) {
    options_.load.heavy->fetch_sub(1, std::memory_order_relaxed);  // relaxed: as above
  }
  if (options_.load.admission != nullptr) options_.load.admission->take_back(request);
  record(request, run_rows, counters);
  request.complete(request);
}

// On a backend's thread, which has no block of its own.
void Runner::finish_elsewhere(models::InferRequest& request, uint64_t run_rows) noexcept {
  CounterWriter counters(*options_.counters, CounterWriter::Stay::kMoment);
  finish(request, run_rows, counters);
}

void Runner::note_service(ModelSlot& slot, uint64_t ns, uint64_t used_ns,
                          std::span<models::InferRequest* const> requests) noexcept {
  slot.service_ns = ns;
  slot.model->service_time().add(ns / requests.size());
  slot.model->run_costs().add(input_bytes_of(*requests.front()), used_ns / requests.size());
  counters_.add(slot.model->index(), "cpu_ns", used_ns);
  settle_share(slot, used_ns, requests);
}

void Runner::settle_share(const ModelSlot& slot, uint64_t ns,
                          std::span<models::InferRequest* const> requests) const noexcept {
  if (options_.load.shares == nullptr) return;
  uint64_t charged_ns = 0;
  for (models::InferRequest* request : requests) {
    charged_ns += std::exchange(request->share_ns, 0);
  }
  options_.load.shares->settle(slot.model->index(), ns, charged_ns);
}

// Of a call that a backend's thread completes, which others may overlap: its share of the device.
void Runner::note_pending_service(ModelSlot& slot,
                                  std::span<models::InferRequest* const> requests) noexcept {
  // relaxed: an estimate; this call itself is still counted
  const uint64_t together = slot.in_flight.load(std::memory_order_relaxed);
  const uint64_t ns =
      (now_ns() - requests.front()->times.dequeued_ns) / std::max<uint64_t>(together, 1);
  slot.model->service_time().add(ns / requests.size());
  slot.model->run_costs().add(input_bytes_of(*requests.front()), ns / requests.size());
  settle_share(slot, ns, requests);
}

void Runner::note_sink(models::CompletionSink* sink, uint64_t now) noexcept {
  if (sink == nullptr) return;
  if (waiting_sink_count_ == 0) waiting_sinks_since_ns_ = now;
  const auto known = std::span(waiting_sinks_).first(waiting_sink_count_);
  if (std::ranges::find(known, sink) == known.end()) waiting_sinks_[waiting_sink_count_++] = sink;
  if (waiting_sink_count_ == waiting_sinks_.size()) wake_sinks();
}

void Runner::wake_sinks() noexcept {
  for (size_t i = 0; i < waiting_sink_count_; ++i) waiting_sinks_[i]->wake();
  waiting_sink_count_ = 0;
}

void Runner::on_done(models::InferRequest& request) noexcept {
  Runner& runner = *static_cast<Runner*>(request.in_engine);
  ModelSlot& slot = runner.slot_of(request);
  // relaxed: ordered before the release on in_flight, at which is_done() looks first
  runner.callbacks_inside_.fetch_add(1, std::memory_order_relaxed);
  models::CompletionSink* sink = request.sink;
  models::InferRequest* const alone = &request;
  runner.note_pending_service(slot, {&alone, 1});
  runner.finish_elsewhere(request, run_rows_of(request));
  if (sink != nullptr) sink->wake();
  runner.leave_callback(&slot);
}

void Runner::on_batch_done(models::InferRequest& packed) noexcept {
  Runner& runner = *static_cast<Runner*>(packed.in_engine);
  ModelSlot& slot = runner.slot_of(packed);
  BatchPlace& place = *static_cast<BatchPlace*>(packed.owner);
  // relaxed: as in on_done()
  runner.callbacks_inside_.fetch_add(1, std::memory_order_relaxed);
  if (!packed.status.ok()) {
    // relaxed: only a guess, which the exchange below corrects
    place.next_failed = runner.failed_.load(std::memory_order_relaxed);
    // sync[runner.batch_failed]: release; the backend is through with the batch. relaxed: as above
    while (!runner.failed_.compare_exchange_weak(
        place.next_failed, &place, std::memory_order_release, std::memory_order_relaxed)) {
    }
    runner.leave_callback(nullptr);
    return;
  }
  place.batch.split();
  const auto members = place.batch.members();
  runner.note_pending_service(slot, members);
  uint64_t run_rows = place.batch.rows();
  for (models::InferRequest* member : members) {
    models::CompletionSink* sink = member->sink;
    runner.finish_elsewhere(*member, std::exchange(run_rows, 0));
    if (sink != nullptr) sink->wake();
  }
  (void)place.batch.reset();
  // sync[runner.batch_free]: release; the batch may be packed again
  place.is_taken.store(false, std::memory_order_release);
  runner.leave_callback(&slot);
}

// `slot`: that has room again; nullptr: run() is to make it.
void Runner::leave_callback(ModelSlot* slot) noexcept {
  RoomListener* listener = options_.listener;
  // sync[runner.in_flight]: release; the backend, complete() and the batch are through with it
  if (slot != nullptr) {
    slot->in_flight.fetch_sub(1, std::memory_order_release);
    // sync[runner.pending]: release; is_done() sees this thread's earlier writes
    pending_.fetch_sub(1, std::memory_order_release);
  }
  // sync[runner.completions]: release; the room above is seen by the thread that sees this count
  completions_.fetch_add(1, std::memory_order_release);
  completions_.notify_all();  // wait_for_completion(); without a waiter a load
  if (listener != nullptr) listener->on_room();
  // sync[runner.callbacks]: release; the last touch, the runner may go once this is seen
  callbacks_inside_.fetch_sub(1, std::memory_order_release);
}

uint64_t Runner::next_ns() const noexcept {
  uint64_t next = hold_until_ns_;
  for (const models::InferRequest* request : waiting_) next = std::min(next, request->deadline_ns);
  return next;
}

bool Runner::has_news() const noexcept {
  // sync[runner.completions]: acquire; as in run()
  return completions_.load(std::memory_order_acquire) != completions_seen_ &&
         (!waiting_.empty() || has_failed_batch());
}

uint64_t Runner::completions() const noexcept {
  return completions_.load(std::memory_order_acquire);  // sync[runner.completions]: as in run()
}

void Runner::wait_for_completion(uint64_t seen) const noexcept {
  completions_.wait(seen, std::memory_order_acquire);  // sync[runner.completions]: as in run()
}

bool Runner::is_done() const noexcept {
  if (!waiting_.empty()) return false;
  // sync[runner.pending]: acquire; pairs with leave_callback
  if (pending_.load(std::memory_order_acquire) != 0) return false;
  // sync[runner.callbacks]: acquire; a few instructions of another thread, which has woken already:
  // a thread that slept on it would not be woken again
  while (callbacks_inside_.load(std::memory_order_acquire) != 0) ::sched_yield();
  return true;
}

}  // namespace lumen::engine
