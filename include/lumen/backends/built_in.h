// The backends that this build has.
// Threads: control plane. Memory: the heap. Errors: none; a build may have no backend at all.
#pragma once

#include <lumen/models/backend.h>

#include <memory>
#include <vector>

namespace lumen::backends {

// The first serves the models whose config.json names no backend.
[[nodiscard]] std::vector<std::unique_ptr<models::Backend>> built_in();

}  // namespace lumen::backends
