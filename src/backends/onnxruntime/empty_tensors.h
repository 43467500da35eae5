// Whether ONNX Runtime may be given tensors of no elements for a model: by such a tensor Attention,
// convolutions, recurrent networks and STFT end the process or never end. An operator is safe if
// each case of ONNX's suite of it was run with each axis at 0 and survived
// (tools/empty_tensors.py); of a graph that could not be read, and of another version of the
// library, none is.
// Threads: any. Memory: none. Errors: none.
#pragma once

#include <lumen/onnx/graph.h>

#include <string_view>

namespace lumen::backends::onnxruntime {

[[nodiscard]] bool takes_empty_tensors(const onnx::Graph& graph, std::string_view version) noexcept;

}  // namespace lumen::backends::onnxruntime
