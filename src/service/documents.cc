// Rendering of metadata, index and statistics. Control plane but for write_statistics (any thread).
#include <lumen/service/documents.h>

#include "service/grpc_documents.h"

#include <lumen/wire/json_text.h>

#include "service/triton_config.h"

#include <algorithm>

namespace lumen::service {
namespace {

using wire::json_text;
using wire::JsonWriter;

// Only true ones: clients (perf_analyzer) act on this list.
constexpr std::string_view kExtensions[] = {
    "binary_tensor_data", "classification",  "logging",    "model_configuration",
    "model_repository",   "schedule_policy", "statistics", "system_shared_memory"};

// Binary tensors are no extension there: it has no others.
constexpr std::string_view kGrpcExtensions[] = {
    "classification", "logging",         "model_configuration", "model_repository",
    "parameters",     "schedule_policy", "statistics",          "system_shared_memory"};

void write_tensors(JsonWriter& json, std::string_view key,
                   const std::vector<models::TensorSpec>& tensors) {
  json.key(key).begin_array();
  for (const models::TensorSpec& tensor : tensors) {
    json.begin_object().key("name").string(tensor.name);
    json.key("datatype").string(element_type_name(tensor.type));
    json.key("shape").begin_array();
    for (int64_t dimension : tensor.shape.dimensions()) json.integer(dimension);
    json.end_array();
    if (!tensor.labels.empty()) {
      json.key("parameters").begin_object().key("labels").begin_array();
      for (const std::string& label : tensor.labels) json.string(label);
      json.end_array().end_object();
    }
    json.end_object();
  }
  json.end_array();
}

void write_response_cache(JsonWriter& json, const models::ResponseCacheOptions& cache) {
  json.key("response_cache").begin_object().key("enable").boolean(cache.enable);
  if (cache.enable) {
    json.key("ttl_ms").unsigned_integer(cache.ttl_ms);
    json.key("max_bytes").unsigned_integer(cache.max_bytes);
    json.key("policy").string(models::kCachePolicyNames[static_cast<size_t>(cache.policy)]);
  }
  json.end_object();
}

void write_controls(JsonWriter& json, const models::SequenceOptions& sequences) {
  json.key("controls").begin_array();
  for (const models::ControlOptions& control : sequences.controls) {
    json.begin_object().key("input").string(control.input);
    json.key("kind").string(models::kControlNames[static_cast<size_t>(control.kind)]);
    if (control.kind != models::ControlOptions::Kind::kId) {
      json.key("values").begin_array().number(control.value_if_false);
      json.number(control.value_if_true).end_array();
    }
    json.end_object();
  }
  json.end_array();
}

void write_sequences(JsonWriter& json, const models::Model& model) {
  const models::SequenceOptions& sequences = model.sequences();
  json.key("sequences").begin_object().key("states").begin_array();
  for (size_t i = 0; i < sequences.states.size(); ++i) {
    const models::TensorSpec& state = model.metadata().sequences.states[i];
    json.begin_object().key("input").string(state.name);
    json.key("output").string(sequences.states[i].output);
    json.key("datatype").string(element_type_name(state.type)).key("shape").begin_array();
    for (const int64_t size : state.shape.dimensions()) json.integer(size);
    json.end_array();
    const std::string& initial_file = sequences.states[i].initial_file;
    if (!initial_file.empty()) json.key("initial_file").string(initial_file);
    json.end_object();
  }
  json.end_array();
  if (!sequences.controls.empty()) write_controls(json, sequences);
  json.key("idle_ms").unsigned_integer(sequences.idle_ms);
  json.key("most").unsigned_integer(sequences.most).end_object();
}

// The config.json's parts about its answers and sequences, the backend that serves the model, and
// the times of each that were measured when it was chosen.
void write_choice(JsonWriter& json, const models::Model& model) {
  const models::BackendChoice& choice = model.choice();
  json.key("parameters").begin_object();
  write_response_cache(json, model.response_cache());
  if (model.metadata().sequences.state_bytes > 0) write_sequences(json, model);
  if (!model.precision().empty()) json.key("precision").string(model.precision());
  if (!model.precision_why().empty()) json.key("precision_why").string(model.precision_why());
  json.key("backend").string(choice.backend);
  json.key("backend_why").string(choice.why);
  if (!choice.operators_not_known.empty()) {
    json.key("operators_not_known").begin_array();
    for (const std::string& one : choice.operators_not_known) json.string(one);
    json.end_array();
  }
  if (!model.why_not_packed().empty()) json.key("not_packed").string(model.why_not_packed());
  json.key("backends_tried").begin_array();
  for (const models::TriedBackend& tried : choice.tried) {
    json.begin_object().key("name").string(tried.name);
    if (!tried.problem.empty()) json.key("problem").string(tried.problem);
    json.key("costs").begin_array();
    for (const models::SizeCost& cost : tried.costs) {
      json.begin_object().key("rows").unsigned_integer(cost.rows);
      json.key("ns").unsigned_integer(cost.ns).end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

void write_duration(JsonWriter& json, std::string_view key, uint64_t count, uint64_t ns) noexcept {
  json.key(key).begin_object().key("count").unsigned_integer(count);
  json.key("ns").unsigned_integer(ns).end_object();
}

void write_model_statistics(JsonWriter& json, const models::Model& model) noexcept {
  const telemetry::ModelCounters counters = model.counters();
  const auto write_time = [&](std::string_view key, telemetry::ModelTime time) {
    write_duration(json, key, counters.total(time.count), counters.total(time.ns));
  };
  json.begin_object().key("name").string(model.metadata().name);
  json.key("version").string(model.metadata().version);
  json.key("last_inference").unsigned_integer(counters.total("last_inference"));
  json.key("inference_count").unsigned_integer(counters.total("inference"));
  json.key("execution_count").unsigned_integer(counters.total("execution"));
  json.key("inference_stats").begin_object();
  write_time("success", "success");
  write_time("fail", "failure");
  write_time("queue", "queue");
  write_time("compute_input", "preprocess");
  write_time("compute_infer", "run");
  write_time("compute_output", "postprocess");
  // Of a model without a cache zero, or perf_analyzer reports an error.
  write_time("cache_hit", "cache_hit");
  write_time("cache_miss", "cache_miss");
  json.end_object();
  json.key("response_stats").begin_object().end_object();
  json.key("batch_stats").begin_array();
  model.batch_times().for_each([&](const models::BatchTimes::Times& times) {
    json.begin_object().key("batch_size").unsigned_integer(times.rows);
    write_duration(json, "compute_input", times.count, times.input_ns);
    write_duration(json, "compute_infer", times.count, times.infer_ns);
    write_duration(json, "compute_output", times.count, times.output_ns);
    json.end_object();
  });
  json.end_array();
  json.key("memory_usage").begin_array().end_array();
  json.end_object();
}

}  // namespace

Documents::Documents() {
  server_metadata_ = json_text([](JsonWriter& json) {
    json.begin_object().key("name").string("lumen").key("version").string(LUMEN_VERSION);
    json.key("extensions").begin_array();
    for (std::string_view extension : kExtensions) json.string(extension);
    json.end_array().end_object();
  });
  grpc_server_metadata_ = describe_server(LUMEN_VERSION, kGrpcExtensions);
}

ModelDocuments Documents::describe(const models::Model& model,
                                   std::span<const std::string> versions) {
  const models::ModelMetadata& metadata = model.metadata();
  ModelDocuments documents;
  documents.metadata = json_text([&](JsonWriter& json) {
    json.begin_object().key("name").string(metadata.name).key("versions").begin_array();
    for (const std::string& version : versions) json.string(version);
    json.end_array();
    if (model.state() == models::ModelState::kReady) {
      json.key("platform").string(metadata.platform);
      write_tensors(json, "inputs", metadata.inputs);
      write_tensors(json, "outputs", metadata.outputs);
    } else {
      // As every refusal has it; whole, while that of a request is cut.
      json.key("error").string(model.reason());
    }
    write_choice(json, model);
    json.end_object();
  });
  documents.ready = json_text([&](JsonWriter& json) {
    json.begin_object().key("name").string(metadata.name);
    json.key("ready").boolean(model.state() == models::ModelState::kReady).end_object();
  });
  if (model.state() == models::ModelState::kReady) {
    documents.config = json_text([&](JsonWriter& json) { write_triton_config(json, model); });
    documents.grpc_metadata = describe_model(model, versions);
  }
  return documents;
}

std::string_view Documents::write_statistics(std::span<char> out, const CatalogSnapshot& catalog,
                                             const models::Model* only) noexcept {
  JsonWriter json(out);
  json.begin_object().key("model_stats").begin_array();
  for (const CatalogModel& entry : catalog.models) {
    const models::Model& model = *entry.model;
    const bool wanted =
        only != nullptr ? &model == only : model.state() == models::ModelState::kReady;
    if (wanted) write_model_statistics(json, model);
  }
  json.end_array().end_object();
  return json.overflowed() ? std::string_view{} : json.text();
}

}  // namespace lumen::service
