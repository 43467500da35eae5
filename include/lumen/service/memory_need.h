// How much memory a call may take, told before its body is read, so that the whole of it can be
// reserved. An output whose shape only the run knows counts as much as all inputs: many are of
// their size, fewer are larger. Memory beyond that is taken when it is there, or the request is
// refused then.
// Threads: any. Memory: none. Errors: none.
#pragma once

#include <lumen/models/metadata.h>

#include <cstddef>
#include <cstdint>

namespace lumen::models {
class Model;
}

namespace lumen::service {

struct BodySize {
  size_t binary_bytes = 0;  // tensors as they are: a place for each is taken
  size_t text_bytes = 0;    // tensors as numbers in text: decoded beside it
  // Of the text, the part that has to be collected in the call's memory first.
  size_t collected_bytes = 0;
  bool may_want_text = true;  // in the reply
};

struct MemoryNeed {
  size_t body_bytes = 0;   // until the model runs: text, places of inputs, lists
  size_t reply_bytes = 0;  // outputs, and their text if the client wants text
  [[nodiscard]] size_t all_bytes() const noexcept {
    size_t sum = 0;
    return __builtin_add_overflow(body_bytes, reply_bytes, &sum) ? SIZE_MAX : sum;
  }
};

// The memory of a model's calls. All that depends on the model alone is reckoned once.
class ModelNeed {
 public:
  explicit ModelNeed(const models::ModelMetadata& model) noexcept;
  // Of an ensemble with the tensors between its steps.
  explicit ModelNeed(const models::Model& model) noexcept;
  [[nodiscard]] MemoryNeed of(const BodySize& body) const noexcept;

 private:
  enum class Text : uint8_t { kNone, kOfOutputs };
  // Of outputs without rows, and of a row of those that have rows; with memory that an instance
  // takes before it runs.
  struct Sums {
    size_t fixed = 0;
    size_t row = 0;
    void add(bool has_rows, size_t bytes) noexcept;
  };
  void add_output(const models::TensorSpec& output, Text text) noexcept;
  [[nodiscard]] size_t most_rows(const BodySize& body) const noexcept;

  size_t list_bytes_;        // of lists, names and numbers around tensors
  bool has_rows_;            // the first axis of an input is free
  size_t row_elements_ = 0;  // of a row of all such inputs together
  size_t row_bytes_ = 0;     // of it, too
  Sums outputs_;
  Sums texts_;               // of outputs
  size_t open_outputs_ = 0;  // whose shape only the run knows
};

}  // namespace lumen::service
