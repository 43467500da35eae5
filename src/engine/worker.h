// Worker: one thread with an instance of every model. Takes requests from the engine's queue, runs
// them, completes them; parks when there is nothing to do.
//
//   submit ──► MpmcQueue ──► Worker::run ──► Instance::start ──kDone────► complete()
//                               │  ▲                        └─kPending─► (backend's thread) done()
//                            deferred                                        │
//                               └──────────── room again ◄───────────────────┘
//
// Threads: start/join by the control plane; run() is the worker's own; on_pending_done() by any
// thread of a backend. Memory: all of it before start() returns; run() allocates nothing.
// Says no: a request's failure in its status; a model without instance in its reason.
#pragma once

#include <lumen/base/doorbell.h>
#include <lumen/base/idle_strategy.h>
#include <lumen/base/result.h>
#include <lumen/engine/infer_request.h>
#include <lumen/engine/model_repository.h>
#include <lumen/queue/mpmc_queue.h>
#include <lumen/telemetry/counters.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lumen::engine {

// What submitters and workers share.
struct WorkQueue {
  explicit WorkQueue(size_t capacity) : requests(capacity) {}

  MpmcQueue<InferRequest*> requests;
  Doorbell doorbell;
  // Bit 63: closed. Below: submitters that are between their look at the bit and their push.
  // A worker leaves only when the bit is set, the count is 0 and the queue is empty, in that order.
  static constexpr uint64_t kClosed = uint64_t{1} << 63;
  alignas(kFalseSharingRange) std::atomic<uint64_t> gate{0};
};

struct WorkerOptions {
  uint32_t index = 0;
  std::optional<uint32_t> cpu;  // pinned to it, if given
  bool may_spin = false;
  telemetry::ServerCounters* server_counters = nullptr;
};

class Worker {
 public:
  Worker(const WorkerOptions& options, WorkQueue& queue) noexcept
      : options_(options), queue_(queue), idle_(options.may_spin ? kMaxSpinNs : 0) {}
  ~Worker() { join(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Starts the thread, which pins itself, makes its instances (so that their memory is first touched
  // where it is used) and then waits for go(). Returns when they are made. A model whose instance
  // fails is marked unavailable.
  [[nodiscard]] Status prepare(ModelRepository& repository);
  void go() noexcept;
  // Needs a closed queue. Runs what is still in it, go() or not. Idempotent.
  void join() noexcept;

 private:
  // How long a worker polls before it parks, at most and only while requests come that close. A
  // parked thread takes about 20 us to run after its wake-up on a virtual machine and 2 on bare
  // metal, and the wake costs the ringer 6; beyond twice that polling costs more than it saves.
  static constexpr uint64_t kMaxSpinNs = 50'000;
  // Requests of a model whose instance is full, kept so that those of other models pass them. Few:
  // what waits here no longer counts for the queue's bound.
  static constexpr size_t kMaxDeferred = 16;

  struct Slot {
    Model* model = nullptr;
    std::unique_ptr<Instance> instance;
    uint32_t max_in_flight = 1;
    uint64_t service_ns = 0;  // of its last request
    // Written by the worker (up) and backends' threads (down).
    std::atomic<uint32_t> in_flight{0};
  };

  enum Phase : uint32_t { kPreparing, kPrepared, kRunning };

  void main(ModelRepository& repository) noexcept;
  [[nodiscard]] Status set_up(ModelRepository& repository);
  void run() noexcept;
  // True if something was done: the shape of all loops here.
  [[nodiscard]] bool do_work() noexcept;
  [[nodiscard]] bool retry_deferred() noexcept;
  void take(InferRequest& request) noexcept;
  void handle(InferRequest& request, Slot& slot) noexcept;
  // Runs after a request of this thread was completed: tells its sink now, or with the next ones.
  void note_completion(CompletionSink* sink, uint64_t now) noexcept;
  void flush_completions() noexcept;
  void wait_for_work() noexcept;
  [[nodiscard]] bool may_leave() noexcept;
  [[nodiscard]] bool has_room(const Slot& slot) const noexcept;
  [[nodiscard]] bool has_deferred_of(const Model* model) const noexcept;
  [[nodiscard]] uint64_t earliest_deadline_ns() const noexcept;
  static void on_pending_done(InferRequest& request) noexcept;

  const WorkerOptions options_;
  WorkQueue& queue_;
  std::vector<std::unique_ptr<Slot>> slots_;  // by Model::index()
  std::array<InferRequest*, kMaxDeferred> deferred_{};
  size_t deferred_count_ = 0;
  // Sinks that have completions they were not told of, since when.
  std::array<CompletionSink*, limits::kMaxIoThreads> unflushed_{};
  size_t unflushed_count_ = 0;
  uint64_t unflushed_since_ns_ = 0;
  IdleStrategy idle_;

  uint64_t completions_seen_ = 0;
  Status set_up_status_;

  // Written by backends' threads: completions that run() has not looked at yet, and how many
  // threads are inside on_pending_done (what they touch last).
  alignas(kFalseSharingRange) std::atomic<uint64_t> completions_{0};
  std::atomic<uint32_t> callbacks_inside_{0};

  alignas(kFalseSharingRange) std::atomic<uint32_t> phase_{kPreparing};
  std::thread thread_;
};

}  // namespace lumen::engine
