// See the header.
#include "service/triton_config.h"

#include <array>
#include <string>
#include <string_view>
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

// The dimensions of a request, without the rows' where the configuration says how many these may
// be.
void write_tensors(JsonWriter& json, std::string_view key,
                   const std::vector<models::TensorSpec>& tensors, bool has_rows) {
  json.key(key).begin_array();
  for (const models::TensorSpec& tensor : tensors) {
    json.begin_object().key("name").string(tensor.name);
    json.key("data_type").string(type_of(tensor.type));
    json.key("dims").begin_array();
    for (const int64_t size : tensor.shape.dimensions().subspan(has_rows ? 1 : 0)) {
      json.integer(size);
    }
    json.end_array().end_object();
  }
  json.end_array();
}

}  // namespace

void write_triton_config(JsonWriter& json, const models::Model& model) {
  const models::ModelMetadata& metadata = model.metadata();
  // Of a model whose rows depend on each other the first axis is one like the others.
  const bool has_rows = has_batch_axis(metadata) && model.why_not_packed().empty();
  json.begin_object().key("name").string(metadata.name);
  json.key("platform").string(metadata.platform);
  json.key("backend").string(model.choice().backend);
  json.key("version_policy").begin_object().key("all").begin_object().end_object().end_object();
  json.key("max_batch_size").unsigned_integer(has_rows ? kConfiguredRows : 0);
  write_tensors(json, "input", metadata.inputs, has_rows);
  write_tensors(json, "output", metadata.outputs, has_rows);
  if (has_rows) json.key("dynamic_batching").begin_object().end_object();
  json.key("response_cache").begin_object().key("enable").boolean(model.response_cache().enable);
  json.end_object();
  json.key("model_transaction_policy").begin_object().key("decoupled").boolean(false);
  json.end_object();
  json.key("parameters").begin_object().key("precision").begin_object();
  json.key("string_value").string(model.precision());
  json.end_object().end_object();
  json.end_object();
}

}  // namespace lumen::service
