// The queue types spsc and naive, and which class serves which type. See the header.
#include "engine/work_source.h"

#include "engine/model_queue_source.h"

#include <lumen/base/cache_line.h>
#include <lumen/base/check.h>
#include <lumen/base/doorbell.h>
#include <lumen/queue/mutex_queue.h>
#include <lumen/queue/spsc_queue.h>

#include <utility>

namespace lumen::engine {
namespace {

// park() of a worker with a doorbell of its own.
models::InferRequest* sleep_on(Doorbell& doorbell, WorkSource& source, uint32_t worker,
                               bool may_take, uint64_t deadline_ns, WakeReason& reason) noexcept {
  const Doorbell::Ticket ticket = doorbell.prepare();
  models::InferRequest* request = may_take ? source.try_take(worker) : nullptr;
  if (request != nullptr || reason.has_reason()) {
    doorbell.cancel();
  } else {
    (void)doorbell.wait(ticket, deadline_ns);
  }
  return request;
}

// A ring for each pair of I/O thread and worker, a doorbell for each worker. No line is written by
// two submitters but the count of a worker's requests.
class SpscSource final : public WorkSource {
 public:
  SpscSource(size_t capacity, uint32_t submitters, uint32_t workers)
      : submitters_(submitters), workers_(workers), ends_(workers) {
    for (uint32_t i = 0; i < submitters * workers; ++i) {
      rings_.push_back(std::make_unique<Ring>(capacity));
    }
  }

  bool push(uint32_t submitter, models::InferRequest& request) noexcept override {
    uint32_t least = 0;
    uint32_t least_count = UINT32_MAX;
    for (uint32_t worker = 0; worker < workers_; ++worker) {
      // relaxed: a hint; a count that is a moment old picks a worker that was the least busy then
      const uint32_t count = ends_[worker].load.requests.load(std::memory_order_relaxed);
      if (count < least_count) {
        least = worker;
        least_count = count;
      }
    }
    Ring& ring = ring_of(submitter, least);
    std::atomic<uint32_t>& load = ends_[least].load.requests;
    // relaxed: as above. Before the push: the worker may be done with it when the push returns.
    load.fetch_add(1, std::memory_order_relaxed);
    if (!ring.producer.try_push(&request)) {
      load.fetch_sub(1, std::memory_order_relaxed);  // relaxed: as above
      return false;
    }
    ring.pushed = true;
    return true;
  }
  void wake_workers(uint32_t submitter) noexcept override {
    for (uint32_t worker = 0; worker < workers_; ++worker) {
      if (std::exchange(ring_of(submitter, worker).pushed, false)) ends_[worker].doorbell.wake();
    }
  }
  models::InferRequest* try_take(uint32_t worker) noexcept override {
    models::InferRequest* request = nullptr;
    // Round robin from where the last one came from, so that no I/O thread waits behind another.
    uint32_t& next = ends_[worker].next_submitter;
    for (uint32_t i = 0; i < submitters_; ++i) {
      Ring& ring = ring_of(next, worker);
      next = next + 1 == submitters_ ? 0 : next + 1;
      if (ring.consumer.try_pop(request)) return request;
    }
    return nullptr;
  }
  bool was_empty(uint32_t worker) const noexcept override {
    for (uint32_t submitter = 0; submitter < submitters_; ++submitter) {
      if (!rings_[submitter * workers_ + worker]->queue.was_empty()) return false;
    }
    return true;
  }
  models::InferRequest* park(uint32_t worker, bool may_take, uint64_t deadline_ns,
                             WakeReason& reason) noexcept override {
    return sleep_on(ends_[worker].doorbell, *this, worker, may_take, deadline_ns, reason);
  }
  void wake(uint32_t worker) noexcept override { ends_[worker].doorbell.wake(); }
  std::atomic<uint32_t>* outstanding(uint32_t worker) noexcept override {
    return &ends_[worker].load.requests;
  }

 private:
  struct Ring {
    explicit Ring(size_t capacity)
        : queue(capacity), producer(queue.producer()), consumer(queue.consumer()) {}
    SpscQueue<models::InferRequest*> queue;
    SpscQueue<models::InferRequest*>::Producer producer;
    SpscQueue<models::InferRequest*>::Consumer consumer;
    alignas(kFalseSharingRange) bool pushed = false;  // the submitter's
  };
  struct WorkerEnd {
    Outstanding load;
    Doorbell doorbell;
    alignas(kFalseSharingRange) uint32_t next_submitter = 0;  // the worker's
  };

  Ring& ring_of(uint32_t submitter, uint32_t worker) noexcept {
    return *rings_[submitter * workers_ + worker];
  }

  const uint32_t submitters_;
  const uint32_t workers_;
  std::vector<std::unique_ptr<Ring>> rings_;  // [submitter][worker]
  std::vector<WorkerEnd> ends_;
};

// A queue with a mutex and condition variables, as a first version of any server has it: the others
// are compared with it.
class NaiveSource final : public WorkSource {
 public:
  NaiveSource(size_t capacity, uint32_t workers) : requests_(capacity), doorbells_(workers) {}

  bool push(uint32_t, models::InferRequest& request) noexcept override {
    return requests_.try_push(&request);
  }
  void wake_workers(uint32_t) noexcept override {}
  models::InferRequest* try_take(uint32_t) noexcept override {
    models::InferRequest* request = nullptr;
    return requests_.try_pop(request) ? request : nullptr;
  }
  bool was_empty(uint32_t) const noexcept override { return requests_.was_empty(); }
  models::InferRequest* park(uint32_t worker, bool may_take, uint64_t deadline_ns,
                             WakeReason& reason) noexcept override {
    // Not in the queue, where a push would wake it instead of a worker that may take the request.
    if (!may_take) return sleep_on(doorbells_[worker], *this, worker, false, deadline_ns, reason);
    const uint64_t interrupts = requests_.interrupts();
    if (reason.has_reason()) return nullptr;
    models::InferRequest* request = nullptr;
    (void)requests_.pop_unless_interrupted(request, interrupts, deadline_ns);
    return request;
  }
  void wake(uint32_t worker) noexcept override {
    doorbells_[worker].wake();
    requests_.interrupt();
  }

 private:
  MutexQueue<models::InferRequest*> requests_;
  std::vector<Doorbell> doorbells_;
};

}  // namespace

std::unique_ptr<WorkSource> make_work_source(const EngineConfig& config, uint32_t submitters) {
  switch (config.queue_type) {
    case models::QueueType::kMpmc:
    case models::QueueType::kBatched:
    case models::QueueType::kAuto:
      return std::make_unique<ModelQueueSource<>>(config.policy, config.queue_capacity, submitters,
                                                  config.thread_count);
    case models::QueueType::kSpsc:
      return std::make_unique<SpscSource>(spsc_ring_capacity(config), submitters,
                                          config.thread_count);
    case models::QueueType::kNaive:
      return std::make_unique<NaiveSource>(config.queue_capacity, config.thread_count);
    case models::QueueType::kInline: break;
  }
  LUMEN_CHECK(!"a queue type without workers has no source");
  return nullptr;
}

}  // namespace lumen::engine
