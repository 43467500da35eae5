// Engine: request → queue → worker → model → completion. Never says HTTP.
// Threads: create/drain on the control plane; submit from any I/O thread.
// Memory: everything at create(); submit() and the workers allocate nothing of their own.
// Says no: SubmitOutcome when the queue is full or closed; a request's own failure in its status.
#pragma once

#include <lumen/base/limits.h>
#include <lumen/base/result.h>
#include <lumen/engine/backend.h>
#include <lumen/engine/infer_request.h>
#include <lumen/engine/model_repository.h>
#include <lumen/telemetry/counters.h>

#include <cstdint>
#include <memory>

namespace lumen::engine {

struct EngineOptions {
  uint32_t worker_count = 1;  // pinned to the CPUs the process may use, from the last one down
  size_t queue_capacity = limits::kDefaultQueueCapacity;  // power of two
  bool pin_workers = true;
  telemetry::ServerCounters* server_counters = nullptr;  // worker_parks are counted here, if given
};

enum class SubmitOutcome : uint8_t { kAccepted, kFull, kClosed };
enum class Wake : uint8_t {
  kNow,    // a parked worker is woken by this submit
  kLater,  // the caller submits more, and calls wake_workers() before it waits for anything
};

class Engine {
 public:
  // Makes one instance of each ready model for each worker, warms each up and starts the workers.
  // A model whose instance can't be made becomes UNAVAILABLE with the reason; the rest serve.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> create(const EngineOptions& options,
                                                              ModelRepository& repository);
  virtual ~Engine() = default;  // drains

  // On kAccepted the engine owns the request until it calls request.complete.
  [[nodiscard]] virtual SubmitOutcome submit(InferRequest& request,
                                             Wake wake = Wake::kNow) noexcept = 0;
  // Wakes up to `count` parked workers, for as many requests submitted with Wake::kLater.
  virtual void wake_workers(uint32_t count) noexcept = 0;
  // Closes the queue, completes all that was accepted, joins the workers. Idempotent.
  virtual void drain() noexcept = 0;
};

}  // namespace lumen::engine
