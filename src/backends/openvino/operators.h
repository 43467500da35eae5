// The operators that OpenVINO computes as ONNX defines them: the table that tools/operator_table.py
// makes.
// Threads: constants. Memory: none. Errors: none.
#pragma once

#include <lumen/models/operator_table.h>

namespace lumen::backends::openvino {

extern const models::OperatorTable kOperators;

}  // namespace lumen::backends::openvino
