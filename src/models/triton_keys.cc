// See the header.
#include "models/triton_keys.h"

#include <lumen/base/limits.h>

#include <nlohmann/json.hpp>

#include "models/ensemble_config.h"
#include "models/json_text.h"
#include "models/sequence_config.h"
#include "models/triton_values.h"
#include "models/warm_up_config.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

namespace lumen::models {
namespace {

using Json = nlohmann::json;

// Protobuf's own bound, and far above any batch.
constexpr int64_t kMostRows = INT32_MAX;

// Of no use here, and refused unless they are empty: each would change answers or limits.
constexpr std::array<std::string_view, 8> kOnlyDefault = {
    "batch_input",   "batch_output",     "cc_model_filenames",
    "metric_tags",   "model_operations", "model_repository_agents",
    "model_metrics", "runtime"};

// Reads one key; empty: it is read.
using Reader = std::string (*)(const Json& document, const Json& value, ModelOptions& options);

std::string read_name(const Json&, const Json& value, ModelOptions& options) {
  if (!value.is_string()) return got_wanted("name", value, "the model's name");
  options.stated.name = value.get<std::string>();
  return {};
}

// "onnxruntime_onnx": the part before the file's form is the backend's name.
std::string read_platform(const Json& document, const Json& value, ModelOptions& options) {
  const std::string text = value.is_string() ? value.get<std::string>() : "?";
  if (text.empty()) return {};
  if (text == "ensemble" && options.ensemble.steps.empty()) {
    return got_wanted("platform", value, "it beside \"ensemble_scheduling\" alone");
  }
  if (text == "ensemble") return {};
  const std::string backend = text.substr(0, text.find('_'));
  const auto named = document.find("backend");
  const bool is_other = named != document.end() && *named != backend && *named != "auto";
  if (!value.is_string() || backend.empty() || is_other) {
    return got_wanted("platform", value,
                      "\"onnxruntime_onnx\" or \"openvino\", as \"backend\" says; leave it out");
  }
  if (named == document.end()) options.backend = backend;
  return {};
}

std::string read_scheduling(const Json&, const Json& value, ModelOptions& options) {
  return read_ensemble_scheduling(value, options.ensemble);
}

std::string read_sequence_scheduling(const Json& document, const Json& value,
                                     ModelOptions& options) {
  // Even a strategy alone says that the model keeps a state.
  if (value.is_object() && value.empty()) return {};
  if (document.contains("sequences")) {
    return "keys \"sequences\" and \"sequence_batching\" are both given; keep one";
  }
  return read_sequence_batching(value, options.sequences);
}

std::string read_version_policy(const Json& document, const Json& value, ModelOptions& options) {
  if (document.contains("versions")) {
    return "keys \"versions\" and \"version_policy\" are both given; keep one";
  }
  using Kind = VersionPolicy::Kind;
  VersionPolicy& policy = options.versions;
  const auto is = [&](const char* key) {
    return value.is_object() && value.size() == 1 && value.contains(key) && value[key].is_object();
  };
  if (is("all") || (value.is_object() && value.empty())) return {};
  if (is("latest")) {
    const Json latest = value["latest"].value("num_versions", Json(1));
    const auto most = static_cast<int64_t>(limits::kMaxModels);
    if (const auto number = integer_within(latest, 1, most)) {
      policy.kind = Kind::kLatest;
      policy.latest = static_cast<uint32_t>(*number);
      return {};
    }
  }
  if (is("specific")) {
    std::vector<int64_t> numbers;
    const Json listed = value["specific"].value("versions", Json());
    for (const Json& one : listed.is_array() ? listed : Json::array()) {
      numbers.push_back(integer_within(one, 1, INT64_MAX).value_or(0));
    }
    std::ranges::sort(numbers);
    const bool is_twice = std::ranges::adjacent_find(numbers) != numbers.end();
    if (!numbers.empty() && numbers.front() > 0 && !is_twice) {
      policy.kind = Kind::kListed;
      for (const int64_t number : numbers) policy.listed.push_back(std::to_string(number));
      return {};
    }
  }
  return got_wanted("version_policy", value,
                    "{\"all\": {}}, {\"latest\": {\"num_versions\": 1}} or "
                    "{\"specific\": {\"versions\": [1, 3]}}");
}

std::string read_max_batch_size(const Json&, const Json& value, ModelOptions& options) {
  const auto rows = integer_within(value, 0, kMostRows);
  if (!rows) return got_wanted("max_batch_size", value, "a whole number of 0 or more");
  options.stated.max_batch_size = static_cast<uint32_t>(*rows);
  return {};
}

std::string read_tensor(const std::string& path, const Json& value, StatedTensor& tensor) {
  if (!value.is_object()) return got_wanted(path, value, "an object, as {\"name\": \"x\"}");
  const Json none;
  const auto at = [&](const char* key) -> const Json& {
    const auto found = value.find(key);
    return found == value.end() ? none : *found;
  };
  if (!at("name").is_string()) return got_wanted(path + ".name", at("name"), "a tensor's name");
  tensor.name = at("name").get<std::string>();
  const auto type = triton_type(at("data_type"));
  if (!type) return got_wanted(path + ".data_type", at("data_type"), "a type, as \"TYPE_FP32\"");
  tensor.type = *type;
  const auto dims = triton_dims(at("dims"));
  if (!dims) {
    return got_wanted(
        path + ".dims", at("dims"),
        "a list of at most " + std::to_string(limits::kMaxRank) + " sizes, -1 for a free one");
  }
  tensor.dims = *dims;
  for (const auto& [key, one] : value.items()) {
    const bool is_read = key == "name" || key == "data_type" || key == "dims";
    if (is_read || is_default(one)) continue;
    if (key == "label_filename" && one == "labels.txt") continue;
    std::string place = path;
    return got_wanted(place.append(".").append(key), one, "none: this server can't follow it");
  }
  return {};
}

std::string read_tensors(const std::string& key, const Json& value,
                         std::vector<StatedTensor>& tensors) {
  if (!value.is_array() || value.size() > limits::kMaxTensors) {
    return got_wanted(key, value,
                      "a list of at most " + std::to_string(limits::kMaxTensors) + " tensors");
  }
  for (const Json& one : value) {
    std::string path = key;
    path.append("[").append(std::to_string(tensors.size())).append("]");
    std::string problem = read_tensor(path, one, tensors.emplace_back());
    if (!problem.empty()) return problem;
  }
  return {};
}

std::string read_input(const Json&, const Json& value, ModelOptions& options) {
  return read_tensors("input", value, options.stated.inputs);
}

std::string read_output(const Json&, const Json& value, ModelOptions& options) {
  return read_tensors("output", value, options.stated.outputs);
}

// Triton's executions of a model at a time are our instances.
std::string read_instance_group(const Json& document, const Json& value, ModelOptions& options) {
  if (document.contains("instances") || document.contains("workers")) {
    return "key \"instance_group\" is given beside \"instances\" or \"workers\"; keep one";
  }
  const std::string wanted = "a list of groups, as [{\"count\": 2, \"kind\": \"KIND_CPU\"}]";
  int64_t instances = 0;
  for (const Json& group : value.is_array() ? value : Json::array({Json()})) {
    if (!group.is_object()) return got_wanted("instance_group", value, wanted);
    for (const auto& [key, one] : group.items()) {
      if (key == "name" || key == "count" || is_default(one)) continue;
      const bool is_cpu = one == "KIND_CPU" || one == "KIND_AUTO" || one == "KIND_MODEL";
      if (key == "kind" && is_cpu) continue;
      return got_wanted("instance_group." + key, one,
                        key == "kind" ? "\"KIND_CPU\" or \"KIND_AUTO\"; \"backend\" names a device"
                                      : "none: this server can't follow it");
    }
    const auto count = integer_within(group.value("count", Json(1)), 0, limits::kMaxWorkers);
    if (!count) return got_wanted("instance_group", value, wanted);
    instances += std::max<int64_t>(*count, 1);  // 0 in protobuf: not said
  }
  const auto most = static_cast<int64_t>(limits::kMaxWorkers);
  options.scheduling.instances = static_cast<uint32_t>(std::min(instances, most));
  return {};
}

// A request never waits for others to come, so preferred sizes and the longest wait say nothing.
std::string read_dynamic_batching(const Json&, const Json& value, ModelOptions&) {
  if (!value.is_object()) return got_wanted("dynamic_batching", value, "an object");
  for (const auto& [key, one] : value.items()) {
    const bool is_free = key == "preferred_batch_size" || key == "max_queue_delay_microseconds" ||
                         key == "preserve_ordering";
    if (is_free || is_default(one)) continue;
    return got_wanted("dynamic_batching." + key, one,
                      "none: priorities and the queue's bounds are the server's settings");
  }
  return {};
}

std::string read_transactions(const Json&, const Json& value, ModelOptions&) {
  if (is_default(value)) return {};
  return got_wanted("model_transaction_policy", value,
                    "{\"decoupled\": false}: one reply a request");
}

std::string read_parameters(const Json& document, const Json& value, ModelOptions& options) {
  if (!value.is_object()) return got_wanted("parameters", value, "an object");
  for (const auto& [key, one] : value.items()) {
    const Json text = one.is_object() ? one.value("string_value", Json()) : Json();
    const bool is_taken = key == "precision" && !document.contains("precision");
    const bool is_precision = text == "f32" || text == "bf16" || text == "auto";
    if (is_taken && is_precision) {
      options.precision = text == "f32"    ? Precision::kF32
                          : text == "bf16" ? Precision::kBf16
                                           : Precision::kAuto;
      continue;
    }
    // A quantised version says its own precision, which is that of its file.
    if (is_taken && text == "int8") continue;
    return got_wanted("parameters." + key, one,
                      "none but {\"precision\": {\"string_value\": \"f32\"}}; settings of the "
                      "server are flags");
  }
  return {};
}

// Memory that a GPU may reach is of no use on a CPU.
std::string read_optimization(const Json&, const Json& value, ModelOptions&) {
  if (!value.is_object()) return got_wanted("optimization", value, "an object");
  for (const auto& [key, one] : value.items()) {
    if (key == "input_pinned_memory" || key == "output_pinned_memory" || is_default(one)) continue;
    return got_wanted("optimization." + key, one, "none: \"backend\" names one that optimises");
  }
  return {};
}

std::string read_file_name(const Json&, const Json& value, ModelOptions&) {
  if (is_default(value) || value == "model.onnx" || value == "model.xml") return {};
  return got_wanted("default_model_filename", value, "\"model.onnx\" or \"model.xml\"");
}

// An entry as the key "warmup" has it.
Json warm_up_of(const Json& entry, bool has_rows) {
  Json inputs = Json::array();
  const Json stated = entry.value("inputs", Json::object());
  for (const auto& [name, one] : stated.items()) {
    Json shape = one.value("dims", Json::array());
    for (Json& size : shape) {
      if (const auto number = integer_within(size, 0, INT64_MAX))
        size = static_cast<uint64_t>(*number);
    }
    const Json rows = entry.value("batch_size", Json(0));
    if (has_rows && shape.is_array())
      shape.insert(shape.begin(), is_default(rows) ? Json(1U) : rows);
    const auto type = triton_type(one.value("data_type", Json()));
    Json input = {{"name", name}, {"shape", std::move(shape)}};
    if (type) input["datatype"] = element_type_name(*type);
    if (one.value("zero_data", Json(false)) == true) input["data"] = "zeros";
    if (one.contains("input_data_file")) input["data"] = one["input_data_file"];
    inputs.push_back(std::move(input));
  }
  Json request = {{"inputs", std::move(inputs)}};
  const Json count = entry.value("count", Json(0));
  if (!is_default(count)) request["count"] = count;
  return request;
}

std::string read_model_warmup(const Json& document, const Json& value, ModelOptions& options) {
  if (document.contains("warmup")) {
    return "keys \"warmup\" and \"model_warmup\" are both given; keep one";
  }
  const bool has_rows = !is_default(document.value("max_batch_size", Json(0)));
  Json requests = Json::array();
  for (const Json& entry : value.is_array() ? value : Json::array({Json()})) {
    const auto inputs = entry.is_object() ? entry.value("inputs", Json::object()) : Json();
    const auto is_object = [](const auto& one) { return one.value().is_object(); };
    if (!inputs.is_object() || !std::ranges::all_of(inputs.items(), is_object)) {
      return got_wanted("model_warmup", value,
                        "a list, as [{\"inputs\": {\"x\": {\"data_type\": \"TYPE_FP32\", \"dims\": "
                        "[4], \"zero_data\": true}}}]");
    }
    requests.push_back(warm_up_of(entry, has_rows));
  }
  return read_warm_up(requests, options.warm_up);
}

constexpr std::array<std::pair<std::string_view, Reader>, 15> kReaders = {{
    {"ensemble_scheduling", read_scheduling},
    {"sequence_batching", read_sequence_scheduling},
    {"name", read_name},
    {"platform", read_platform},
    {"version_policy", read_version_policy},
    {"max_batch_size", read_max_batch_size},
    {"input", read_input},
    {"output", read_output},
    {"instance_group", read_instance_group},
    {"dynamic_batching", read_dynamic_batching},
    {"model_transaction_policy", read_transactions},
    {"parameters", read_parameters},
    {"optimization", read_optimization},
    {"default_model_filename", read_file_name},
    {"model_warmup", read_model_warmup},
}};

bool is_only_default(std::string_view key) noexcept {
  return std::ranges::find(kOnlyDefault, key) != kOnlyDefault.end();
}

}  // namespace

bool is_triton_key(std::string_view key) noexcept {
  const auto name_of = [](const auto& reader) { return reader.first; };
  return is_only_default(key) || std::ranges::find(kReaders, key, name_of) != kReaders.end();
}

std::string read_triton_keys(const Json& document, ModelOptions& options) {
  for (const auto& [key, value] : document.items()) {
    if (is_only_default(key) && !is_default(value)) {
      return got_wanted(key, value, "none: this server can't follow it");
    }
  }
  for (const auto& [key, read] : kReaders) {
    const auto found = document.find(key);
    if (found == document.end() || found->is_null()) continue;
    std::string problem = read(document, *found, options);
    if (!problem.empty()) return problem;
  }
  return {};
}

}  // namespace lumen::models
