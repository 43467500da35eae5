// measure: one combination of queue and allocator: starts a server with it, sends the requests,
// stops it, and reads its output. Threads: the main thread; makes load threads.
// Memory: the heap. Errors: Status; kNotFound when the server does not have the model.
#pragma once

#include <lumen/client/matrix_plan.h>

#include <lumen/base/result.h>

#include <atomic>
#include <string>

namespace lumen::client {

// Where its server writes: OUT/micro/MODEL_QUEUE_ALLOCATOR.csv.
[[nodiscard]] std::filesystem::path telemetry_path(const MatrixPlan& plan,
                                                   const std::string& queue_type,
                                                   const std::string& allocator_type);

// `round` counts from 1; the first replaces an older telemetry file, the others append to it.
[[nodiscard]] Result<MatrixValues> measure(const MatrixPlan& plan, const std::string& queue_type,
                                           const std::string& allocator_type, uint32_t round,
                                           const std::atomic<bool>& stop);

}  // namespace lumen::client
