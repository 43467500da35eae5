// Adds a finished request to its model's counters.
// Threads: any. Memory: none. Says no: never; stages that did not happen are left out.
#pragma once

#include <lumen/engine/infer_request.h>

namespace lumen::engine {

// Successes only, as Triton counts; whole-request durations (success, fail) are the server's.
void record(const InferRequest& request) noexcept;

}  // namespace lumen::engine
