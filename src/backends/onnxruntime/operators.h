// The operators that ONNX Runtime is not given, since a request can end the process by them. It is the reference, so
// all others are as ONNX defines them.
// Threads: constants. Memory: none. Errors: none.
#pragma once

#include <lumen/engine/operator_table.h>

namespace lumen::backends::onnxruntime {

// The least whole number divided by -1 is beyond its type, and the processor ends the process: SIGFPE, as
// tests/integration/test_operator_choice.py shows. Smaller types are divided as INT32; a divisor of 0 is refused.
inline constexpr engine::OperatorException kNotGiven[] = {
    {"", "Div", "INT32 INT64", 0x2,
     "the least number divided by -1 ends the process; divide by a constant or FP64", -1},
    {"", "Mod", "INT32 INT64", 0x2,
     "the least number divided by -1 ends the process; divide by a constant or FP64", -1},
};
inline constexpr engine::OperatorTable kOperators = {
    .made_with = {}, .version = "onnxruntime, 1", .rules = {}, .exceptions = kNotGiven};

}  // namespace lumen::backends::onnxruntime
