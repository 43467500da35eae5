// The operators that ONNX Runtime is not given, since a request can end the process by them, and
// those that it computes otherwise. It is the reference: all others are as ONNX defines them.
// Threads: constants. Memory: none. Errors: none.
#pragma once

#include <lumen/models/operator_table.h>

namespace lumen::backends::onnxruntime {

// The least whole number divided by -1 is beyond its type, and the processor ends the process:
// SIGFPE, as tests/integration/test_operator_choice.py shows. Smaller types are divided as INT32; a
// divisor of 0 is refused.
inline constexpr models::OperatorException kNotGiven[] = {
    {"", "Div", "INT32 INT64", 0x2,
     "the least number divided by -1 ends the process; divide by a constant or FP64", -1},
    {"", "Mod", "INT32 INT64", 0x2,
     "the least number divided by -1 ends the process; divide by a constant or FP64", -1},
};
// The nodes that version 1.31 computes otherwise, of ONNX's backend suite and of variants of its
// cases. "auto" refuses these; named in config.json, it serves them with a warning.
inline constexpr models::OperatorDeviation kDeviations[] = {
    {"", "Attention", "qk_matmul_output_mode=2 is_causal=1", 0, "", 0x8, false,
     "in qk_matmul_output masked places hold the least FP32 number, not -infinity"},
    {"", "Attention", "qk_matmul_output_mode=2", 0x8, "BOOL", 0x8, false,
     "in qk_matmul_output masked places hold the least FP32 number, not -infinity"},
    {"", "MaxUnpool", "", 0x4, "", 0, false, "it reads indices as places of the output_shape"},
    {"", "Resize", "coordinate_transformation_mode=align_corners", 0x4, "", 0, true,
     "with align_corners and scales that are not whole it aligns to the rounded size; give sizes"},
};
inline constexpr models::OperatorTable kOperators = {.made_with = {},
                                                     .version = "onnxruntime, 2",
                                                     .rules = {},
                                                     .exceptions = kNotGiven,
                                                     .deviations = kDeviations,
                                                     .newest_opset = 26};  // of version 1.31

}  // namespace lumen::backends::onnxruntime
