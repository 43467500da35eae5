// Why a request of a sequence does not run, in words.
// Threads: any. Memory: as a Status. Errors: none.
#pragma once

#include <lumen/base/result.h>
#include <lumen/service/call.h>

#include "sequences/ask.h"

namespace lumen::sequences {

// `answer`: not kItsTurn.
[[nodiscard]] Status refusal(Answer answer, const service::Call& call) noexcept;

}  // namespace lumen::sequences
