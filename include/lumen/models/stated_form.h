// StatedForm: a model's tensors as a configuration in Triton's form says them, to be held against
// the model once it is loaded.
// Threads: any. Memory: the heap. Errors: a Status that names both sides.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/metadata.h>
#include <lumen/tensor/element_type.h>
#include <lumen/tensor/shape.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lumen::models {

struct StatedTensor {
  std::string name;
  ElementType type = ElementType::kFp32;
  Shape dims;  // of one row where the form has rows
};

struct StatedForm {
  std::string name = {};  // of the model; empty: not said
  // Most rows of a request; 0: the first axis is none of rows. nullopt: not said, which means 0.
  std::optional<uint32_t> max_batch_size = std::nullopt;
  std::vector<StatedTensor> inputs = {};  // empty: not said
  std::vector<StatedTensor> outputs = {};
};

// Whether the model is as the form says. A size that is stated fits a free axis.
[[nodiscard]] Status check_stated(const StatedForm& form, const ModelMetadata& metadata);

}  // namespace lumen::models
