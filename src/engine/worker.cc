// The worker's loop and its start-up. Threads and memory: see worker.h.
// Says no: Status of set-up; afterwards only through the status of each request.
#include "engine/worker.h"

#include <lumen/base/clock.h>
#include <lumen/base/cpu.h>

#include "engine/record.h"

#include <sched.h>

#include <algorithm>
#include <span>
#include <string>

namespace lumen::engine {
namespace {

// How long a completion may wait for those that follow it, so that one wake-up tells of all: about
// what a wake-up costs a sleeper anyway. Only where the model is so fast that several fit.
constexpr uint64_t kCoalesceNs = 20'000;

// Hands the request over; it is gone afterwards. Its sink is still to be flushed.
void finish_quietly(InferRequest& request) noexcept {
  record(request);
  request.complete(request);
}

void finish(InferRequest& request) noexcept {
  CompletionSink* sink = request.sink;
  finish_quietly(request);
  if (sink != nullptr) sink->flush();
}

bool is_late(const InferRequest& request, uint64_t now) noexcept {
  return now > request.deadline_ns;
}

void finish_late(InferRequest& request, uint64_t now) noexcept {
  const uint64_t from = request.trace.parsed_ns != 0 ? request.trace.parsed_ns : now;
  request.status = Status::error(
      Code::kDeadlineExceeded,
      "request expired after %llu us in the queue, before model '%s' ran; raise its timeout or "
      "send less at once",
      static_cast<unsigned long long>((now - std::min(from, now)) / 1000),
      request.model->metadata().name.c_str());
  finish(request);
}

}  // namespace

Status Worker::prepare(ModelRepository& repository) {
  thread_ = std::thread([this, &repository] { main(repository); });
  // sync[worker.phase]: acquire; the instances and set_up_status_ are there
  phase_.wait(kPreparing, std::memory_order_acquire);
  return set_up_status_;
}

void Worker::go() noexcept {
  // sync[worker.phase]: release; all workers are set up, models' states are final
  phase_.store(kRunning, std::memory_order_release);
  phase_.notify_all();
}

void Worker::join() noexcept {
  if (!thread_.joinable()) return;
  go();
  thread_.join();
}

void Worker::main(ModelRepository& repository) noexcept {
  name_this_thread("lumen-w" + std::to_string(options_.index));
  set_up_status_ = set_up(repository);
  // sync[worker.phase]: release; pairs with prepare()
  phase_.store(kPrepared, std::memory_order_release);
  phase_.notify_all();
  // sync[worker.phase]: acquire; pairs with go()
  phase_.wait(kPrepared, std::memory_order_acquire);
  run();
}

Status Worker::set_up(ModelRepository& repository) {
  IdleStrategy::enrol_this_thread();
  if (options_.cpu) LUMEN_RETURN_IF_ERROR(pin_this_thread(*options_.cpu));
  for (const auto& model : repository.models()) {
    auto slot = std::make_unique<Slot>();
    slot->model = model.get();
    if (model->state() == ModelState::kReady) {
      Result<std::unique_ptr<Instance>> instance = model->loaded()->create_instance();
      if (instance.ok()) {
        slot->instance = std::move(*instance);
        slot->max_in_flight = std::max<uint32_t>(1, slot->instance->max_in_flight());
      } else {
        model->mark_unavailable(std::string(instance.status().message()));
      }
    }
    LUMEN_CHECK(slots_.size() == model->index());
    slots_.push_back(std::move(slot));
  }
  // Once more: a backend's library may have moved the thread while it compiled.
  return options_.cpu ? pin_this_thread(*options_.cpu) : Status();
}

void Worker::run() noexcept {
  for (;;) {
    if (do_work()) continue;
    flush_completions();
    if (may_leave()) return;
    wait_for_work();
  }
}

bool Worker::do_work() noexcept {
  const bool progressed = retry_deferred();
  if (deferred_count_ == kMaxDeferred) return progressed;
  InferRequest* request = nullptr;
  if (!queue_.requests.try_pop(request)) return progressed;
  take(*request);
  return true;
}

bool Worker::retry_deferred() noexcept {
  if (deferred_count_ == 0) return false;
  // sync[worker.completions]: acquire; the room that a completion made is seen below
  completions_seen_ = completions_.load(std::memory_order_acquire);
  const uint64_t now = now_ns();
  size_t kept = 0;
  const size_t count = deferred_count_;
  for (size_t i = 0; i < count; ++i) {
    InferRequest& request = *deferred_[i];
    Slot& slot = *slots_[request.model->index()];
    if (is_late(request, now)) {
      finish_late(request, now);
    } else if (has_room(slot)) {
      handle(request, slot);
    } else {
      deferred_[kept++] = &request;
    }
  }
  deferred_count_ = kept;
  return kept < count;
}

void Worker::take(InferRequest& request) noexcept {
  idle_.found();
  request.worker = options_.index;
  Slot& slot = *slots_[request.model->index()];
  if (has_room(slot) && !has_deferred_of(slot.model)) {
    handle(request, slot);
  } else {
    deferred_[deferred_count_++] = &request;
  }
}

void Worker::handle(InferRequest& request, Slot& slot) noexcept {
  const uint64_t now = now_ns();
  request.trace.dequeued_ns = now;
  if (is_late(request, now)) return finish_late(request, now);
  if (slot.instance == nullptr) {
    request.status =
        Status::error(Code::kUnavailable, "model '%s' is unavailable: %s",
                      slot.model->metadata().name.c_str(), slot.model->reason().c_str());
    return finish(request);
  }
  // What was completed before must not wait for a slow model's turn.
  if (unflushed_count_ > 0 && now + slot.service_ns > unflushed_since_ns_ + kCoalesceNs) {
    flush_completions();
  }
  request.in_engine = this;
  // Counted before start(): a completion may come before it returns.
  slot.in_flight.fetch_add(1, std::memory_order_relaxed);  // relaxed: this thread's own count up
  if (slot.instance->start(request, &Worker::on_pending_done) == StartOutcome::kPending) return;
  slot.in_flight.fetch_sub(1, std::memory_order_relaxed);  // relaxed: nothing is handed over
  CompletionSink* sink = request.sink;
  finish_quietly(request);
  const uint64_t completed = now_ns();
  slot.service_ns = completed - now;
  if (sink != nullptr) note_completion(sink, completed);
}

void Worker::note_completion(CompletionSink* sink, uint64_t now) noexcept {
  if (unflushed_count_ == 0) unflushed_since_ns_ = now;
  const auto known = std::span(unflushed_).first(unflushed_count_);
  if (std::ranges::find(known, sink) == known.end()) unflushed_[unflushed_count_++] = sink;
  if (queue_.requests.was_empty() || unflushed_count_ == unflushed_.size()) flush_completions();
}

void Worker::flush_completions() noexcept {
  for (size_t i = 0; i < unflushed_count_; ++i) unflushed_[i]->flush();
  unflushed_count_ = 0;
}

void Worker::on_pending_done(InferRequest& request) noexcept {
  Worker& worker = *static_cast<Worker*>(request.in_engine);
  Slot& slot = *worker.slots_[request.model->index()];
  WorkQueue& queue = worker.queue_;
  // relaxed: ordered before the release on in_flight, which is what may_leave() looks at first
  worker.callbacks_inside_.fetch_add(1, std::memory_order_relaxed);
  finish(request);
  // sync[worker.in_flight]: release; the backend and complete() are through with this request
  slot.in_flight.fetch_sub(1, std::memory_order_release);
  // sync[worker.completions]: release; the room above is seen by who sees this count
  worker.completions_.fetch_add(1, std::memory_order_release);
  // All: the doorbell is shared, and it is this worker that has to look.
  queue.doorbell.ring_all();
  // sync[worker.callbacks]: release; the last touch, the engine may go once this is seen
  worker.callbacks_inside_.fetch_sub(1, std::memory_order_release);
}

void Worker::wait_for_work() noexcept {
  // Requests kept back wait for a completion, which comes by the doorbell alone.
  while (deferred_count_ == 0 && idle_.idle() == IdleStrategy::Step::kSpin) {
    if (!queue_.requests.was_empty()) return;
  }
  const Doorbell::Ticket ticket = queue_.doorbell.prepare();
  InferRequest* request = nullptr;
  const bool popped = deferred_count_ < kMaxDeferred && queue_.requests.try_pop(request);
  // sync[worker.completions]: acquire; as in retry_deferred()
  const bool completed =
      deferred_count_ > 0 && completions_.load(std::memory_order_acquire) != completions_seen_;
  if (popped || completed || may_leave()) {
    queue_.doorbell.cancel();
    if (popped) take(*request);
    return;
  }
  if (options_.server_counters != nullptr) options_.server_counters->worker_parks.add();
  idle_.parking();
  (void)queue_.doorbell.wait(ticket, earliest_deadline_ns());
  idle_.unparked();
}

bool Worker::may_leave() noexcept {
  // sync[engine.gate]: acquire; every push of a submitter that got in is visible from here on
  if (queue_.gate.load(std::memory_order_acquire) != WorkQueue::kClosed) return false;
  if (deferred_count_ > 0 || !queue_.requests.was_empty()) return false;
  for (const auto& slot : slots_) {
    // sync[worker.in_flight]: acquire; pairs with on_pending_done
    if (slot->in_flight.load(std::memory_order_acquire) != 0) return false;
  }
  // sync[worker.callbacks]: acquire; a few instructions of another thread, so no parking
  while (callbacks_inside_.load(std::memory_order_acquire) != 0) ::sched_yield();
  return true;
}

bool Worker::has_room(const Slot& slot) const noexcept {
  // relaxed: only this thread counts up, so room once seen stays
  return slot.in_flight.load(std::memory_order_relaxed) < slot.max_in_flight;
}

bool Worker::has_deferred_of(const Model* model) const noexcept {
  for (size_t i = 0; i < deferred_count_; ++i) {
    if (deferred_[i]->model == model) return true;
  }
  return false;
}

uint64_t Worker::earliest_deadline_ns() const noexcept {
  uint64_t earliest = UINT64_MAX;
  for (size_t i = 0; i < deferred_count_; ++i) {
    earliest = std::min(earliest, deferred_[i]->deadline_ns);
  }
  return earliest;
}

}  // namespace lumen::engine
