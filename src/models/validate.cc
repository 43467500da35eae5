// Bodies of validate.h. Any thread; the stack only.
#include <lumen/models/validate.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>

namespace lumen::models {
namespace {

// A piece of text that a message is put together from; cut when full, never overrun.
class Text {
 public:
  void add(std::string_view piece) noexcept {
    const size_t taken = std::min(piece.size(), bytes_.size() - 1 - size_);
    std::copy_n(piece.data(), taken, bytes_.data() + size_);
    size_ += taken;
    bytes_[size_] = '\0';
  }
  void add(int64_t number) noexcept {
    char digits[24];
    const int size = std::snprintf(digits, sizeof(digits), "%" PRId64, number);
    add(std::string_view(digits, static_cast<size_t>(size)));
  }
  [[nodiscard]] size_t room() const noexcept { return bytes_.size() - 1 - size_; }
  [[nodiscard]] size_t size() const noexcept { return size_; }
  [[nodiscard]] std::string_view view() const noexcept { return {bytes_.data(), size_}; }
  [[nodiscard]] const char* c_str() const noexcept { return bytes_.data(); }

 private:
  // Eight dimensions of 20 digits fit; with two of these and two names a Status is full.
  std::array<char, 256> bytes_{};
  size_t size_ = 0;
};

Text shape_text(const Shape& shape) noexcept {
  Text text;
  text.add("[");
  for (size_t i = 0; i < shape.rank(); ++i) {
    if (i > 0) text.add(",");
    text.add(shape[i]);
  }
  text.add("]");
  return text;
}

Text names_text(std::span<const TensorSpec> specs) noexcept {
  constexpr std::string_view kMore = ", ...";
  Text text;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (text.room() < specs[i].name.size() + 2 * kMore.size()) {
      text.add(kMore);
      break;
    }
    if (i > 0) text.add(", ");
    text.add(specs[i].name);
  }
  return text;
}

// Names are cut to this in messages, so that the words after them still fit.
constexpr size_t kShownName = limits::kMaxNameBytes / 2;

int width(std::string_view name) noexcept {
  return static_cast<int>(std::min(name.size(), kShownName));
}

}  // namespace

Status unknown_tensor(const ModelMetadata& model, std::string_view kind,
                      std::span<const TensorSpec> specs, std::string_view name) noexcept {
  return Status::error(Code::kInvalidArgument, "model '%.*s' has no %.*s '%.*s'; wanted one of: %s",
                       width(model.name), model.name.data(), width(kind), kind.data(), width(name),
                       name.data(), names_text(specs).c_str());
}

Status check_input(const ModelMetadata& model, const TensorSpec& spec, const TensorView& input,
                   bool may_be_empty) noexcept {
  const int model_width = width(model.name);
  const int name_width = width(spec.name);
  if (input.type != spec.type) {
    return Status::error(Code::kInvalidArgument,
                         "input '%.*s' of model '%.*s': got datatype %s, wanted %s", name_width,
                         spec.name.data(), model_width, model.name.data(),
                         element_type_name(input.type).data(), element_type_name(spec.type).data());
  }
  if (!spec.shape.accepts(input.shape)) {
    return Status::error(Code::kInvalidArgument,
                         "input '%.*s' of model '%.*s': got shape %s, wanted %s%s", name_width,
                         spec.name.data(), model_width, model.name.data(),
                         shape_text(input.shape).c_str(), shape_text(spec.shape).c_str(),
                         spec.shape.is_static() ? "" : " (-1: any size)");
  }
  const std::optional<size_t> count = input.shape.element_count();
  // Not each backend's kernels know empty tensors.
  if (!count || (*count == 0 && !may_be_empty)) {
    return Status::error(
        Code::kInvalidArgument,
        "input '%.*s' of model '%.*s': got shape %s, wanted every dimension >= 1 "
        "(none may be empty: see docs/models.md) and a size that fits into 64 bits",
        name_width, spec.name.data(), model_width, model.name.data(),
        shape_text(input.shape).c_str());
  }
  const size_t element = element_size(spec.type);
  size_t wanted = 0;
  if (__builtin_mul_overflow(*count, element, &wanted)) wanted = SIZE_MAX;
  if (element != 0 && input.byte_size != wanted) {
    return Status::error(
        Code::kInvalidArgument, "input '%.*s' of model '%.*s': got %zu bytes, wanted %zu for %s %s",
        name_width, spec.name.data(), model_width, model.name.data(), input.byte_size, wanted,
        element_type_name(spec.type).data(), shape_text(input.shape).c_str());
  }
  return {};
}

Status check_ties(const ModelMetadata& model, std::span<const TensorView> inputs) noexcept {
  for (const TiedAxes& tie : model.ties) {
    const Shape& shape = inputs[tie.input].shape;
    const Shape& other = inputs[tie.other_input].shape;
    if (shape[tie.axis] == other[tie.other_axis]) continue;
    const std::string& name = model.inputs[tie.input].name;
    const std::string& other_name = model.inputs[tie.other_input].name;
    const unsigned axis = tie.axis;
    const unsigned other_axis = tie.other_axis;
    if (tie.input == tie.other_input) {
      return Status::error(Code::kInvalidArgument,
                           "input '%.*s' of model '%.*s': got shape %s, wanted the same size on "
                           "axis %u and axis %u",
                           width(name), name.data(), width(model.name), model.name.data(),
                           shape_text(shape).c_str(), axis, other_axis);
    }
    return Status::error(Code::kInvalidArgument,
                         "inputs '%.*s' and '%.*s' of model '%.*s': got shapes %s and %s, wanted "
                         "the same size on axis %u of the first and axis %u of the second",
                         width(name), name.data(), width(other_name), other_name.data(),
                         width(model.name), model.name.data(), shape_text(shape).c_str(),
                         shape_text(other).c_str(), axis, other_axis);
  }
  return {};
}

Status shapes_refused(const ModelMetadata& model, std::span<const TensorView> inputs,
                      bool with_values) noexcept {
  constexpr std::string_view kMore = ", ...";
  Text text;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec& spec = model.inputs[i];
    if (spec.shape.is_static() && !with_values) continue;
    const Text shape = shape_text(inputs[i].shape);
    const std::string_view name = std::string_view(spec.name).substr(0, kShownName);
    if (text.room() < name.size() + shape.size() + 2 * kMore.size()) {
      text.add(kMore);
      break;
    }
    if (text.size() > 0) text.add(", ");
    text.add("'");
    text.add(name);
    text.add("' ");
    text.add(shape.view());
  }
  return Status::error(Code::kInvalidArgument,
                       "model '%.*s': its operations refuse inputs of the shapes %s%s; send "
                       "%s that fit together",
                       width(model.name), model.name.data(), text.c_str(),
                       with_values ? " with the numbers they hold" : "",
                       with_values ? "shapes and numbers" : "shapes");
}

Status cancelled_before_run(const ModelMetadata& model) noexcept {
  return Status::error(Code::kCancelled,
                       "request cancelled: its client was gone before model '%s' began with it",
                       model.name.c_str());
}

Status check_request(const ModelMetadata& model, const InferRequest& request) noexcept {
  if (request.inputs.size() != model.inputs.size()) {
    return Status::error(Code::kInvalidArgument, "model '%.*s': got %zu inputs, wanted %zu",
                         width(model.name), model.name.data(), request.inputs.size(),
                         model.inputs.size());
  }
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    LUMEN_RETURN_IF_ERROR(check_input(model, model.inputs[i], request.inputs[i]));
    if (request.inputs[i].data == nullptr) {
      return Status::error(Code::kInvalidArgument, "input '%.*s' of model '%.*s': got no data",
                           width(model.inputs[i].name), model.inputs[i].name.data(),
                           width(model.name), model.name.data());
    }
  }
  LUMEN_RETURN_IF_ERROR(check_ties(model, request.inputs));
  for (const uint16_t index : request.outputs_wanted) {
    if (index >= model.outputs.size()) {
      return Status::error(Code::kInvalidArgument,
                           "model '%.*s': got output number %u, wanted < %zu", width(model.name),
                           model.name.data(), unsigned{index}, model.outputs.size());
    }
  }
  return {};
}

}  // namespace lumen::models
