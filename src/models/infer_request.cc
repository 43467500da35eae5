// See the header for threads, memory and errors.
#include <lumen/models/infer_request.h>

#include <lumen/models/model_repository.h>

#include <algorithm>

namespace lumen::models {

uint32_t rows_of(const InferRequest& request) noexcept {
  if (request.inputs.empty()) return 1;
  const Shape& pattern = request.model->metadata().inputs.front().shape;
  if (pattern.rank() == 0 || pattern[0] != Shape::kDynamic) return 1;
  const int64_t rows = request.inputs[0].shape[0];
  const auto differs = [rows](const TensorView& input) { return input.shape[0] != rows; };
  if (request.inputs.size() > 1 && std::ranges::any_of(request.inputs, differs)) return 0;
  return static_cast<uint32_t>(std::min<int64_t>(rows, UINT32_MAX));
}

uint64_t input_bytes_of(const InferRequest& request) noexcept {
  uint64_t bytes = 0;
  for (const TensorView& input : request.inputs) bytes += input.byte_size;
  return bytes;
}

}  // namespace lumen::models
