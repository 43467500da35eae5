// See the header.
#include "service/triton_config.h"

#include <lumen/service/documents.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::service {
namespace {

using wire::JsonWriter;

// "TYPE_FP32"; only BYTES has another name there.
std::string type_of(ElementType type) {
  const std::string_view name =
      type == ElementType::kBytes ? std::string_view("STRING") : element_type_name(type);
  return "TYPE_" + std::string(name);
}

void write_policy(JsonWriter& json, const models::VersionPolicy& policy) {
  using Kind = models::VersionPolicy::Kind;
  json.key("version_policy").begin_object();
  switch (policy.kind) {
    case Kind::kAll: json.key("all").begin_object(); break;
    case Kind::kLatest:
      json.key("latest").begin_object().key("num_versions").unsigned_integer(policy.latest);
      break;
    case Kind::kListed:
      json.key("specific").begin_object().key("versions").begin_array();
      for (const std::string& version : policy.listed) json.raw(version);
      json.end_array();
      break;
  }
  json.end_object().end_object();
}

// Of a request, without the rows' where the configuration says how many these may be.
void write_dims(JsonWriter& json, const Shape& shape, bool has_rows) {
  json.key("dims").begin_array();
  for (const int64_t size : shape.dimensions().subspan(has_rows ? 1 : 0)) json.integer(size);
  json.end_array();
}

void write_tensors(JsonWriter& json, std::string_view key,
                   const std::vector<models::TensorSpec>& tensors, bool has_rows) {
  json.key(key).begin_array();
  for (const models::TensorSpec& tensor : tensors) {
    json.begin_object().key("name").string(tensor.name);
    json.key("data_type").string(type_of(tensor.type));
    write_dims(json, tensor.shape, has_rows);
    json.end_object();
  }
  json.end_array();
}

void write_map(JsonWriter& json, std::string_view key,
               const std::vector<std::pair<std::string_view, std::string_view>>& names) {
  json.key(key).begin_object();
  for (const auto& [of_model, of_ensemble] : names) json.key(of_model).string(of_ensemble);
  json.end_object();
}

void write_steps(JsonWriter& json, const models::EnsemblePlan& plan) {
  json.key("ensemble_scheduling").begin_object().key("step").begin_array();
  for (const models::EnsemblePlan::Step& step : plan.steps) {
    const models::ModelMetadata& metadata = step.model->metadata();
    json.begin_object().key("model_name").string(metadata.name);
    json.key("model_version").raw(step.version.empty() ? "-1" : step.version);
    std::vector<std::pair<std::string_view, std::string_view>> names;
    names.reserve(step.inputs.size() + step.outputs.size());
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      names.emplace_back(metadata.inputs[i].name, plan.tensors[step.inputs[i]]);
    }
    write_map(json, "input_map", names);
    names.clear();
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      names.emplace_back(metadata.outputs[step.outputs_wanted[i]].name,
                         plan.tensors[step.outputs[i]]);
    }
    write_map(json, "output_map", names);
    json.end_object();
  }
  json.end_array().end_object();
}

// A boolean, or a number of the tensor's type.
void write_value(JsonWriter& json, ElementType type, double value) {
  switch (type) {
    case ElementType::kBool: json.boolean(value != 0); break;
    case ElementType::kInt32: json.integer(static_cast<int64_t>(value)); break;
    default: json.number(static_cast<float>(value));
  }
}

void write_control(JsonWriter& json, const models::ControlOptions& control, ElementType type) {
  using Kind = models::ControlOptions::Kind;
  constexpr std::array<std::string_view, 4> kKinds = {
      "CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_END", "CONTROL_SEQUENCE_READY",
      "CONTROL_SEQUENCE_CORRID"};
  json.begin_object().key("name").string(control.input);
  json.key("control").begin_array().begin_object();
  json.key("kind").string(kKinds[static_cast<size_t>(control.kind)]);
  if (control.kind == Kind::kId) {
    json.key("data_type").string(type_of(type));
  } else {
    json.key(type == ElementType::kBool    ? "bool_false_true"
             : type == ElementType::kInt32 ? "int32_false_true"
                                           : "fp32_false_true");
    json.begin_array();
    write_value(json, type, control.value_if_false);
    write_value(json, type, control.value_if_true);
    json.end_array();
  }
  json.end_object().end_array().end_object();
}

void write_states(JsonWriter& json, const models::Model& model, bool has_rows) {
  const models::SequenceOptions& sequences = model.sequences();
  json.key("state").begin_array();
  for (size_t i = 0; i < sequences.states.size(); ++i) {
    const models::TensorSpec& state = model.metadata().sequences.states[i];
    json.begin_object().key("input_name").string(state.name);
    json.key("output_name").string(sequences.states[i].output);
    json.key("data_type").string(type_of(state.type));
    write_dims(json, state.shape, has_rows);
    const std::string& file = sequences.states[i].initial_file;
    if (!file.empty()) {
      json.key("initial_state").begin_array().begin_object();
      json.key("name").string(file).key("data_type").string(type_of(state.type));
      write_dims(json, state.shape, has_rows);
      json.key("data_file").string(file).end_object().end_array();
    }
    json.end_object();
  }
  json.end_array();
}

void write_sequences(JsonWriter& json, const models::Model& model, bool has_rows) {
  constexpr uint64_t kUsOfAMs = 1000;
  const models::SequenceOptions& sequences = model.sequences();
  json.key("sequence_batching").begin_object();
  json.key("max_sequence_idle_microseconds").unsigned_integer(sequences.idle_ms * kUsOfAMs);
  if (!sequences.controls.empty()) {
    json.key("control_input").begin_array();
    for (size_t i = 0; i < sequences.controls.size(); ++i) {
      write_control(json, sequences.controls[i], model.metadata().sequences.controls[i].type);
    }
    json.end_array();
  }
  if (!sequences.states.empty()) write_states(json, model, has_rows);
  json.end_object();
}

// Data that the configuration gives is not said again: Triton names a file there.
void write_warm_up(JsonWriter& json, const std::vector<models::WarmUpRequest>& requests,
                   bool has_rows) {
  using Data = models::WarmUpInput::Data;
  json.key("model_warmup").begin_array();
  for (const models::WarmUpRequest& request : requests) {
    const bool by_rows = has_rows && !request.inputs.empty();
    json.begin_object().key("batch_size");
    json.unsigned_integer(by_rows ? static_cast<uint64_t>(request.inputs.front().shape[0]) : 0);
    json.key("inputs").begin_object();
    for (const models::WarmUpInput& input : request.inputs) {
      json.key(input.name).begin_object().key("data_type").string(type_of(input.type));
      write_dims(json, input.shape, has_rows);
      if (input.data == Data::kZeros) json.key("zero_data").boolean(true);
      if (input.data == Data::kMadeUp) json.key("random_data").boolean(true);
      json.end_object();
    }
    json.end_object().key("count").unsigned_integer(request.count).end_object();
  }
  json.end_array();
}

}  // namespace

bool has_rows(const models::Model& model) noexcept {
  return has_batch_axis(model.metadata()) && model.why_not_packed().empty();
}

void write_triton_config(JsonWriter& json, const models::Model& model) {
  const models::ModelMetadata& metadata = model.metadata();
  // A configuration that says so was held against the model.
  const bool by_rows = model.stated_rows() ? *model.stated_rows() > 0 : has_rows(model);
  json.begin_object().key("name").string(metadata.name);
  json.key("platform").string(metadata.platform);
  const models::EnsemblePlan* const ensemble = model.ensemble();
  if (ensemble == nullptr) json.key("backend").string(model.choice().backend);
  write_policy(json, model.versions());
  json.key("max_batch_size")
      .unsigned_integer(by_rows ? model.stated_rows().value_or(kConfiguredRows) : 0);
  write_tensors(json, "input", metadata.inputs, by_rows);
  write_tensors(json, "output", metadata.outputs, by_rows);
  const bool keeps_states = metadata.sequences.state_bytes > 0;
  if (keeps_states) write_sequences(json, model, by_rows && metadata.sequences.have_rows);
  // Triton has one of the two; sequences share runs all the same.
  if (by_rows && ensemble == nullptr && !keeps_states)
    json.key("dynamic_batching").begin_object().end_object();
  if (ensemble != nullptr) write_steps(json, *ensemble);
  json.key("response_cache").begin_object().key("enable").boolean(model.response_cache().enable);
  json.end_object();
  if (!model.warm_up().empty()) write_warm_up(json, model.warm_up(), by_rows);
  json.key("model_transaction_policy").begin_object().key("decoupled").boolean(false);
  json.end_object();
  if (ensemble == nullptr) {
    json.key("parameters").begin_object().key("precision").begin_object();
    json.key("string_value").string(model.precision());
    json.end_object().end_object();
  }
  json.end_object();
}

}  // namespace lumen::service
