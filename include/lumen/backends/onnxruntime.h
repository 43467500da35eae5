// The backend "onnxruntime": runs ONNX files on the CPU with all operators of ONNX, those of
// ai.onnx.ml (trees, linear models, encoders) among them. And a backend for each of its execution
// providers, which runs ONNX files on a device. In builds with LUMEN_WITH_ONNXRUNTIME.
// Threads, memory, errors: as engine::Backend says.
#pragma once

#include <lumen/models/backend.h>
#include <lumen/models/execution_provider.h>

#include <memory>

namespace lumen::backends {

// Never fails to exist; the library is loaded by the first load().
[[nodiscard]] std::unique_ptr<models::Backend> make_onnxruntime();

// Its name is the provider's. Never fails to exist: availability() says whether the machine has it.
[[nodiscard]] std::unique_ptr<models::Backend> make_device_backend(
    const models::ExecutionProvider& provider);

}  // namespace lumen::backends
