// TrialRun: calls of an instance with made-up rows, as the engine itself would make them: for
// warm-up, batch plans and the choice of a backend.
// Threads: one. Memory: tensors in the memory that it is given; a list of inputs on the heap.
// Errors: false: the call failed, or no rows can be made up for this model.
#pragma once

#include <lumen/memory/request_memory.h>
#include <lumen/models/backend.h>
#include <lumen/models/metadata.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace lumen::models {

class Model;

class TrialRun {
 public:
  // For axes beside the first that a model leaves free: a short text, a small picture.
  static constexpr int64_t kUsualFreeSize = 16;

  // `model` may be nullptr where the instance does not belong to one yet.
  TrialRun(const ModelMetadata& metadata, Model* model, RequestMemory& memory)
      : metadata_(metadata), model_(model), memory_(memory) {}

  // `first`: the number of the first row; the same number gives the same row in every trial.
  // `free_size`: the size of free axes other than the first; 0: a model that has any is not run.
  [[nodiscard]] bool run(Instance& instance, uint32_t first, uint32_t rows, int64_t free_size = 0);
  // Fills `view` with numbers: those of the rows from number `first_element` on.
  static void make_up(const TensorView& view, size_t first_element = 0);
  // With inputs that lie in the memory, in the order of the metadata.
  [[nodiscard]] bool run_inputs(Instance& instance, std::span<TensorView> inputs);
  [[nodiscard]] uint64_t input_bytes() const noexcept { return input_bytes_of(request_); }
  [[nodiscard]] std::span<const TensorView> outputs() const { return request_.outputs; }
  [[nodiscard]] const Status& status() const { return request_.status; }

 private:
  [[nodiscard]] bool add_input(const TensorSpec& spec, uint32_t first, uint32_t rows,
                               int64_t free_size);

  const ModelMetadata& metadata_;
  Model* const model_;
  RequestMemory& memory_;
  InferRequest request_;
  std::vector<TensorView> inputs_;
  std::atomic<uint32_t> done_{0};
};

}  // namespace lumen::models
