// The backend "onnxruntime": runs ONNX files on the CPU with all operators of ONNX, those of
// ai.onnx.ml (trees, linear models, encoders) among them. In builds with LUMEN_WITH_ONNXRUNTIME.
// Threads, memory, errors: as engine::Backend says.
#pragma once

#include <lumen/models/backend.h>

#include <memory>

namespace lumen::backends {

// Never fails to exist; the library is loaded by the first load().
[[nodiscard]] std::unique_ptr<models::Backend> make_onnxruntime();

}  // namespace lumen::backends
