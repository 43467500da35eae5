// Dispatcher: the way of calls from one I/O thread through the steps to the engine and back.
//
//   submit() ─► Step::before() ─► ... ─► engine ─► Step::after(), the last first ─► CallOwner::on_returned()
//                  │ kDone: complete without the engine ──────────────────────────────────┤
//                  └ kParked: the step has it ── complete() ──────────────────────────────┘
//                                            └── resume(): by on_returned(), on with the next step
//
// Threads: a dispatcher belongs to one I/O thread, steps to all; complete() and resume() from any.
// Memory: none; its own data lies in the calls. Errors: submit() says false; a call's own in its
// status.
#pragma once

#include <lumen/models/infer_request.h>
#include <lumen/service/call.h>
#include <lumen/telemetry/counters.h>

#include <cstdint>
#include <span>

namespace lumen::engine {
class Submitter;
}

namespace lumen::service {

enum class StepOutcome : uint8_t {
  kNext,    // on with the next step, at last the engine
  kDone,    // infer.status and infer.outputs are set: the call needs no engine
  kParked,  // the step keeps it until it calls complete() or resume(), or is told to abandon() it
};

// Looks at calls between their binding and the engine: a cache, admission, one run for several.
class Step {
 public:
  // On the call's I/O thread; other threads run before() of other calls meanwhile.
  [[nodiscard]] virtual StepOutcome before(Call& call) noexcept = 0;
  // The call has passed this step and is complete, with outputs if its status is ok; its owner does
  // not know yet. By the thread that has completed it; must not wait.
  virtual void after(Call& call) noexcept { (void)call; }
  // A call that it has parked is cancelled or late. True: the step has forgotten it, and touches it
  // no more. False: it is just calling complete() or resume(). On the call's I/O thread.
  [[nodiscard]] virtual bool abandon(Call& call) noexcept {
    (void)call;
    return false;
  }

 protected:
  ~Step() = default;
};

// By a step that has parked the call, once. Any thread.
void complete(Call& call) noexcept;  // infer.status, and infer.outputs if that is ok, are set
void resume(Call& call) noexcept;    // on with the next step, on the call's own thread

class Dispatcher {
 public:
  // `steps` outlive all calls. `sink` is told of every call that returns. `counters`: of the I/O
  // thread.
  Dispatcher(std::span<Step* const> steps, engine::Submitter& submitter,
             models::CompletionSink& sink, telemetry::CounterWriter& counters) noexcept
      : steps_(steps), submitter_(submitter), sink_(sink), counters_(counters) {}
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // True: it is away until take_back() says true. False: it is the caller's still, and its
  // infer.status says why: kResourceExhausted, kOverBudget, or kUnavailable where the engine has
  // closed.
  [[nodiscard]] bool submit(Call& call) noexcept;
  // For each on_returned(), on the I/O thread. True: the call is complete. False: a step let it go
  // on, and it is away again.
  [[nodiscard]] bool take_back(Call& call) noexcept;
  // Its client does not want the reply any more. A call that is away returns all the same.
  void cancel(Call& call) noexcept;
  // Those that are parked and late; before next_ns() there are none.
  void expire(uint64_t now) noexcept;
  [[nodiscard]] uint64_t next_ns() const noexcept { return next_ns_; }

 private:
  friend void complete(Call& call) noexcept;
  friend void resume(Call& call) noexcept;

  [[nodiscard]] bool go_on(Call& call) noexcept;
  [[nodiscard]] bool to_engine(Call& call) noexcept;
  [[nodiscard]] bool begin_ensemble(Call& call) noexcept;
  [[nodiscard]] bool end_ensemble(Call& call) noexcept;
  void tell_steps(Call& call) noexcept;
  void count_cache(const Call& call) noexcept;
  void finish(Call& call) noexcept;
  void park(Call& call, Step& step) noexcept;
  void unpark(Call& call) noexcept;
  void abandon(Call& call, const Status& status) noexcept;

  const std::span<Step* const> steps_;
  engine::Submitter& submitter_;
  models::CompletionSink& sink_;
  telemetry::CounterWriter& counters_;
  Call* parked_ = nullptr;         // newest first
  uint64_t next_ns_ = UINT64_MAX;  // no parked call is late before
};

}  // namespace lumen::service
