// ModelFile: an ONNX file, mapped and read as a graph.
// Threads: one. Memory: a mapping of the file while it lives, and the graph on the heap. Errors:
// model() says of a file that can't be read as a graph why.
#pragma once

#include <lumen/base/mapped_file.h>
#include <lumen/onnx/graph.h>

#include <filesystem>

namespace lumen::onnx {

class ModelFile {
 public:
  explicit ModelFile(const std::filesystem::path& path)
      : mapped_(path), model_(read_model(mapped_.bytes())) {}
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  [[nodiscard]] const Result<Model>& model() const noexcept { return model_; }

 private:
  MappedFile mapped_;  // the graph's tensors are views of it
  Result<Model> model_;
};

}  // namespace lumen::onnx
