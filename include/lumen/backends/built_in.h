// The backends that this build has.
// Threads: control plane. Memory: the heap. Errors: none; a build may have no backend at all.
#pragma once

#include <lumen/models/backend.h>
#include <lumen/models/execution_provider.h>

#include <memory>
#include <span>
#include <vector>

namespace lumen::backends {

// Those that compute on the CPU. The first serves the models whose config.json names no backend.
[[nodiscard]] std::vector<std::unique_ptr<models::Backend>> built_in();

// Those, and behind them one for each execution provider: `providers`, and cuda and tensorrt where
// those are not among them.
[[nodiscard]] std::vector<std::unique_ptr<models::Backend>> with_devices(
    std::span<const models::ExecutionProvider> providers);

}  // namespace lumen::backends
