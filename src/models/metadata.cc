// See the header for threads, memory and errors.
#include <lumen/models/metadata.h>

#include <algorithm>

namespace lumen::models {
namespace {

bool is_free_axis(const TensorSpec& spec) noexcept {
  return spec.shape.rank() > 0 && spec.shape[0] == Shape::kDynamic && element_size(spec.type) > 0;
}

}  // namespace

bool has_batch_axis(const ModelMetadata& metadata) noexcept {
  return !metadata.inputs.empty() && std::ranges::all_of(metadata.inputs, is_free_axis) &&
         std::ranges::all_of(metadata.outputs, is_free_axis);
}

}  // namespace lumen::models
