// An infer reply's JSON: its longest possible size is computed first, so that memory is taken once;
// the few bytes too many stay in the region until it is reset.
// Threads: any. Memory: one block from the Allocator. Errors: Status naming the tensor.
#include <lumen/base/check.h>
#include <lumen/tensor/bytes_tensor.h>
#include <lumen/wire/json_writer.h>
#include <lumen/wire/oip.h>

#include <cstring>
#include <type_traits>

namespace lumen::wire {
namespace {

size_t longest_string(std::string_view text) noexcept {
  return 2 + text.size() * JsonWriter::kMaxEscapedBytes;
}

// Longest text of one element, its comma included.
size_t longest_element(ElementType type) noexcept {
  switch (type) {
    case ElementType::kBool: return 6;
    case ElementType::kUint8:
    case ElementType::kInt8: return 5;
    case ElementType::kUint16:
    case ElementType::kInt16: return 7;
    case ElementType::kUint32:
    case ElementType::kInt32: return 12;
    case ElementType::kFp32: return JsonWriter::kMaxNumberBytes<float> + 1;
    case ElementType::kUint64:
    case ElementType::kInt64:
    case ElementType::kFp64: return JsonWriter::kMaxNumberBytes<double> + 1;
    case ElementType::kFp16:
    case ElementType::kBf16:
    case ElementType::kBytes: return 0;
  }
  return 0;
}

// The keys, brackets and numbers around an output's name and data.
constexpr size_t kFixedBytes = 160;
constexpr size_t kDimensionBytes = 21;

size_t longest_output(const ReplyOutput& output) noexcept {
  const TensorView& tensor = output.tensor;
  size_t bytes = kFixedBytes + longest_string(output.name) + tensor.shape.rank() * kDimensionBytes;
  if (output.binary || output.is_elsewhere) return bytes;
  if (tensor.type == ElementType::kBytes) {
    // 3 for the quotes and the comma are less than its length field would become: 4 bytes x 6.
    return bytes + tensor.byte_size * JsonWriter::kMaxEscapedBytes;
  }
  return bytes + tensor.byte_size / element_size(tensor.type) * longest_element(tensor.type);
}

Status check_output(const ReplyOutput& output) noexcept {
  const TensorView& tensor = output.tensor;
  const int size = static_cast<int>(output.name.size());
  const std::string_view type = element_type_name(tensor.type);
  const bool is_text = !output.binary && !output.is_elsewhere;
  if (is_text && (tensor.type == ElementType::kFp16 || tensor.type == ElementType::kBf16)) {
    return Status::error(Code::kInvalidArgument,
                         "output '%.*s': %.*s has no form in JSON; ask for it with 'parameters': "
                         "{'binary_data': true}",
                         size, output.name.data(), static_cast<int>(type.size()), type.data());
  }
  const size_t elements = tensor.shape.element_count().value_or(SIZE_MAX);
  const bool fits =
      tensor.type == ElementType::kBytes ||
      (elements <= SIZE_MAX / 8 && tensor.byte_size == elements * element_size(tensor.type));
  if (!fits || (tensor.data == nullptr && tensor.byte_size > 0)) {
    return Status::error(
        Code::kInternal, "output '%.*s': the model's %zu bytes of %.*s do not fit its shape", size,
        output.name.data(), tensor.byte_size, static_cast<int>(type.size()), type.data());
  }
  if (tensor.type == ElementType::kBytes && is_text) {
    return check_bytes_tensor(output.name, tensor);
  }
  return {};
}

template <typename T>
void put_numbers(JsonWriter& json, const TensorView& tensor) noexcept {
  const std::byte* at = tensor.data;
  for (size_t left = tensor.byte_size / sizeof(T); left > 0; --left, at += sizeof(T)) {
    T value;
    std::memcpy(&value, at, sizeof(T));  // an output may lie at any address
    if constexpr (std::is_floating_point_v<T>) {
      json.number(value);
    } else if constexpr (std::is_signed_v<T>) {
      json.integer(value);
    } else {
      json.unsigned_integer(value);
    }
  }
}

void put_bools(JsonWriter& json, const TensorView& tensor) noexcept {
  for (size_t i = 0; i < tensor.byte_size; ++i) json.boolean(tensor.data[i] != std::byte{0});
}

// check_bytes_tensor() has passed.
void put_strings(JsonWriter& json, const TensorView& tensor) noexcept {
  size_t used = 0;
  while (used < tensor.byte_size) {
    uint32_t length = 0;
    std::memcpy(&length, tensor.data + used, sizeof(length));
    used += sizeof(length);
    json.string({reinterpret_cast<const char*>(tensor.data + used), length});
    used += length;
  }
}

void put_data(JsonWriter& json, const TensorView& tensor) noexcept {
  switch (tensor.type) {
    case ElementType::kBool: return put_bools(json, tensor);
    case ElementType::kUint8: return put_numbers<uint8_t>(json, tensor);
    case ElementType::kUint16: return put_numbers<uint16_t>(json, tensor);
    case ElementType::kUint32: return put_numbers<uint32_t>(json, tensor);
    case ElementType::kUint64: return put_numbers<uint64_t>(json, tensor);
    case ElementType::kInt8: return put_numbers<int8_t>(json, tensor);
    case ElementType::kInt16: return put_numbers<int16_t>(json, tensor);
    case ElementType::kInt32: return put_numbers<int32_t>(json, tensor);
    case ElementType::kInt64: return put_numbers<int64_t>(json, tensor);
    case ElementType::kFp32: return put_numbers<float>(json, tensor);
    case ElementType::kFp64: return put_numbers<double>(json, tensor);
    case ElementType::kBytes: return put_strings(json, tensor);
    case ElementType::kFp16:
    case ElementType::kBf16: return;  // check_output() has refused them
  }
}

void put_output(JsonWriter& json, const ReplyOutput& output) noexcept {
  const TensorView& tensor = output.tensor;
  json.begin_object().key("name").string(output.name);
  json.key("datatype").string(element_type_name(tensor.type));
  json.key("shape").begin_array();
  for (const int64_t dimension : tensor.shape.dimensions()) json.integer(dimension);
  json.end_array();
  if (output.binary) {
    json.key("parameters").begin_object();
    json.key("binary_data_size").unsigned_integer(tensor.byte_size).end_object();
  } else if (!output.is_elsewhere) {
    json.key("data").begin_array();
    put_data(json, tensor);
    json.end_array();
  }
  json.end_object();
}

}  // namespace

Result<EncodedReply> encode_infer_reply(const InferReply& reply, Allocator& memory) noexcept {
  EncodedReply encoded;
  size_t longest = kFixedBytes + longest_string(reply.model_name) +
                   longest_string(reply.model_version) + longest_string(reply.id.value_or(""));
  for (const ReplyOutput& output : reply.outputs) {
    LUMEN_RETURN_IF_ERROR(check_output(output));
    longest += longest_output(output);
    encoded.has_binary |= output.binary;
    if (output.binary) encoded.binary_bytes += output.tensor.byte_size;
  }
  char* const out = static_cast<char*>(memory.allocate(longest, 1));
  if (out == nullptr) {
    return Status::error(Code::kTooLarge,
                         "the reply's JSON of up to %zu bytes does not fit into the request's "
                         "memory; ask for the outputs with 'binary_data': true",
                         longest);
  }
  JsonWriter json({out, longest});
  json.write_non_finite_as(reply.non_finite);
  json.begin_object().key("model_name").string(reply.model_name);
  json.key("model_version").string(reply.model_version);
  if (reply.id) json.key("id").string(*reply.id);
  json.key("outputs").begin_array();
  for (const ReplyOutput& output : reply.outputs) put_output(json, output);
  json.end_array().end_object();
  LUMEN_CHECK(!json.overflowed());
  encoded.json = json.text();
  return encoded;
}

size_t write_error_body(std::span<char> out, std::string_view message) noexcept {
  LUMEN_CHECK(out.size() >= std::string_view("{\"error\":\"\"}").size());
  // Room for the end is kept back, so that a message that is cut is a document all the same.
  JsonWriter json(out.first(out.size() - 2));
  json.begin_object().key("error").string(message);
  const std::string_view end = json.overflowed() ? "\"}" : "}";
  return json.text().size() + end.copy(out.data() + json.text().size(), end.size());
}

}  // namespace lumen::wire
