// A refusal that both parts of ModelRepository make.
// Threads: the control plane. Memory: the heap. Errors: none.
#pragma once

#include <lumen/base/result.h>

namespace lumen::models {

// Every version of every model is served or refused by a place of its own, and all are taken.
[[nodiscard]] Status no_index_is_free();

}  // namespace lumen::models
