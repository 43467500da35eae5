// The states with which sequences begin: files in a model's folder "initial_state", as Triton has
// them.
// Threads: any. Memory: the heap. Errors: a Status with the path.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/sequence_options.h>

#include "models/scan_files.h"

#include <filesystem>
#include <string>

namespace lumen::models {

// Reads the files that the options name. `directory`: of the model, `path`. Appends the files'
// stamp.
[[nodiscard]] Status read_initial_states(int directory, const std::filesystem::path& path,
                                         const Bounds& bounds, SequenceOptions& options,
                                         std::string& stamp);

}  // namespace lumen::models
