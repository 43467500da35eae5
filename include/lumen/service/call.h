// Call: one inference request between a transport and the engine, in the words of neither's protocol.
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
// Errors: a Status from what refuses; once it is back the call's own is infer.status.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/result.h>
#include <lumen/engine/infer_request.h>
#include <lumen/service/places.h>

#include <cstdint>
#include <optional>

namespace lumen::service {

struct Call;
class Dispatcher;
class Step;

// What its transport does with a call.
class CallOwner {
 public:
  // The outputs are there, infer.status is ok: makes the reply. At most once, before on_returned(); by
  // whoever has run the model. Must not wait or allocate but from the call's memory.
  virtual void encode(Call& call) noexcept = 0;
  // The call is to be given to Dispatcher::take_back(), on its own thread. Called on any; must not wait or
  // allocate. Once, and once more for each time that a step lets the call go on.
  virtual void on_returned(Call& call) noexcept = 0;

 protected:
  ~CallOwner() = default;
};

struct Call {
  // --- from its transport, before the call is bound ---------------------------------------------
  CallOwner* owner = nullptr;
  Allocator* scratch = nullptr;       // of this call alone, until its transport is through with it
  Allocator* reply_memory = nullptr;  // outputs are placed here; may be `scratch`

  // --- from the binder --------------------------------------------------------------------------
  Places to_receive{};  // of the inputs that are still to come, in the order they were named
  engine::InferRequest infer{};

  // What its client asked for, from the request's first byte on, as all that the server measures.
  // nullopt: nothing, the default counts; 0: no deadline, as the Open Inference Protocol has it.
  // Needs infer.times.received_ns.
  void set_timeout(std::optional<uint64_t> timeout_us) noexcept;

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

// Once all bytes are in their places: checks what only they can tell (lengths inside BYTES tensors).
[[nodiscard]] Status inputs_arrived(const Call& call) noexcept;

}  // namespace lumen::service
