// Whether the rows of a model (the places of each tensor's first axis) are independent of each
// other, by its graph. Requests may be run in one call only then: a trial with made-up rows can't
// tell that rows never meet. Method: each tensor's axis of rows is followed from the inputs to the
// outputs, through operators that are known to work row by row along it (row_rules.cc). With any
// other operator there is no proof.
// Threads: any. Memory: the heap. Errors: none.
#pragma once

#include <lumen/onnx/graph.h>

#include <string>

namespace lumen::models {

// Empty: each output's first axis has the rows, and row i follows from row i of the inputs alone.
// Otherwise why that can't be said: "ReduceMax 'm' of axis 0, which has the rows".
[[nodiscard]] std::string why_rows_may_meet(const onnx::Model& model);

}  // namespace lumen::models
