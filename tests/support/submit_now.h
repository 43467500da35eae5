// submit_now: hands a request to the engine as an I/O thread does in a turn that brought only this
// one.
// Threads: the submitter's. Memory: none. Errors: the outcome of submit().
#pragma once

#include <lumen/engine/engine.h>

namespace lumen::engine {

inline SubmitOutcome submit_now(Engine& engine, models::InferRequest& request,
                                uint32_t submitter = 0) {
  const SubmitOutcome outcome = engine.submitter(submitter).submit(request);
  engine.submitter(submitter).end_turn();
  return outcome;
}

}  // namespace lumen::engine
