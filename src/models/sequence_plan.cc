// See the header.
#include <lumen/models/sequence_options.h>
#include <lumen/tensor/type_text.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdarg>
#include <cstddef>
#include <ranges>

namespace lumen::models {
namespace {

using Kind = ControlOptions::Kind;

// States are bound where they lie, and OpenVINO's kernels like this best.
constexpr size_t kStateAlignment = 64;

std::string where(const StateOptions& state) {
  return "config.json: state of input '" + state.input.substr(0, 100) + "' and output '" +
         state.output.substr(0, 100) + "'";
}

std::string where(const ControlOptions& control) {
  return "config.json: control of input '" + control.input.substr(0, 100) + "'";
}

template <typename Stated>
[[gnu::format(printf, 2, 3)]] Status refuse(const Stated& stated, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const Status reason = Status::verror(Code::kInvalidArgument, format, args);
  va_end(args);
  return reason.at(where(stated));
}

std::string text_of(const TensorSpec& spec) { return type_text(spec.type, spec.shape); }

std::string names_of(const std::vector<TensorSpec>& specs) {
  std::string names;
  for (const TensorSpec& spec : specs) {
    names.append(names.empty() ? "\"" : ", \"").append(spec.name).append("\"");
  }
  return names;
}

bool may_be_equal(const Shape& one, const Shape& other) noexcept {
  if (one.rank() != other.rank()) return false;
  for (size_t axis = 0; axis < one.rank(); ++axis) {
    if (one[axis] >= 0 && other[axis] >= 0 && one[axis] != other[axis]) return false;
  }
  return true;
}

bool has_free_first_axis(const Shape& shape) noexcept {
  return shape.rank() > 0 && shape[0] == Shape::kDynamic;
}

// Triton's dims have no axis of rows where the model's have.
bool fits_dims(const Shape& stated, const Shape& shape) {
  if (may_be_equal(stated, shape)) return true;
  if (!has_free_first_axis(shape)) return false;
  Shape with_rows;
  (void)with_rows.append(Shape::kDynamic);
  for (const int64_t size : stated.dimensions()) {
    if (!with_rows.append(size)) return false;
  }
  return may_be_equal(with_rows, shape);
}

Result<StateTensor> plan(const StateOptions& state, const ModelMetadata& model) {
  const auto input = std::ranges::find(model.inputs, state.input, &TensorSpec::name);
  if (input == model.inputs.end()) {
    return refuse(state, "the model has no input of that name, wanted one of %s",
                  names_of(model.inputs).c_str());
  }
  const auto output = std::ranges::find(model.outputs, state.output, &TensorSpec::name);
  if (output == model.outputs.end()) {
    return refuse(state, "the model has no output of that name, wanted one of %s",
                  names_of(model.outputs).c_str());
  }
  const bool fits = input->type == output->type &&
                    (!output->has_rank || may_be_equal(input->shape, output->shape));
  if (!fits || element_size(input->type) == 0) {
    return refuse(state,
                  "the model takes %s and gives %s, wanted the same shape and type, of elements of "
                  "a fixed size",
                  text_of(*input).c_str(), text_of(*output).c_str());
  }
  const bool fits_stated = (!state.type || *state.type == input->type) &&
                           (!state.dims || fits_dims(*state.dims, input->shape));
  if (!fits_stated) {
    return refuse(state, "got %s, and the model takes %s",
                  type_text(state.type.value_or(input->type), state.dims.value_or(Shape{})).c_str(),
                  text_of(*input).c_str());
  }
  StateTensor planned{.input = static_cast<size_t>(input - model.inputs.begin()),
                      .output = static_cast<size_t>(output - model.outputs.begin()),
                      .type = input->type,
                      .shape = {}};
  for (size_t axis = 0; axis < input->shape.rank(); ++axis) {
    // The size that one of the three names; rows and batches are of one sequence.
    int64_t size = input->shape[axis];
    if (size < 0 && output->has_rank) size = output->shape[axis];
    const bool states_all = state.dims && state.dims->rank() == input->shape.rank();
    if (size < 0 && states_all) size = (*state.dims)[axis];
    (void)planned.shape.append(size < 0 ? 1 : size);  // as many axes as before
  }
  const std::optional<size_t> elements = planned.shape.element_count();
  if (!elements || *elements == 0 ||
      __builtin_mul_overflow(*elements, element_size(planned.type), &planned.bytes)) {
    return refuse(state, "the model takes %s, which is no state of a size that can be kept",
                  text_of(*input).c_str());
  }
  if (!state.initial_file.empty() && state.initial.size() != planned.bytes) {
    return refuse(state, "its file initial_state/%s has %zu bytes, wanted the %zu of %s",
                  state.initial_file.c_str(), state.initial.size(), planned.bytes,
                  type_text(planned.type, planned.shape).c_str());
  }
  return planned;
}

// A value as an element; false: it is none of that type.
bool to_element(double value, ElementType type, std::array<std::byte, 4>& bytes) {
  switch (type) {
    case ElementType::kBool:
      bytes[0] = static_cast<std::byte>(value != 0);
      return value == 0 || value == 1;
    case ElementType::kInt32:
      if (value < INT32_MIN || value > INT32_MAX || value != std::trunc(value)) return false;
      bytes = std::bit_cast<std::array<std::byte, 4>>(static_cast<int32_t>(value));
      return true;
    case ElementType::kFp32:
      bytes = std::bit_cast<std::array<std::byte, 4>>(static_cast<float>(value));
      return std::isfinite(static_cast<float>(value));
    default: return false;
  }
}

bool can_hold_id(ElementType type) {
  constexpr std::array kTypes = {ElementType::kInt32, ElementType::kUint32, ElementType::kInt64,
                                 ElementType::kUint64, ElementType::kBytes};
  return std::ranges::find(kTypes, type) != kTypes.end();
}

bool takes_id(const ControlTensor& control) { return control.kind == Kind::kId; }

Result<ControlTensor> plan(const ControlOptions& control, const ModelMetadata& model) {
  const auto input = std::ranges::find(model.inputs, control.input, &TensorSpec::name);
  if (input == model.inputs.end()) {
    return refuse(control, "the model has no input of that name, wanted one of %s",
                  names_of(model.inputs).c_str());
  }
  if (control.type && *control.type != input->type) {
    return refuse(control, "got %s, and the model takes %s",
                  std::string(element_type_name(*control.type)).c_str(), text_of(*input).c_str());
  }
  ControlTensor planned{.input = static_cast<size_t>(input - model.inputs.begin()),
                        .kind = control.kind,
                        .type = input->type};
  for (const int64_t size : input->shape.dimensions()) {
    (void)planned.shape.append(size < 0 ? 1 : size);  // as many axes as before
  }
  if (planned.shape.element_count() != 1) {
    return refuse(control, "the model takes %s, wanted one element for each sequence",
                  text_of(*input).c_str());
  }
  if (control.kind == Kind::kId) {
    if (can_hold_id(input->type)) return planned;
    return refuse(control,
                  "the model takes %s, wanted UINT64, INT64, UINT32, INT32 or BYTES for an id",
                  text_of(*input).c_str());
  }
  const bool has_values = to_element(control.value_if_false, input->type, planned.bytes_if_false) &&
                          to_element(control.value_if_true, input->type, planned.bytes_if_true);
  if (has_values) return planned;
  return refuse(control,
                "the model takes %s, and false and true are %g and %g there; wanted an input of "
                "BOOL, INT32 or FP32 and values of that type",
                text_of(*input).c_str(), control.value_if_false, control.value_if_true);
}

Status plan_controls(const SequenceOptions& options, const ModelMetadata& model,
                     SequencePlan& planned) {
  for (const ControlOptions& one : options.controls) {
    Result<ControlTensor> control = plan(one, model);
    if (!control.ok()) return control.status();
    const auto is_the_same = [&](const auto& other) { return other.input == control->input; };
    if (std::ranges::any_of(planned.states, is_the_same) ||
        std::ranges::any_of(planned.controls, is_the_same)) {
      return refuse(one, "another control or state has the same input; name each once");
    }
    if (control->kind == Kind::kId && std::ranges::any_of(planned.controls, takes_id)) {
      return refuse(one, "another control takes the id, too; give it to one input");
    }
    planned.has_rows = planned.has_rows && has_free_first_axis(model.inputs[control->input].shape);
    planned.controls.push_back(*control);
  }
  return {};
}

void plan_first_states(const SequenceOptions& options, SequencePlan& planned) {
  if (std::ranges::all_of(options.states, &std::vector<std::byte>::empty, &StateOptions::initial))
    return;
  planned.first_states.resize(planned.bytes);
  for (size_t i = 0; i < options.states.size(); ++i) {
    std::ranges::copy(
        options.states[i].initial,
        planned.first_states.begin() + static_cast<std::ptrdiff_t>(planned.states[i].offset));
  }
}

}  // namespace

Result<SequencePlan> plan_sequences(const SequenceOptions& options, const ModelMetadata& model) {
  SequencePlan planned;
  for (const StateOptions& one : options.states) {
    Result<StateTensor> state = plan(one, model);
    if (!state.ok()) return state.status();
    for (const StateTensor& other : planned.states) {
      if (other.input != state->input && other.output != state->output) continue;
      return refuse(one, "another state has the same input or output; name each once");
    }
    state->offset = planned.bytes;
    const TensorSpec& input = model.inputs[state->input];
    planned.has_rows = planned.has_rows && has_free_first_axis(input.shape);
    if (state->bytes > SequencePlan::kMostBytes) {
      return refuse(one, "it has %zu bytes, wanted at most %llu", state->bytes,
                    static_cast<unsigned long long>(SequencePlan::kMostBytes));
    }
    planned.bytes += (state->bytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
    planned.states.push_back(*state);
  }
  if (planned.bytes > SequencePlan::kMostBytes / options.most) {
    return Status::error(
        Code::kInvalidArgument,
        "config.json: key \"sequences.most\": got %u, and the states of one sequence have %zu "
        "bytes, together above the limit of %llu; lower it",
        options.most, planned.bytes, static_cast<unsigned long long>(SequencePlan::kMostBytes));
  }
  LUMEN_RETURN_IF_ERROR(plan_controls(options, model, planned));
  plan_first_states(options, planned);
  if (options.are_kept_by_model()) {
    if (std::ranges::none_of(planned.controls, takes_id)) {
      return Status::error(Code::kInvalidArgument,
                           "config.json: \"sequences\" names no states, and no control of the "
                           "kind \"id\" by which the model could keep them; add one of the two");
    }
    planned.is_kept_by_model = true;
    planned.bytes = kStateAlignment;
  }
  if (planned.states.size() + planned.controls.size() == model.inputs.size()) {
    return Status::error(Code::kInvalidArgument,
                         "config.json: all inputs of the model are states or controls; wanted one "
                         "that a client sends");
  }
  if (planned.states.size() == model.outputs.size()) {
    return Status::error(Code::kInvalidArgument,
                         "config.json: all outputs of the model are states; wanted one that a "
                         "client gets");
  }
  return planned;
}

}  // namespace lumen::models
