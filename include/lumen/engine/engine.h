// Engine: request → queue → worker → model → completion. Never says HTTP.
// Threads: create, reconfigure and drain on the control plane; a Submitter belongs to one I/O
// thread.
// Memory: everything at create() and reconfigure(); submitters and workers allocate nothing.
// Errors: SubmitOutcome when the queue is full or closed; a request's own failure in its status.
//
//   Submitter(s) ──► Scheduler: mpmc | spsc | naive | batched ──► Worker(s) ─┐
//        └────────── Scheduler: inline, the submitter's own thread runs ─────┴► Runner ──► complete()
//
// With `auto` a scheduler has both ways, and chooses one for each request.
//
// The configuration is swapped by building a second scheduler beside the first, pointing the
// submitters at it and letting the first finish its accepted requests: no request is lost or waits
// for the change, at the price of both sets of instances in memory while it lasts.
#pragma once

#include <lumen/base/cpu_pinning.h>
#include <lumen/base/limits.h>
#include <lumen/base/result.h>
#include <lumen/engine/engine_config.h>
#include <lumen/memory/request_memory.h>
#include <lumen/models/backend.h>
#include <lumen/models/infer_request.h>
#include <lumen/models/model_repository.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::engine {

struct EngineOptions {
  EngineConfig config{};
  // Threads that bring requests, each with a Submitter of its own. Their numbers are the engine's
  // alone: the server gives the first to its I/O threads, and the next to other sources of
  // requests.
  uint32_t submitter_count = 1;
  // The threads that run models: workers, or with `inline` the I/O threads.
  PinThreads pin_threads{};
  // Shared by the schedulers of this engine, so that a change keeps its CPUs.
  std::shared_ptr<CpuClaims> cpu_claims = std::make_shared<CpuClaims>();
  // Told, on the control plane, of faults that do not stop the engine: a thread that could not be
  // pinned.
  std::function<void(std::string_view)> warn = [](std::string_view) {};
  uint32_t cpu_count = 0;   // of the process; 0: those it may use
  RegionOptions regions{};  // of the regions in which batches are packed
};

enum class SubmitOutcome : uint8_t {
  kAccepted,
  kFull,
  kOverBudget,  // it would wait longer than the latency budget
  kClosed,
};

// A thread's way into the engine: an I/O thread's, or any other's that brings requests. One thread
// uses it.
class Submitter {
 public:
  // On kAccepted the engine owns the request until it calls request.complete. Nobody is woken for
  // it before end_turn() or wake_if_late(): with many clients that is one wake-up for all that a
  // turn brought.
  [[nodiscard]] virtual SubmitOutcome submit(models::InferRequest& request) noexcept = 0;
  // Whether the latency budget would let this request in now, by its model, times.received_ns and
  // outside_ns: asked before its body is read, so that a refusal costs no body. submit() asks
  // again.
  [[nodiscard]] virtual bool fits_budget(models::InferRequest& request) noexcept = 0;
  // A part of submit(), for a caller that keeps a request back before: if the request asked for no
  // deadline and not for none either, the configuration's default counts, from its first byte on.
  virtual void set_default_deadline(models::InferRequest& request) noexcept = 0;
  // Before the thread waits for anything: wakes workers for submitted requests, or, with `inline`,
  // runs one call of a model here, of one request or of several packed. Returns how many requests
  // it completed or started; called again until that is 0, so that replies can leave in between.
  virtual size_t end_turn() noexcept = 0;
  // Whether requests wait for end_turn() to run their model here, which may take long.
  [[nodiscard]] virtual bool has_runs() noexcept = 0;
  // This thread makes no other call any more. Its submitted requests are completed without it.
  virtual void close() noexcept = 0;
  // Within a turn that handles many events, between two of them: wakes workers once the first
  // request of the turn has waited for longer than a wake-up costs; not where all threads share one
  // CPU. Runs nothing, with `inline` either.
  virtual void wake_if_late() noexcept = 0;
  // When end_turn() may have something to do by the clock alone (with `inline`, a deadline of a
  // request that waits for room); UINT64_MAX: never.
  [[nodiscard]] virtual uint64_t next_ns() noexcept = 0;
  // The lane that the next request to a model would take; asked once its head tells the model.
  struct Types {
    models::QueueType queue_type = models::QueueType::kMpmc;       // never kAuto
    models::QueueType configured_type = models::QueueType::kMpmc;  // the engine's
    models::AllocatorType allocator_type = models::AllocatorType::kLumenArena;
    bool has_latency_budget = false;  // else fits_budget() is always true
    bool has_room = true;             // a guess whether its queue would take it
  };
  [[nodiscard]] virtual Types types(const models::Model& model) noexcept = 0;
  // How many more requests may wait for this thread, if it runs models; SIZE_MAX if it runs none. A
  // caller that can leave requests where they are takes no more than that.
  [[nodiscard]] virtual size_t room() noexcept = 0;
  // A thread that must get this thread to call end_turn() soon (a change of configuration) wakes
  // it.
  virtual void set_wake_sink(models::CompletionSink& sink) noexcept = 0;

 protected:
  ~Submitter() = default;
};

class Engine {
 public:
  // Makes one instance of each ready model for each worker, warms each up and starts the workers.
  // A model whose instance can't be made becomes UNAVAILABLE with the reason; the rest serve.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> create(const EngineOptions& options,
                                                              models::ModelRepository& repository);
  virtual ~Engine() = default;  // closes the submitters and drains

  // `number` < submitter_count. One thread takes it, and keeps it.
  [[nodiscard]] virtual Submitter& submitter(uint32_t number) noexcept = 0;
  // Changes everything that `config` says while requests go on being served. Returns when all that
  // the configuration before had accepted is complete. On an error the one before stays.
  [[nodiscard]] virtual Status reconfigure(const EngineConfig& config) = 0;
  // Makes instances of one more model, for each worker, while the others go on: nothing is rebuilt
  // and no other model is compiled. Its requests may come once this has returned. On an error
  // nothing has changed. Blocks while a configuration changes, as that does while a model is added.
  [[nodiscard]] virtual Status add_model(models::Model& model) = 0;
  // Lets go of its instances. By then every request of it is complete, and no other can come.
  virtual void remove_model(const models::Model& model) noexcept = 0;
  // As it is now; thread_count 0 is replaced by its number.
  [[nodiscard]] virtual EngineConfig config() const = 0;
  // How a usual request of a ready model goes now, and why, in words with numbers. Control plane.
  struct UsualLane {
    models::QueueType queue_type{};
    std::string why;
    std::vector<uint32_t> workers;  // that alone run it; empty: all, as far as workers run it
  };
  [[nodiscard]] virtual UsualLane usual_lane_of(const models::Model& model) const = 0;
  // The instances of a model that there are now. Control plane.
  struct Instances {
    uint32_t count = 0;  // 1 where the backend gives all threads the same
    // That one took when it was made and first ran, the mean; 0: too little to be seen.
    uint64_t bytes = 0;
    // How many threads of each kind have one.
    uint32_t workers = 0;
    uint32_t express_workers = 0;  // with `auto`, for light requests
    uint32_t io_threads = 0;
  };
  [[nodiscard]] virtual Instances instances_of(const models::Model& model) const = 0;
  // Where its threads are pinned, in words: "pinned to CPU 1".
  [[nodiscard]] virtual std::string pinning() const = 0;
  // Refuses new requests, completes all that was accepted, joins the workers. With `inline` a
  // submitter's thread completes its own, so it goes on with its turns until then, or has closed
  // it. Idempotent.
  virtual void drain() noexcept = 0;
};

}  // namespace lumen::engine
