// A session's inputs and outputs as Lumen describes tensors.
// Threads: control plane. Memory: the heap. Errors: a Status for types that the protocol has no
// word for; the library's errors are thrown as Failure.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/metadata.h>
#include <lumen/onnx/graph.h>

#include "backends/onnxruntime/library.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lumen::backends::onnxruntime {

using namespace models;  // the types that a backend implements

[[nodiscard]] std::optional<ElementType> our_type(ONNXTensorElementDataType type) noexcept;
[[nodiscard]] ONNXTensorElementDataType their_type(ElementType type) noexcept;

struct Port {
  TensorSpec spec;
  // The names of its free axes ("" without a name, and for axes that are not free): axes of one
  // name have one size.
  std::vector<std::string> axes;
  // Of outputs: a node writes it. False: it is an input or an initializer passed on, which the
  // library leaves out of memory that is given for it.
  bool is_computed = true;
};

struct Ports {
  std::vector<Port> inputs;
  std::vector<Port> outputs;
};

// kUnsupported for sequences, maps and types that the protocol does not have.
[[nodiscard]] Result<Ports> describe(const std::string& model, const OrtSession& session);

// Marks outputs that no node writes.
void mark_passed_on(const onnx::Graph& graph, Ports& ports);

// The session describes an output without a shape in the file as it describes a scalar (its
// interface tells them apart from version 1.24 on only). Marks such outputs; kUnsupported for
// inputs.
[[nodiscard]] Status mark_unranked(const std::string& model, const onnx::Graph& graph,
                                   Ports& ports);

}  // namespace lumen::backends::onnxruntime
