// Engine over one MPMC queue: submit() pushes, workers pop. Threads, memory: see engine.h.
// Says no: SubmitOutcome; create() by Status with the option, what was got and wanted.
#include <lumen/engine/engine.h>

#include <lumen/base/cpu.h>

#include "engine/worker.h"

#include <sched.h>

#include <bit>
#include <utility>
#include <vector>

namespace lumen::engine {
namespace {

class QueueEngine final : public Engine {
 public:
  explicit QueueEngine(size_t capacity) : queue_(capacity) {}
  ~QueueEngine() override { drain(); }

  Status start(const EngineOptions& options, ModelRepository& repository) {
    const std::vector<uint32_t> cpus = worker_cpus(options.worker_count);
    // A worker that polls on a CPU that others need takes from them what it hopes to save.
    const bool may_spin = usable_cpu_count() > options.worker_count;
    for (uint32_t i = 0; i < options.worker_count; ++i) {
      const WorkerOptions worker{.index = i,
                                 .cpu = options.pin_workers ? std::optional(cpus[i]) : std::nullopt,
                                 .may_spin = may_spin,
                                 .server_counters = options.server_counters};
      workers_.push_back(std::make_unique<Worker>(worker, queue_));
      // One after the other: backends load and compile on one thread at a time.
      LUMEN_RETURN_IF_ERROR(workers_.back()->prepare(repository));
    }
    for (const auto& worker : workers_) worker->go();
    return {};
  }

  SubmitOutcome submit(InferRequest& request, Wake wake) noexcept override {
    // relaxed: only the atomicity counts; either drain() sees this submitter or it sees the bit
    const uint64_t gate = queue_.gate.fetch_add(1, std::memory_order_relaxed);
    SubmitOutcome outcome = SubmitOutcome::kClosed;
    if ((gate & WorkQueue::kClosed) == 0) {
      const bool pushed = queue_.requests.try_push(&request);
      if (pushed && wake == Wake::kNow) queue_.doorbell.ring();
      outcome = pushed ? SubmitOutcome::kAccepted : SubmitOutcome::kFull;
    }
    // sync[engine.gate]: release; the push above is visible to who sees the gate without us
    queue_.gate.fetch_sub(1, std::memory_order_release);
    return outcome;
  }

  void wake_workers(uint32_t count) noexcept override { queue_.doorbell.ring(count); }

  void drain() noexcept override {
    // relaxed: the loop below is what orders
    queue_.gate.fetch_or(WorkQueue::kClosed, std::memory_order_relaxed);
    // sync[engine.gate]: acquire; submitters leave within nanoseconds, unless preempted
    while (queue_.gate.load(std::memory_order_acquire) != WorkQueue::kClosed) ::sched_yield();
    queue_.doorbell.ring_all();
    for (const auto& worker : workers_) worker->join();
  }

 private:
  WorkQueue queue_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options,
                                               ModelRepository& repository) {
  if (options.worker_count < 1 || options.worker_count > limits::kMaxWorkers) {
    return Status::error(Code::kInvalidArgument, "worker_count: got %u, wanted 1 to %zu",
                         options.worker_count, limits::kMaxWorkers);
  }
  if (options.queue_capacity < 2 || !std::has_single_bit(options.queue_capacity)) {
    return Status::error(Code::kInvalidArgument,
                         "queue_capacity: got %zu, wanted a power of two from 2 on",
                         options.queue_capacity);
  }
  auto engine = std::make_unique<QueueEngine>(options.queue_capacity);
  LUMEN_RETURN_IF_ERROR(engine->start(options, repository));
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace lumen::engine
