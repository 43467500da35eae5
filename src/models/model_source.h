// A model's source with its graph, for all that looks at its operators.
// Threads: control plane. Memory: a mapping of the file. Errors: the graph says why it can't be
// read.
#pragma once

#include <lumen/models/backend.h>
#include <lumen/onnx/model_file.h>

#include <memory>

namespace lumen::models {

[[nodiscard]] inline ModelSource with_graph(ModelSource source) {
  if (source.file.extension() == ".onnx") {
    source.graph = std::make_shared<const onnx::ModelFile>(source.file);
  }
  return source;
}

}  // namespace lumen::models
