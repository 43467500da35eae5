// How ensembles find the models of their steps, for the repository.
// Threads: the control plane. Memory: the heap. Errors: none.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/ensemble.h>

#include <memory>
#include <span>

namespace lumen::models {

// Every version of every model is served or refused by a place of its own, and all are taken.
[[nodiscard]] Status no_index_is_free();

}  // namespace lumen::models
