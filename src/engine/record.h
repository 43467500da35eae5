// Adds what a finished request cost to its model's counters.
// Threads: any. Memory: none. Says no: a failed request is not counted here, serve counts it.
#pragma once

#include <lumen/engine/infer_request.h>

namespace lumen::engine {

// `executions`: calls of the model that this request stands for; of a batch, one member says 1.
void record(const InferRequest& request, uint64_t executions) noexcept;

}  // namespace lumen::engine
