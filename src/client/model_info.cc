// Reads a model's metadata and writes infer requests. Control plane; the heap; as model_info.h
// says.
#include <lumen/client/model_info.h>
#include <lumen/tensor/type_text.h>
#include <lumen/wire/grpc_infer.h>
#include <lumen/wire/protobuf.h>

#include <lumen/client/fetch.h>
#include "client/bus_load.h"
#include "client/grpc_call.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

namespace lumen::client {

namespace {

using Json = nlohmann::ordered_json;

Status bad_metadata(const char* why) {
  return Status::error(Code::kInternal, "the server's metadata: %s", why);
}

Result<TensorInfo> parse_tensor(const Json& json) {
  TensorInfo tensor;
  const auto name = json.find("name");
  const auto datatype = json.find("datatype");
  const auto shape = json.find("shape");
  if (name == json.end() || datatype == json.end() || shape == json.end() || !name->is_string() ||
      !datatype->is_string() || !shape->is_array()) {
    return bad_metadata("an input without name, datatype and shape");
  }
  tensor.name = name->get<std::string>();
  const auto type = parse_element_type(datatype->get_ref<const std::string&>());
  if (!type) return bad_metadata("an input of an unknown datatype");
  tensor.type = *type;
  for (const Json& dimension : *shape) {
    if (!dimension.is_number_integer()) return bad_metadata("a dimension that is no integer");
    if (!tensor.shape.append(dimension.get<int64_t>())) return bad_metadata("over 8 dimensions");
  }
  return tensor;
}

// The protocol's error text, or the body as it is.
std::string error_text(const Reply& reply) {
  const Json json = Json::parse(reply.body, nullptr, false);
  if (json.is_object() && json.contains("error") && json["error"].is_string()) {
    return json["error"].get<std::string>();
  }
  return reply.body.substr(0, 200);
}

template <typename Value>
void append_value(std::string& bytes, Value value) {
  char raw[sizeof(value)];
  std::memcpy(raw, &value, sizeof(value));
  bytes.append(raw, sizeof(value));
}

// One element; the protocol is little-endian, and so is every machine that Lumen runs on.
static_assert(std::endian::native == std::endian::little);
void append_random(std::string& bytes, ElementType type, std::mt19937_64& random) {
  const uint64_t bits = random();
  switch (type) {
    case ElementType::kFp32: return append_value(bytes, static_cast<float>(bits >> 40) * 0x1p-24f);
    case ElementType::kFp64: return append_value(bytes, static_cast<double>(bits >> 11) * 0x1p-53);
    // Random mantissas under one exponent: [0.5, 1).
    case ElementType::kFp16:
      return append_value(bytes, static_cast<uint16_t>(0x3800 | (bits & 0x3ff)));
    case ElementType::kBf16:
      return append_value(bytes, static_cast<uint16_t>(0x3f00 | (bits & 0x7f)));
    case ElementType::kBool: bytes += static_cast<char>(bits & 1); return;
    case ElementType::kBytes:
      append_value(bytes, uint32_t{8});
      for (int i = 0; i < 8; ++i) bytes += static_cast<char>('a' + (bits >> (4 * i)) % 16);
      return;
    default: break;
  }
  bytes += static_cast<char>(bits & 7);
  bytes.append(element_size(type) - 1, '\0');
}

}  // namespace

Result<ModelInfo> parse_model_info(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string() ||
      !json.contains("inputs") || !json["inputs"].is_array()) {
    return bad_metadata("no JSON object with name and inputs; is this an inference server?");
  }
  ModelInfo info;
  info.name = json["name"].get<std::string>();
  for (const Json& input : json["inputs"]) {
    auto tensor = parse_tensor(input);
    if (!tensor.ok()) return tensor.status();
    info.inputs.push_back(std::move(*tensor));
  }
  return info;
}

Result<ModelInfo> read_model_info(const Target& target, const std::string& name,
                                  const std::string& version) {
  if (target.is_bus()) {
    auto document = fetch_over_bus(target, wire::BusVerb::kModelMetadata, name, version);
    if (!document.ok()) return document.status();
    auto info = parse_model_info(*document);
    if (info.ok()) info->version = version;
    return info;
  }
  if (target.is_grpc) return read_model_info_by_grpc(target, name, version);
  const std::string suffix = version.empty() ? "" : "/versions/" + version;
  auto reply = fetch(target, "/v2/models/" + name + suffix);
  if (!reply.ok()) return reply.status();
  if (reply->status != 200) {
    return Status::error(Code::kNotFound, "%s answered %d for model '%s': %s", target.url.c_str(),
                         reply->status, name.c_str(), error_text(*reply).c_str());
  }
  auto info = parse_model_info(reply->body);
  if (info.ok()) info->version = version;
  return info;
}

InputTensor random_input(const TensorInfo& info, uint64_t seed) {
  InputTensor input{info.name, info.type, info.shape, {}};
  for (size_t i = 0; i < input.shape.rank(); ++i) {
    if (input.shape[i] < 0) input.shape[i] = 1;
  }
  std::mt19937_64 random(seed);
  const size_t count = input.shape.element_count().value_or(0);
  for (size_t i = 0; i < count; ++i) append_random(input.bytes, info.type, random);
  return input;
}

Result<InputTensor> input_of_file(const TensorInfo& info, NpyFile file, std::string_view name) {
  const std::string wanted = type_text(info.type, info.shape);
  if (file.type != info.type) {
    const std::string_view numpy = numpy_name(info.type);
    return Status::error(Code::kInvalidArgument, "%.*s holds %s; input '%s' wants %s%s%.*s%s",
                         static_cast<int>(name.size()), name.data(),
                         type_text(file.type, file.shape).c_str(), info.name.c_str(),
                         wanted.c_str(),
                         numpy.empty() ? ", which NumPy has no type for" : ": arr.astype('",
                         static_cast<int>(numpy.size()), numpy.data(), numpy.empty() ? "" : "')");
  }
  if (!info.shape.accepts(file.shape)) {
    return Status::error(Code::kInvalidArgument, "%.*s holds %s; input '%s' wants %s, -1 being any",
                         static_cast<int>(name.size()), name.data(),
                         type_text(file.type, file.shape).c_str(), info.name.c_str(),
                         wanted.c_str());
  }
  return InputTensor{info.name, info.type, file.shape, std::move(file.bytes)};
}

std::string build_request(const Target& target, const ModelInfo& model,
                          const std::vector<InputTensor>& inputs, std::string_view id,
                          ConnectionUse use, SequencePlaces* sequence) {
  Json document = Json::object();
  if (!id.empty()) document["id"] = id;
  document["inputs"] = Json::array();
  size_t payload_bytes = 0;
  for (const InputTensor& input : inputs) {
    const auto dimensions = input.shape.dimensions();
    document["inputs"].push_back(
        {{"name", input.name},
         {"shape", std::vector<int64_t>(dimensions.begin(), dimensions.end())},
         {"datatype", element_type_name(input.type)},
         {"parameters", {{"binary_data_size", input.bytes.size()}}}});
    payload_bytes += input.bytes.size();
  }
  document["parameters"] = {{"binary_data_output", true}};
  if (sequence != nullptr) {
    document["parameters"]["sequence_id"] = SequencePlace::kLeastId;
    document["parameters"]["sequence_start"] = false;
    document["parameters"]["sequence_end"] = false;
  }
  const std::string json = document.dump();
  const std::string version = model.version.empty() ? "" : "/versions/" + model.version;
  std::string request = "POST " + target.base_path + "/v2/models/" + model.name + version +
                        "/infer HTTP/1.1\r\nHost: " + target.host + "\r\n" + target.head_lines +
                        "Content-Length: " + std::to_string(json.size() + payload_bytes) +
                        "\r\nInference-Header-Content-Length: " + std::to_string(json.size()) +
                        "\r\n";
  if (use == ConnectionUse::kOneRequest) request += "Connection: close\r\n";
  request += "\r\n" + json;
  if (sequence != nullptr) {
    // The parameters are the last of the document.
    const auto behind = [&request](std::string_view key) {
      return request.rfind(key) + key.size();
    };
    *sequence = {.id = behind("\"sequence_id\":"),
                 .starts = behind("\"sequence_start\":"),
                 .ends = behind("\"sequence_end\":")};
  }
  for (const InputTensor& input : inputs) request += input.bytes;
  return request;
}

namespace {

// A field of a message.
void add_field(std::string& message, uint32_t number, std::string_view bytes) {
  const size_t begin = message.size();
  message.resize(begin + wire::field_bytes(bytes.size()));
  wire::ProtobufWriter(message.data() + begin).text(number, bytes);
}

// An InferInputTensor.
std::string grpc_input(const InputTensor& input) {
  std::string shape;
  for (const int64_t dimension : input.shape.dimensions()) {
    const auto value = static_cast<uint64_t>(dimension);
    const size_t begin = shape.size();
    shape.resize(begin + wire::varint_bytes(value));
    wire::ProtobufWriter(shape.data() + begin).varint(value);
  }
  std::string message;
  add_field(message, 1, input.name);
  add_field(message, 2, element_type_name(input.type));
  add_field(message, 3, shape);
  return message;
}

}  // namespace

// One of the request's parameters, a number or a truth by the field of its value. Returns where the
// value's varint begins.
size_t add_parameter(std::string& request, std::string_view name, uint32_t field, uint64_t value) {
  constexpr uint32_t kParameters = 4;
  std::string parameter(1 + wire::varint_bytes(value), '\0');
  wire::ProtobufWriter writer(parameter.data());
  writer.varint(uint64_t{field} << 3);  // of a varint
  writer.varint(value);
  std::string entry;
  add_field(entry, 1, name);
  add_field(entry, 2, parameter);
  add_field(request, kParameters, entry);
  return request.size() - wire::varint_bytes(value);
}

std::string build_grpc_request(const ModelInfo& model, const std::vector<InputTensor>& inputs,
                               SequencePlaces* sequence) {
  std::string message(wire::kGrpcPrefixBytes, '\0');
  add_field(message, 1, model.name);
  if (!model.version.empty()) add_field(message, 2, model.version);
  if (sequence != nullptr) {
    constexpr uint32_t kTruth = 1;
    constexpr uint32_t kNumber = 2;
    *sequence = {.id = add_parameter(message, "sequence_id", kNumber, SequencePlace::kLeastId),
                 .starts = add_parameter(message, "sequence_start", kTruth, 1),
                 .ends = add_parameter(message, "sequence_end", kTruth, 1),
                 .is_grpc = true};
  }
  for (const InputTensor& input : inputs) add_field(message, 5, grpc_input(input));
  for (const InputTensor& input : inputs) add_field(message, 7, input.bytes);
  wire::write_grpc_prefix(message.data(), message.size() - wire::kGrpcPrefixBytes);
  return message;
}

size_t input_at(const Target& target, std::string_view request,
                const std::vector<InputTensor>& inputs, size_t index) {
  size_t at = request.size();
  for (size_t i = inputs.size(); i > index; --i) {
    const size_t bytes = inputs[i - 1].bytes.size();
    at -= bytes;
    // The field's head lies between the input and the one before it.
    if (target.is_grpc && i - 1 > index) at -= wire::field_bytes(bytes) - bytes;
  }
  return at;
}

}  // namespace lumen::client
