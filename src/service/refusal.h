// The reason that a client is told where the engine does not take its request.
// Threads: any. Memory: none. Errors: none.
#pragma once

#include <lumen/engine/engine.h>

namespace lumen::service {

[[nodiscard]] Status refusal(engine::SubmitOutcome outcome, const models::Model& model) noexcept;

}  // namespace lumen::service
