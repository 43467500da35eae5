// Adds the cost of a finished request to its model's counters.
// Threads: the writer's. Memory: none. Errors: a failed request is not counted here, serve counts
// it.
#pragma once

#include <lumen/models/infer_request.h>
#include <lumen/telemetry/counters.h>

namespace lumen::engine {

// `run_rows`: of the call of the model that this request stands for; 0: it stands for none. Of a
// batch one member has the rows of all.
void record(const models::InferRequest& request, uint64_t run_rows,
            telemetry::CounterWriter& counters) noexcept;

// Of a request that runs alone: its rows, and 1 where it has no axis of them.
[[nodiscard]] inline uint64_t run_rows_of(const models::InferRequest& request) noexcept {
  const uint32_t rows = models::rows_of(request);
  return rows == 0 ? 1 : rows;
}

}  // namespace lumen::engine
