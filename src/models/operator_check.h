// A model's operators against the table of a backend.
// Threads: control plane. Memory: the heap. Errors: of a file that can't be read as a graph no
// operator is known.
#pragma once

#include <lumen/models/backend.h>
#include <lumen/models/backends.h>

#include "models/operator_table.h"

#include <string>
#include <vector>

namespace lumen::models {

// None: of a backend without a table, and of a model that is not ONNX: the backend that reads it
// defines its operators.
[[nodiscard]] OperatorFindings compare_operators(const Backend& backend, const ModelSource& source);

// "the file has opset 30, newer than ...; export it with ...", of ONNX's own operators; empty: the
// backend reads it, or its newest is not known.
[[nodiscard]] std::string newer_opset(const Backend& backend, const ModelSource& source);

// "Range (a delta of 0 ends the process), Mod of INT64".
[[nodiscard]] std::string listed(const std::vector<std::string>& operators);

[[nodiscard]] std::string table_versions(const Backends& backends);

}  // namespace lumen::models
