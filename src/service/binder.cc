// See the header for threads, memory and errors.
#include <lumen/service/binder.h>

#include <lumen/models/validate.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace lumen::service {
namespace {

// OpenVINO's kernels like this best, and AVX-512 loads need it to stay within a line.
constexpr size_t kTensorAlignment = 64;

int width(std::string_view text) noexcept { return static_cast<int>(text.size()); }

Status out_of_memory(std::string_view what, size_t bytes) noexcept {
  return Status::error(Code::kTooLarge,
                       "%.*s needs %zu bytes, more than a request's memory holds; send fewer rows "
                       "or raise --max-body-bytes",
                       width(what), what.data(), bytes);
}

// How often the fixed part of `shape` fits into `elements`; sets its one free axis. False: the size
// does not fit, or more than one axis is free.
bool deduce_shape(Shape& shape, size_t elements) noexcept {
  std::optional<size_t> free_axis;
  size_t fixed = 1;
  for (size_t i = 0; i < shape.rank(); ++i) {
    if (shape[i] != Shape::kDynamic) {
      fixed *= static_cast<size_t>(shape[i]);
    } else if (free_axis) {
      return false;
    } else {
      free_axis = i;
    }
  }
  if (!free_axis) return fixed == elements;
  if (fixed == 0 || elements % fixed != 0) return false;
  shape[*free_axis] = static_cast<int64_t>(elements / fixed);
  return true;
}

// Whether an element may say where to read.
bool may_be_position(ElementType type) noexcept {
  switch (type) {
    case ElementType::kBytes:
    case ElementType::kInt32:
    case ElementType::kInt64:
    case ElementType::kUint32:
    case ElementType::kUint64: return true;
    default: return false;
  }
}

bool is_aligned(const TensorView& tensor) noexcept {
  const size_t element = std::max<size_t>(element_size(tensor.type), 1);
  return reinterpret_cast<uintptr_t>(tensor.data) % element == 0;
}

}  // namespace

Binder::Binder(Call& call, models::Model& model) noexcept
    : call_(call), model_(model), metadata_(model.metadata()) {
  call.infer.model = &model;
  const size_t inputs = metadata_.inputs.size();
  bound_ = call.scratch->allocate_array<TensorView>(inputs);
  is_named_ = call.scratch->allocate_array<bool>(inputs);
  segments_ = call.scratch->allocate_array<iovec>(inputs);
  if (segments_.size() != inputs || is_named_.size() != inputs) bound_ = {};
}

Status Binder::input(std::string_view name, const TensorView& tensor, InputBytes bytes) noexcept {
  if (bound_.size() != metadata_.inputs.size()) return out_of_memory("input list", 0);
  const std::optional<size_t> index = model_.input_names().find(name, named_);
  if (!index) return models::unknown_tensor(metadata_, "input", metadata_.inputs, name);
  if (is_named_[*index]) {
    return Status::error(Code::kInvalidArgument, "input '%.*s' is given twice; send it once",
                         width(name), name.data());
  }
  is_named_[*index] = true;
  ++named_;
  LUMEN_RETURN_IF_ERROR(models::check_input(metadata_, metadata_.inputs[*index], tensor,
                                            metadata_.takes_empty_tensors));
  TensorView& bound = bound_[*index];
  bound = tensor;
  if (bytes == InputBytes::kToReceive) return place(name, bound);
  if (bytes == InputBytes::kShared) LUMEN_RETURN_IF_ERROR(copy_shared(name, bound));
  if (!is_aligned(bound)) {
    return Status::error(Code::kInvalidArgument,
                         "input '%.*s' lies at an address that is no multiple of the %zu bytes of "
                         "its elements; align it",
                         width(name), name.data(), element_size(tensor.type));
  }
  return {};
}

// Copies tensors that must not change while they are looked at.
Status Binder::copy_shared(std::string_view name, TensorView& tensor) noexcept {
  const bool has_to = may_be_position(tensor.type);
  CacheWishes& wishes = call_.cache_wishes;
  if (!has_to && (wishes.is_off || !call_.infer.model->response_cache().enable)) return {};
  auto* const copy =
      static_cast<std::byte*>(call_.scratch->allocate(tensor.byte_size, kTensorAlignment));
  if (copy == nullptr) {
    if (has_to) return out_of_memory(name, tensor.byte_size);
    wishes.has_shared_input = true;  // it is run where it lies, and nothing is kept of it
    return {};
  }
  if (tensor.byte_size > 0) std::memcpy(copy, tensor.data, tensor.byte_size);
  tensor.data = copy;
  return {};
}

// Reserves its place and notes it as the next that bytes belong to.
Status Binder::place(std::string_view name, TensorView& tensor) noexcept {
  tensor.data =
      static_cast<std::byte*>(call_.scratch->allocate(tensor.byte_size, kTensorAlignment));
  if (tensor.data == nullptr) return out_of_memory(name, tensor.byte_size);
  if (tensor.byte_size > 0) segments_[placed_++] = {tensor.data, tensor.byte_size};
  return {};
}

Status Binder::only_input(size_t bytes) noexcept {
  const size_t element = metadata_.inputs.empty() ? 0 : element_size(metadata_.inputs[0].type);
  if (metadata_.inputs.size() != 1 || element == 0) {
    return Status::error(
        Code::kInvalidArgument,
        "model '%s' has %zu inputs; a tensor without a name needs a model with one "
        "input of fixed-size elements: name the inputs",
        metadata_.name.c_str(), metadata_.inputs.size());
  }
  if (bound_.empty()) return out_of_memory("input list", 0);
  const models::TensorSpec& spec = metadata_.inputs[0];
  bound_[0] = {.type = spec.type, .shape = spec.shape, .data = nullptr, .byte_size = bytes};
  if (bytes % element != 0 || !deduce_shape(bound_[0].shape, bytes / element)) {
    return Status::error(Code::kInvalidArgument,
                         "input '%s': a raw body of %zu bytes does not fill the model's shape a "
                         "whole number of times; check its size, or name the input with its shape",
                         spec.name.c_str(), bytes);
  }
  is_named_[0] = true;
  ++named_;
  return place(spec.name, bound_[0]);
}

Status Binder::inputs_named() noexcept {
  for (size_t i = 0; i < metadata_.inputs.size(); ++i) {
    if (i < is_named_.size() && is_named_[i]) continue;
    return Status::error(
        Code::kInvalidArgument, "input '%s' of model '%s' is missing: got %zu inputs, wanted %zu",
        metadata_.inputs[i].name.c_str(), metadata_.name.c_str(), named_, metadata_.inputs.size());
  }
  LUMEN_RETURN_IF_ERROR(models::check_ties(metadata_, bound_));
  call_.infer.inputs = bound_;
  call_.to_receive = Places(segments_.first(placed_));
  return {};
}

Status Binder::output(std::string_view name) noexcept {
  if (outputs_.empty()) {
    outputs_ = call_.scratch->allocate_array<uint16_t>(metadata_.outputs.size());
    is_wanted_ = call_.scratch->allocate_array<bool>(metadata_.outputs.size());
    if (outputs_.empty() || is_wanted_.empty()) return out_of_memory("output list", 0);
  }
  const std::optional<size_t> index = model_.output_names().find(name, wanted_);
  if (!index) return models::unknown_tensor(metadata_, "output", metadata_.outputs, name);
  const auto wanted = static_cast<uint16_t>(*index);
  if (std::exchange(is_wanted_[wanted], true)) {
    return Status::error(Code::kInvalidArgument, "output '%.*s' is requested twice; name it once",
                         width(name), name.data());
  }
  outputs_[wanted_++] = wanted;
  call_.infer.outputs_wanted = outputs_.first(wanted_);
  return {};
}

}  // namespace lumen::service
