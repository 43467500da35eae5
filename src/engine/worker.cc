// The worker's loop and its start-up. Threads, memory and errors: see worker.h.
#include "engine/worker.h"

#include <lumen/base/cpu.h>

#include <string>
#include <utility>

namespace lumen::engine {

RunnerOptions Worker::runner_options(const WorkerOptions& options, RoomListener& listener) {
  // A worker that packs takes more than one request before it runs one, and only those that it runs
  // together.
  const models::QueueType type = options.config.queue_type;
  const bool gathers = type == models::QueueType::kBatched || type == models::QueueType::kAuto;
  return {.index = options.index,
          .config = options.config,
          .capacity =
              gathers ? std::max<size_t>(options.config.batch_size, kMaxDeferred) : kMaxDeferred,
          .load = options.load,
          .regions = options.regions,
          .listener = &listener,
          .counters = options.counters};
}

Worker::Worker(const WorkerOptions& options, WorkSource& source, const std::atomic<bool>& closed)
    : options_(options),
      source_(source),
      closed_(closed),
      runner_(runner_options(options, *this)),
      idle_(options.may_spin ? kMaxSpinNs : 0) {}

void Worker::prepare() {
  thread_ = std::thread([this] { main(); });
  // sync[worker.phase]: acquire; pin_status_ is there
  phase_.wait(kPreparing, std::memory_order_acquire);
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

void Worker::main() noexcept {
  name_this_thread("lumen-w" + std::to_string(options_.index));
  IdleStrategy::enrol_this_thread();
  // Where the kernel refuses, the worker runs unpinned: a cpuset that has shrunk is no reason to
  // stop.
  if (options_.cpu) {
    pin_status_ = pin_this_thread(*options_.cpu);
  } else if (!options_.cpus.empty()) {
    pin_status_ = restrict_this_thread(options_.cpus);
  }
  if (options_.time_slice_ns != 0) ask_for_time_slice(options_.time_slice_ns);
  // sync[worker.phase]: release; pairs with prepare()
  phase_.store(kPrepared, std::memory_order_release);
  phase_.notify_all();
  // sync[worker.phase]: acquire; pairs with go()
  phase_.wait(kPrepared, std::memory_order_acquire);
  runner_.counters().is_thread(telemetry::WriterRole::kWorker, options_.index);
  idle_.observe(runner_.counters().thread_times());
  run();
}

void Worker::run() noexcept {
  for (;;) {
    if (do_work()) continue;
    runner_.wake_sinks();
    if (may_leave()) return;
    wait_for_work();
  }
}

bool Worker::do_work() noexcept {
  // A request that a worker has taken is lost to the others: so it takes one, and more only to run
  // them in one call.
  bool progressed = std::exchange(has_taken_, false);
  bool takes_more = !progressed || others_may_join_;
  while (takes_more && runner_.has_space()) {
    models::InferRequest* request = others_may_join_
                                        ? source_.try_take_like(options_.place, *taken_last_)
                                        : source_.try_take(options_.place);
    if (request == nullptr) break;
    take(*request);
    takes_more = others_may_join_;
    progressed = true;
  }
  has_taken_ = false;
  others_may_join_ = false;
  if (runner_.run() > 0) {
    progressed = true;
    if (source_.was_empty(options_.place)) runner_.wake_sinks();
  }
  return progressed;
}

void Worker::take(models::InferRequest& request) noexcept {
  idle_.found();
  has_taken_ = true;
  taken_last_ = &request;
  others_may_join_ = runner_.add(request);
}

bool Worker::may_share_its_cpu() const noexcept {
  // relaxed: a hint
  return options_.may_want_cpu != nullptr &&
         options_.may_want_cpu->load(std::memory_order_relaxed) > 0;
}

// Polls for a moment, where that is worth it. True: something has come.
bool Worker::poll() noexcept {
  // Requests kept back wait for a completion or a time, which come by the doorbell alone.
  if (runner_.has_waiting() || may_share_its_cpu()) return false;
  if (!source_.begin_search(options_.place)) return false;
  bool has_seen_some = false;
  while (!has_seen_some && idle_.idle() != IdleStrategy::Step::kPark) {
    has_seen_some = !source_.was_empty(options_.place);
  }
  models::InferRequest* request = source_.end_search(options_.place);
  if (request != nullptr) take(*request);
  return has_seen_some || request != nullptr;
}

void Worker::wait_for_work() noexcept {
  if (poll()) return;
  runner_.counters().add("worker_parks");
  idle_.parking();
  models::InferRequest* request =
      source_.park(options_.place, runner_.has_space(), runner_.next_ns(), *this);
  idle_.unparked();
  if (request != nullptr) take(*request);
}

bool Worker::may_leave() noexcept {
  return is_closed() && source_.was_empty(options_.place) && runner_.is_done();
}

}  // namespace lumen::engine
