// See the header.
#include <lumen/models/stated_form.h>

#include <lumen/tensor/type_text.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

namespace lumen::models {
namespace {

bool agrees(const StatedTensor& stated, const TensorSpec& tensor, bool has_rows) {
  const size_t first = has_rows ? 1 : 0;
  const Shape& shape = tensor.shape;
  if (stated.type != tensor.type || shape.rank() != stated.dims.rank() + first) return false;
  if (has_rows && shape[0] != Shape::kDynamic) return false;
  for (size_t axis = first; axis < shape.rank(); ++axis) {
    const int64_t size = stated.dims[axis - first];
    if (shape[axis] != Shape::kDynamic && shape[axis] != size) return false;
  }
  return true;
}

using Tensors = std::span<const std::vector<TensorSpec>* const>;

const TensorSpec* tensor_named(Tensors tensors, const std::string& name) {
  for (const std::vector<TensorSpec>* some : tensors) {
    const auto found = std::ranges::find(*some, name, &TensorSpec::name);
    if (found != some->end()) return &*found;
  }
  return nullptr;
}

Status check_side(std::string_view side, const std::vector<StatedTensor>& stated, Tensors tensors,
                  bool has_rows) {
  for (const StatedTensor& one : stated) {
    const TensorSpec* const found = tensor_named(tensors, one.name);
    const bool is_there = found != nullptr;
    if (is_there && agrees(one, *found, has_rows)) continue;
    const std::string got = type_text(one.type, one.dims);
    const std::string wanted =
        is_there ? type_text(found->type, found->shape) : "none of that name";
    return Status::error(
        Code::kInvalidArgument, "the configuration says %s '%.200s' is %s%s; the model has %s",
        std::string(side).c_str(), one.name.c_str(), got.c_str(),
        has_rows ? " behind a free axis of rows, as max_batch_size is not 0" : "", wanted.c_str());
  }
  return {};
}

}  // namespace

Status check_stated(const StatedForm& form, const ModelMetadata& metadata) {
  if (!form.name.empty() && form.name != metadata.name) {
    return Status::error(Code::kInvalidArgument,
                         "the configuration is of model '%.200s', and this is model '%s'",
                         form.name.c_str(), metadata.name.c_str());
  }
  const bool has_rows = form.max_batch_size.value_or(0) > 0;
  // A model in Python has to name all of its tensors, those that its clients do not see, too.
  const SequenceForm& hidden = metadata.sequences;
  const std::array inputs = {&metadata.inputs, &hidden.states, &hidden.controls};
  const std::array outputs = {&metadata.outputs, &hidden.new_states};
  LUMEN_RETURN_IF_ERROR(check_side("input", form.inputs, inputs, has_rows));
  return check_side("output", form.outputs, outputs, has_rows);
}

}  // namespace lumen::models
