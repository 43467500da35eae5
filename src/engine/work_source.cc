// The queue types spsc and naive, and which class serves which type. See the header.
#include "engine/work_source.h"

#include "engine/model_queue_source.h"

#include <lumen/base/cache_line.h>
#include <lumen/base/check.h>
#include <lumen/base/doorbell.h>
#include <lumen/queue/spsc_queue.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

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

// Mutex and condition variable, as a first version of any server has it: the others are compared
// with it.
class NaiveSource final : public WorkSource {
 public:
  explicit NaiveSource(size_t capacity) : requests_(capacity) {}

  bool push(uint32_t, models::InferRequest& request) noexcept override {
    bool some_may_not_take = false;
    {
      const std::lock_guard lock(mutex_);
      if (tail_ - head_ == requests_.size()) return false;
      requests_[tail_++ & (requests_.size() - 1)] = &request;
      some_may_not_take = barred_ > 0;
    }
    // One is enough, unless that may be a worker that can take nothing now and would sleep on.
    if (some_may_not_take) {
      changed_.notify_all();
    } else {
      changed_.notify_one();
    }
    return true;
  }
  void wake_workers(uint32_t) noexcept override {}
  models::InferRequest* try_take(uint32_t) noexcept override {
    const std::lock_guard lock(mutex_);
    return take();
  }
  bool was_empty(uint32_t) const noexcept override {
    const std::lock_guard lock(mutex_);
    return head_ == tail_;
  }
  models::InferRequest* park(uint32_t, bool may_take, uint64_t deadline_ns,
                             WakeReason& reason) noexcept override {
    const uint64_t wakes = wakes_so_far();
    if (reason.has_reason()) return nullptr;
    std::unique_lock lock(mutex_);
    const auto awake = [&] { return wakes_ != wakes || (may_take && head_ != tail_); };
    if (!may_take) ++barred_;
    if (deadline_ns > kLatestNs) {
      changed_.wait(lock, awake);
    } else {
      const std::chrono::nanoseconds since_boot(static_cast<int64_t>(deadline_ns));
      changed_.wait_until(lock, std::chrono::steady_clock::time_point(since_boot), awake);
    }
    if (!may_take) --barred_;
    return may_take ? take() : nullptr;
  }
  void wake(uint32_t) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      ++wakes_;
    }
    changed_.notify_all();
  }

 private:
  // The largest time of steady_clock: its count of nanoseconds is signed, and a larger one would
  // lie in the past.
  static constexpr uint64_t kLatestNs = INT64_MAX;

  models::InferRequest* take() noexcept {
    return head_ == tail_ ? nullptr : requests_[head_++ & (requests_.size() - 1)];
  }
  uint64_t wakes_so_far() noexcept {
    const std::lock_guard lock(mutex_);
    return wakes_;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<models::InferRequest*> requests_;
  size_t head_ = 0;
  size_t tail_ = 0;
  uint32_t barred_ = 0;  // sleepers that may not take
  uint64_t wakes_ = 0;   // wake() of anyone: it is naive
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
    case models::QueueType::kNaive: return std::make_unique<NaiveSource>(config.queue_capacity);
    case models::QueueType::kInline: break;
  }
  LUMEN_CHECK(!"a queue type without workers has no source");
  return nullptr;
}

}  // namespace lumen::engine
