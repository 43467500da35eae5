// The answer to a request whose run the library refused or failed.
// Threads: any. Memory: the status. Errors: these are errors.
#pragma once

#include <lumen/base/result.h>

#include "backends/onnxruntime/instance.h"

namespace lumen::backends::onnxruntime {

// Types and ranks of the inputs are right. Where axes are free, or the library says that an
// argument is wrong, it is their sizes or numbers that an operation refuses: the client's error.
// A device fails in ways of its own, which name no argument.
[[nodiscard]] Status refusal(const SharedSession& shared, const InferRequest& request,
                             OrtStatus& error) noexcept;

}  // namespace lumen::backends::onnxruntime
