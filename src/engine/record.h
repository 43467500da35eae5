// Adds the cost of a finished request to its model's counters.
// Threads: the writer's. Memory: none. Errors: a failed request is not counted here, serve counts
// it.
#pragma once

#include <lumen/models/infer_request.h>
#include <lumen/telemetry/counters.h>

namespace lumen::engine {

// `executions`: calls of the model that this request stands for; of a batch, one member says 1.
void record(const models::InferRequest& request, uint64_t executions,
            telemetry::CounterWriter& counters) noexcept;

}  // namespace lumen::engine
