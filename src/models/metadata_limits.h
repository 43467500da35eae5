// The bounds of a model's tensors: their number, and names that messages can carry.
// Threads: any. Memory: none. Errors: the place, and the number got and wanted.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/metadata.h>

namespace lumen::models {

[[nodiscard]] Status check_metadata(const ModelMetadata& metadata) noexcept;

}  // namespace lumen::models
