// Worker: a pinned thread that takes requests from its source and runs them; parks when there is
// nothing to do.
// Threads: prepare/go/join by the control plane; run() is the worker's own; on_room() by any thread
// of a backend. Memory: all of it before prepare() returns; run() allocates nothing.
// Errors: pin_status(), which the worker can do without; else only through the status of each
// request.
#pragma once

#include "engine/runner.h"
#include "engine/work_source.h"

#include <lumen/base/idle_strategy.h>
#include <lumen/base/result.h>
#include <lumen/models/model_repository.h>
#include <lumen/telemetry/counters.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace lumen::engine {

struct WorkerOptions {
  uint32_t index = 0;  // of its engine's workers
  uint32_t place = 0;  // of those that take from its source
  EngineConfig config;
  std::optional<uint32_t> cpu;   // pinned to it, if given
  std::vector<uint32_t> cpus{};  // else it stays on these; empty: it runs wherever the process may
  bool may_spin = false;
  uint64_t time_slice_ns = 0;  // that it asks the kernel for; 0: none
  // Requests that another worker has, which may want this one's CPU: while there are any this one
  // does not poll.
  const std::atomic<uint32_t>* may_want_cpu = nullptr;
  RunnerLoad load;
  RegionOptions regions{};
  telemetry::Counters* counters = nullptr;  // never nullptr
};

class Worker final : private WakeReason, private RoomListener {
 public:
  // `closed`: set once no submitter pushes any more.
  Worker(const WorkerOptions& options, WorkSource& source, const std::atomic<bool>& closed);
  ~Worker() { join(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Of the models that it will run, for prepare().
  [[nodiscard]] Runner& runner() noexcept { return runner_; }
  [[nodiscard]] const Runner& runner() const noexcept { return runner_; }
  // Starts the thread, which pins itself and then waits for go(). After the runner's set_up().
  void prepare();
  // After prepare(): whether it sits on the CPU that it was given.
  [[nodiscard]] const Status& pin_status() const noexcept { return pin_status_; }
  void go() noexcept;
  // Needs `closed` and a wake(). Runs the requests that are still in the source. Idempotent.
  void join() noexcept;

 private:
  // How long a worker polls before it parks, at most, and only while that gains more than it costs
  // (SpinBudget) and a CPU is to spare. A parked thread takes about 20 us to run after its wake-up
  // on a virtual machine, often more, and the wake costs the waker 6. At 50 us a worker parked
  // after every request of one client over TCP, whose requests come 60 to 100 us apart: each then
  // waited 29 us for it.
  static constexpr uint64_t kMaxSpinNs = IdleStrategy::kMaxSpinNs;
  // Requests of a model whose instance is full, kept so that those of other models pass them. Few:
  // requests that wait here no longer count for the queue's bound.
  static constexpr size_t kMaxDeferred = 16;

  enum Phase : uint32_t { kPreparing, kPrepared, kRunning };

  [[nodiscard]] static RunnerOptions runner_options(const WorkerOptions& options,
                                                    RoomListener& listener);
  void main() noexcept;
  void run() noexcept;
  // True if something was done: the shape of all loops here.
  [[nodiscard]] bool do_work() noexcept;
  void take(models::InferRequest& request) noexcept;
  [[nodiscard]] bool poll() noexcept;
  [[nodiscard]] bool may_share_its_cpu() const noexcept;
  void wait_for_work() noexcept;
  [[nodiscard]] bool may_leave() noexcept;
  // Closed is a reason though something seems to be left: it may be another's that is about to take
  // it, whose last look nobody would tell this one of (tests/spin/model_queues.pml, BROKEN_CLOSE).
  [[nodiscard]] bool has_reason() noexcept override {
    return runner_.has_news() || (is_closed() && runner_.is_done());
  }
  [[nodiscard]] bool is_closed() const noexcept {
    // sync[engine.closed]: acquire; every push of a submitter that got in is visible from here on
    return closed_.load(std::memory_order_acquire);
  }
  void on_room() noexcept override { source_.wake(options_.place); }

  const WorkerOptions options_;
  WorkSource& source_;
  const std::atomic<bool>& closed_;
  Runner runner_;
  IdleStrategy idle_;
  bool has_taken_ = false;                            // a request that run() has not seen yet
  bool others_may_join_ = false;                      // the one taken last, in one call
  const models::InferRequest* taken_last_ = nullptr;  // not run yet where others may join it
  Status pin_status_;
  alignas(kFalseSharingRange) std::atomic<uint32_t> phase_{kPreparing};
  std::thread thread_;
};

}  // namespace lumen::engine
