// A model's description, as a client sees it. Built at load, immutable afterwards.
// Threads: any may read. Memory: the heap, at load (control plane). Errors: never.
#pragma once

#include <lumen/tensor/element_type.h>
#include <lumen/tensor/shape.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lumen::models {

struct TensorSpec {
  std::string name;
  ElementType type = ElementType::kFp32;
  Shape shape;  // -1: any size on that axis
  // A classifier's classes, in the order of the last axis; empty where the model names none.
  std::vector<std::string> labels{};
  bool has_rank = true;  // false, of outputs only: any shape comes; `shape` is empty
  // Of an element of BYTES, for an estimate of the rows in a body; 0: not known, as little as 1.
  size_t usual_bytes = 0;
};

// Two free axes that the model's operations take only with equal sizes; of one input or of two.
struct TiedAxes {
  uint16_t input = 0;
  uint16_t axis = 0;
  uint16_t other_input = 0;
  uint16_t other_axis = 0;
};

// Of a model that keeps states between the requests of a sequence, which no tensor of its metadata
// names.
struct SequenceForm {
  // The inputs of the model that read them, in the order of its configuration, and the outputs that
  // write them.
  std::vector<TensorSpec> states{};
  std::vector<TensorSpec> new_states{};
  // The inputs that tell the model of its sequence, in the order of its configuration.
  std::vector<TensorSpec> controls{};
  size_t state_bytes = 0;                 // of one sequence; 0: the model keeps none
  std::vector<std::byte> first_states{};  // of one that begins; empty: zeros
  // States of several sequences fit into one run, as rows of one tensor.
  bool have_rows = true;
  // A control takes the id, as such elements; nullopt: none does.
  std::optional<ElementType> id_type{};
};

struct ModelMetadata {
  std::string name;
  std::string version;   // digits
  std::string platform;  // "openvino", for the protocol's "platform"
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::vector<TiedAxes> ties{};      // those that the backend knows of; no pair stands there twice
  bool takes_empty_tensors = false;  // inputs may have free axes of size 0
  // Of a request's memory that an instance takes for each row, beside the outputs.
  size_t prepared_bytes = 0;
  SequenceForm sequences{};
};

// Whether the model's shapes allow packing at all: every input and output has a free first axis and
// elements of fixed size.
[[nodiscard]] bool has_batch_axis(const ModelMetadata& metadata) noexcept;

}  // namespace lumen::models
