// Call: one inference request between a transport and the engine, in the words of neither's
// protocol.
//
//   transport                        service                     engine
//   names the inputs ──────────────► Binder: checks, places
//   delivers their bytes ──────────► to_receive
//   they are there ────────────────► inputs_arrived()
//                                    Dispatcher: steps ────────► queue, worker, model
//   CallOwner::encode() ◄──────────────────────────────────────── outputs are there
//   CallOwner::on_returned() ◄─────────────────────────────────── exactly once
//
// A transport may have many calls of one client at work; they complete in any order.
// Threads: its I/O thread; while it is away (Dispatcher::submit() to take_back()) another's.
// Memory: none of its own: lists, copies and places from `scratch`, outputs from `reply_memory`.
// Errors: a Status from the function that refuses; once it is back the call's own is infer.status.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/result.h>
#include <lumen/base/traceparent.h>
#include <lumen/models/infer_request.h>
#include <lumen/service/places.h>
#include <lumen/telemetry/request_record.h>
#include <lumen/wire/oip.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace lumen::sequences {
struct Ask;
}

namespace lumen::service {

struct Call;
class Dispatcher;
class EnsembleRun;
class SharedRegion;
class Step;

// The transport's work with a call.
class CallOwner {
 public:
  // The outputs are there, infer.status is ok: makes the reply. At most once, before on_returned();
  // by the thread that has run the model. Must not wait or allocate but from the call's memory.
  virtual void encode(Call& call) noexcept = 0;
  // The call is to be given to Dispatcher::take_back(), on its own thread. Called on any; must not
  // wait or allocate. Once, and once more for each time that a step lets the call go on.
  virtual void on_returned(Call& call) noexcept = 0;

 protected:
  ~CallOwner() = default;
};

// A request's parameters for the response cache (module answers).
struct CacheWishes {
  bool is_off = false;  // neither looked up nor kept: it asked for that, or it is one of a sequence
  // An input lies where another process can change it: the bytes that were hashed need not be those
  // that run.
  bool has_shared_input = false;
  std::optional<uint64_t> ttl_ms{};  // 1 or more: takes and leaves no answer that is older
  std::span<wire::InferParameter> parameters{};  // any order
};

// A region of shared memory that a call uses; until Intake::leave().
struct HeldRegion {
  const SharedRegion* region = nullptr;
  HeldRegion* next = nullptr;
};

// One step of an ensemble that has run, for the records of its request.
struct StepRun {
  const models::Model* model = nullptr;
  models::StageTimes times{};
  Code code = Code::kOk;
  uint32_t rows = 0;
  uint32_t worker = models::InferRequest::kNoWorker;
  models::QueueType lane{};
};

using CacheOutcome = telemetry::CacheUse;
// Base of the data that a step keeps with a call, in the call's scratch memory.
struct StepData {};

// Keeps a call's outputs, if these lie in memory that is not the call's.
class OutputsKeeper {
 public:
  // On any thread; must not wait.
  virtual void let_go(void* kept) noexcept = 0;

 protected:
  ~OutputsKeeper() = default;
};

struct Call {
  // --- from its transport, before the call is bound ---------------------------------------------
  CallOwner* owner = nullptr;
  Allocator* scratch = nullptr;       // of this call alone, until its transport is through with it
  Allocator* reply_memory = nullptr;  // outputs are placed here; may be `scratch`
  bool reply_is_shared = false;       // another process can change the bytes in reply_memory
  CacheWishes cache_wishes{};
  wire::SequenceWishes sequence{};  // its text as long as `scratch`
  Traceparent traceparent{};        // the trace it belongs to, if its client has told one

  // --- from the binder --------------------------------------------------------------------------
  HeldRegion* regions = nullptr;  // from Intake::use_region()
  Places to_receive{};  // of the inputs that are still to come, in the order they were named
  models::InferRequest infer{};

  // The client's timeout, from the request's first byte on, as all that the server measures.
  // nullopt: none, the default counts; 0: no deadline, as the Open Inference Protocol has it. Needs
  // infer.times.received_ns.
  void set_timeout(std::optional<uint64_t> timeout_us) noexcept;

  // Why its answer is not to be sent although its model has run: a region of its inputs or outputs
  // was lost meanwhile.
  [[nodiscard]] Status check_regions() const noexcept;

  // The outputs are not used any more: by the transport, before the call's memory is anybody
  // else's. No call of its model's removal returns before.
  void let_go_of_outputs() noexcept {
    if (keeper != nullptr) std::exchange(keeper, nullptr)->let_go(kept);
  }

  // --- a step's that answers from memory of its own ----------------------------------------------
  OutputsKeeper* keeper = nullptr;
  void* kept = nullptr;
  CacheOutcome cache_outcome = CacheOutcome::kNone;
  bool was_not_kept = false;  // the cache had no room or no time for its answer
  uint64_t cache_ns = 0;      // the time of looking up and keeping
  uint32_t cache_node = 0;    // by which it waits for another's run
  StepData* cache_data = nullptr;

  // --- of a sequence, while it waits for its turn and has it ------------------------------------
  sequences::Ask* sequence_ask = nullptr;
  uint64_t sequence_number = 0;

  // --- of an ensemble, while its steps run ------------------------------------------------------
  EnsembleRun* ensemble = nullptr;
  std::span<const StepRun> step_runs{};  // once all have ended, in the order of their ends

  // --- the dispatcher's -------------------------------------------------------------------------
  struct Way {
    Dispatcher* dispatcher = nullptr;  // nullptr: it has not been submitted
    uint8_t passed = 0;                // steps that have let it pass
    bool goes_on = false;              // it returns to go on
    Step* parked_at = nullptr;
    Call* previous = nullptr;  // in the list of those that are parked
    Call* next = nullptr;
  } way{};
};

// Once all bytes are in their places: checks their content (lengths inside BYTES tensors).
[[nodiscard]] Status inputs_arrived(const Call& call) noexcept;

}  // namespace lumen::service
