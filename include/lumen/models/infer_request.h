// InferRequest: one inference on its way through the engine. The I/O thread fills the first half,
// the worker the second; ownership passes with the pointer (queue in, complete() back).
// Threads: exactly one owner at a time. Memory: lives in its request's region. Errors: `status`.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/result.h>
#include <lumen/models/queue_type.h>
#include <lumen/tensor/tensor_view.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lumen::models {

class Model;
struct SequenceTurn;

// How long the parts of a run on a device took; 0: not measured, as most runs are not.
struct DeviceTimes {
  uint64_t copy_in_ns = 0;
  uint64_t run_ns = 0;
  uint64_t copy_out_ns = 0;
};

// When each stage of a request ended; CLOCK_MONOTONIC ns, 0 where the stage did not happen.
// One list of stages everywhere: metrics, statistics, bench, docs.
struct StageTimes {
  uint64_t accepted_ns = 0;       // the connection was; only with its first request
  uint64_t received_ns = 0;       // first byte of the request was read
  uint64_t parsed_ns = 0;         // head and tensors understood, admitted
  uint64_t dequeued_ns = 0;       // a worker took it
  uint64_t preprocessed_ns = 0;   // inputs bound or copied
  uint64_t inferred_ns = 0;       // the model has run
  uint64_t postprocessed_ns = 0;  // outputs are in the request's memory, reply encoded
  DeviceTimes device = {};
};

// Where completed requests go. complete() hands a request over; wake() wakes the thread that waits
// for it, and is called once for several completions that follow closely, because a wake-up costs
// its caller 6 us and, on a shared core, a switch to the woken thread and back.
class CompletionSink {
 public:
  virtual void wake() noexcept = 0;  // any thread; never waits

 protected:
  ~CompletionSink() = default;
};

// Set by one thread while another may look: a hint that orders nothing.
class CancelFlag {
 public:
  CancelFlag() noexcept = default;
  CancelFlag(const CancelFlag& other) noexcept : is_set_(other.was_set()) {}
  CancelFlag& operator=(const CancelFlag& other) noexcept {
    is_set_.store(other.was_set(), std::memory_order_relaxed);  // relaxed: nobody else looks then
    return *this;
  }
  // relaxed, both: if it comes too late the model runs for no client, and that is all
  void set() noexcept { is_set_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool was_set() const noexcept { return is_set_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> is_set_{false};
};

struct InferRequest {
  // --- filled in by the I/O thread -------------------------------------------------------------
  Model* model = nullptr;                    // kept alive by the model repository
  std::span<TensorView> inputs;              // one for each model input, in the model's order
  std::span<const uint16_t> outputs_wanted;  // indices into the model's outputs; empty: all
  Allocator* memory = nullptr;               // outputs are placed here
  Allocator* scratch = nullptr;              // the list of outputs is; nullptr: in `memory` too
  uint64_t deadline_ns = UINT64_MAX;         // not run after this; UINT64_MAX: none
  // Not run if it is set before the run; then `status` is kCancelled. By the thread that submitted
  // it.
  CancelFlag cancelled;
  bool waits_for_ever = false;  // asked for: it gets no default deadline either
  uint32_t priority = 0;  // 1 is the first to be run, larger numbers later; 0: as its model says
  // Called at most once, before complete(), when the outputs are there: the reply is encoded in it,
  // by the thread that ran the model, as part of the stage "postprocess". May be nullptr.
  void (*encode)(InferRequest&) noexcept = nullptr;
  // Called exactly once, by a worker or a backend's thread; must not wait or allocate.
  void (*complete)(InferRequest&) noexcept = nullptr;
  AllocatorType allocator_type{};  // of `memory`, for the telemetry
  void* owner = nullptr;           // for complete()
  CompletionSink* sink = nullptr;  // woken after complete(), if given
  // Of a model that keeps states: its sequence. nullptr: of none, its states are those of a
  // beginning and not kept.
  const SequenceTurn* turn = nullptr;
  // For the latency budget: time that it has lain in its socket, and that its way back will take.
  uint64_t outside_ns = 0;

  [[nodiscard]] Allocator& list_memory() const noexcept {
    return scratch != nullptr ? *scratch : *memory;
  }

  // --- filled in by the engine -----------------------------------------------------------------
  Status status;
  std::span<TensorView> outputs;  // as outputs_wanted (or all), in that order
  static constexpr uint32_t kNoWorker = UINT32_MAX;
  uint32_t worker = kNoWorker;  // that took it; with `inline` the submitter's number
  QueueType queue_type{};       // how it went, or would have gone
  QueueType configured_type{};  // of the engine's configuration, kAuto too
  uint64_t charged_ns = 0;      // the service time that admission reckoned with
  uint64_t expected_ns = 0;     // the expected time of its run, as measured; 0: not known yet
  uint64_t share_ns = 0;        // charged to its model's share; 0: it was not taken from a queue
  bool runs_alone = false;      // the batch that it was in failed
  bool is_heavy = false;        // counted as such (ExpressLane)
  bool is_express = false;      // for that lane's worker
  // Of a packed run: its requests, in the order of their rows.
  std::span<InferRequest* const> members{};
  void* in_engine = nullptr;  // the engine's own, while the request is pending
  StageTimes times;
};

// Rows of a request: the size of the first axis where that is free in the model, otherwise 1; 0
// where its inputs differ in it. Its inputs are checked.
[[nodiscard]] uint32_t rows_of(const InferRequest& request) noexcept;
[[nodiscard]] uint64_t input_bytes_of(const InferRequest& request) noexcept;

}  // namespace lumen::models
