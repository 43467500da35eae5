// The classes of a model's outputs, from its config.json and its labels.txt.
// Threads: any. Memory: the heap, at load. Errors: the place, and the number got and wanted.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/backend.h>
#include <lumen/models/metadata.h>

#include <vector>

namespace lumen::models {

// Those of config.json go to the output of that name; the lines of labels.txt to each output whose
// last axis is as long as they are many, or is free and the model's only output. Both replace
// classes that the model's file names.
[[nodiscard]] Status add_labels(const ModelSource& source, std::vector<TensorSpec>& outputs);

}  // namespace lumen::models
