// The backend "openvino": runs ONNX files and OpenVINO's own IR on the CPU, each instance on its
// worker's own thread. In builds with LUMEN_WITH_OPENVINO.
// Threads, memory, errors: as engine::Backend says.
#pragma once

#include <lumen/models/backend.h>

#include <memory>

namespace lumen::backends {

// Never fails to exist; OpenVINO's plugin is loaded by the first load().
[[nodiscard]] std::unique_ptr<models::Backend> make_openvino();

}  // namespace lumen::backends
