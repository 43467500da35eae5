// What a model is, as a client sees it. Built at load, immutable afterwards.
// Threads: any may read. Memory: the heap, at load (control plane). Says no: never.
#pragma once

#include <lumen/tensor/element_type.h>
#include <lumen/tensor/shape.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lumen::engine {

struct TensorSpec {
  std::string name;
  ElementType type = ElementType::kFp32;
  Shape shape;  // -1: any size on that axis
};

struct ModelMetadata {
  std::string name;
  std::string version;   // digits
  std::string platform;  // "openvino", for the protocol's "platform"
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
};

}  // namespace lumen::engine
