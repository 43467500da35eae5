// See the header.
#include <lumen/models/sequence_options.h>
#include <lumen/tensor/type_text.h>

#include <algorithm>
#include <cstdarg>
#include <ranges>

namespace lumen::models {
namespace {

// States are bound where they lie, and OpenVINO's kernels like this best.
constexpr size_t kStateAlignment = 64;

[[gnu::format(printf, 2, 3)]] Status refuse(const StateOptions& state, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const Status reason = Status::verror(Code::kInvalidArgument, format, args);
  va_end(args);
  return reason.at("config.json: state of input '" + state.input.substr(0, 100) + "' and output '" +
                   state.output.substr(0, 100) + "'");
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
  return planned;
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
  if (planned.states.size() == model.inputs.size()) {
    return Status::error(Code::kInvalidArgument,
                         "config.json: all inputs of the model are states; wanted one that a "
                         "client sends");
  }
  if (planned.states.size() == model.outputs.size()) {
    return Status::error(Code::kInvalidArgument,
                         "config.json: all outputs of the model are states; wanted one that a "
                         "client gets");
  }
  return planned;
}

}  // namespace lumen::models
