// Call: one inference request between a transport and the engine, in the words of neither's protocol.
//
//   transport                        service                     engine
//   names the inputs ──────────────► Binder: checks, places
//   delivers their bytes ──────────► to_receive
//   they are there ────────────────► inputs_arrived()
//                                    submit() ─────────────────► queue, worker, model
//   CallOwner::encode() ◄──────────────────────────────────────── outputs are there
//   CallOwner::on_done() ◄─────────────────────────────────────── exactly once
//
// A transport may have many calls of one client at work; they complete in any order.
// Threads: its transport's; between submit() and on_done() the engine's, but for cancel().
// Memory: none of its own: lists, copies and places from `scratch`, outputs from `reply_memory`.
// Errors: a Status from what refuses; after on_done() the call's own is infer.status.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/result.h>
#include <lumen/engine/engine.h>
#include <lumen/engine/infer_request.h>
#include <lumen/service/places.h>

#include <cstdint>
#include <optional>

namespace lumen::service {

struct Call;

// What its transport does with a call.
class CallOwner {
 public:
  // The outputs are there, infer.status is ok: makes the reply. At most once, before on_done(); by whoever
  // has run the model. Must not wait or allocate but from the call's memory.
  virtual void encode(Call& call) noexcept = 0;
  // The engine is through with the call, whether it ran or not. Any thread; must not wait or allocate.
  virtual void on_done(Call& call) noexcept = 0;

 protected:
  ~CallOwner() = default;
};

struct Call {
  // --- from its transport, before the call is bound ---------------------------------------------
  CallOwner* owner = nullptr;
  Allocator* scratch = nullptr;       // of this call alone, until its transport is through with it
  Allocator* reply_memory = nullptr;  // outputs are placed here; may be `scratch`

  // --- from the binder --------------------------------------------------------------------------
  Places
      to_receive{};  // for the bytes of inputs that are still to come, in the order they were named
  engine::InferRequest infer{};

  // What its client asked for, from the request's first byte on, as all that the server measures.
  // nullopt: nothing, the default counts; 0: no deadline, as the Open Inference Protocol has it.
  // Needs infer.trace.received_ns.
  void set_timeout(std::optional<uint64_t> timeout_us) noexcept;

  // Its client does not want the reply any more: it is not run if it has not begun. on_done() comes all
  // the same, with Code::kCancelled where it was in time. The thread that has submitted it.
  void cancel() noexcept { infer.cancelled.set(); }
};

// Once all bytes are in their places: checks what only they can tell (lengths inside BYTES tensors).
[[nodiscard]] Status inputs_arrived(const Call& call) noexcept;

// Hands the call to the engine. Accepted: `sink` is told once on_done() was called, and the call is the
// engine's until then. Else it is the caller's still.
[[nodiscard]] engine::SubmitOutcome submit(Call& call, engine::Submitter& submitter,
                                           engine::CompletionSink& sink) noexcept;

}  // namespace lumen::service
