// An infer reply's JSON: its longest possible size is computed first, so that memory is taken once
// and no write has to check; the few bytes too many stay in the arena until it is reset.
// Threads: any. Memory: one block from the Allocator.
// Says no: Status naming the tensor.
#include <lumen/base/check.h>
#include <lumen/tensor/bytes_tensor.h>
#include <lumen/wire/oip.h>

#include "wire/appender.h"

#include <algorithm>
#include <cstring>

namespace lumen::wire {
namespace {

size_t longest_string(std::string_view text) noexcept { return 2 + text.size() * kMaxEscapedBytes; }

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
    case ElementType::kFp32: return kMaxNumberText<float> + 1;
    case ElementType::kUint64:
    case ElementType::kInt64:
    case ElementType::kFp64: return kMaxNumberText<double> + 1;
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
  if (output.binary) return bytes;
  if (tensor.type == ElementType::kBytes) {
    // 3 for the quotes and the comma are less than its length field would become: 4 bytes x 6.
    return bytes + tensor.byte_size * kMaxEscapedBytes;
  }
  return bytes + tensor.byte_size / element_size(tensor.type) * longest_element(tensor.type);
}

Status check_output(const ReplyOutput& output) noexcept {
  const TensorView& tensor = output.tensor;
  const int size = static_cast<int>(output.name.size());
  const std::string_view type = element_type_name(tensor.type);
  if (!output.binary && (tensor.type == ElementType::kFp16 || tensor.type == ElementType::kBf16)) {
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
        Code::kInternal, "output '%.*s': the model's %zu bytes of %.*s are not what its shape says",
        size, output.name.data(), tensor.byte_size, static_cast<int>(type.size()), type.data());
  }
  if (tensor.type == ElementType::kBytes && !output.binary) {
    return check_bytes_tensor(output.name, tensor);
  }
  return {};
}

template <typename T>
void put_numbers(Appender& text, const TensorView& tensor) noexcept {
  const std::byte* at = tensor.data;
  for (size_t left = tensor.byte_size / sizeof(T); left > 0; --left, at += sizeof(T)) {
    T value;
    std::memcpy(&value, at, sizeof(T));  // an output may lie at any address
    text.put_number(value);
    if (left > 1) text.put(',');
  }
}

void put_bools(Appender& text, const TensorView& tensor) noexcept {
  for (size_t i = 0; i < tensor.byte_size; ++i) {
    if (i > 0) text.put(',');
    text.put(tensor.data[i] != std::byte{0} ? std::string_view("true") : std::string_view("false"));
  }
}

// check_bytes_tensor() has passed.
void put_strings(Appender& text, const TensorView& tensor) noexcept {
  size_t used = 0;
  while (used < tensor.byte_size) {
    uint32_t length = 0;
    std::memcpy(&length, tensor.data + used, sizeof(length));
    if (used > 0) text.put(',');
    used += sizeof(length);
    text.put_string({reinterpret_cast<const char*>(tensor.data + used), length});
    used += length;
  }
}

void put_data(Appender& text, const TensorView& tensor) noexcept {
  switch (tensor.type) {
    case ElementType::kBool: return put_bools(text, tensor);
    case ElementType::kUint8: return put_numbers<uint8_t>(text, tensor);
    case ElementType::kUint16: return put_numbers<uint16_t>(text, tensor);
    case ElementType::kUint32: return put_numbers<uint32_t>(text, tensor);
    case ElementType::kUint64: return put_numbers<uint64_t>(text, tensor);
    case ElementType::kInt8: return put_numbers<int8_t>(text, tensor);
    case ElementType::kInt16: return put_numbers<int16_t>(text, tensor);
    case ElementType::kInt32: return put_numbers<int32_t>(text, tensor);
    case ElementType::kInt64: return put_numbers<int64_t>(text, tensor);
    case ElementType::kFp32: return put_numbers<float>(text, tensor);
    case ElementType::kFp64: return put_numbers<double>(text, tensor);
    case ElementType::kBytes: return put_strings(text, tensor);
    case ElementType::kFp16:
    case ElementType::kBf16: return;  // check_output() has refused them
  }
}

void put_output(Appender& text, const ReplyOutput& output) noexcept {
  const TensorView& tensor = output.tensor;
  text.put("{\"name\":");
  text.put_string(output.name);
  text.put(",\"datatype\":\"");
  text.put(element_type_name(tensor.type));
  text.put("\",\"shape\":[");
  for (size_t i = 0; i < tensor.shape.rank(); ++i) {
    if (i > 0) text.put(',');
    text.put_number(tensor.shape[i]);
  }
  if (output.binary) {
    text.put("],\"parameters\":{\"binary_data_size\":");
    text.put_unsigned(tensor.byte_size);
    text.put("}}");
    return;
  }
  text.put("],\"data\":[");
  put_data(text, tensor);
  text.put("]}");
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
  Appender text(out);
  text.put("{\"model_name\":");
  text.put_string(reply.model_name);
  text.put(",\"model_version\":");
  text.put_string(reply.model_version);
  if (reply.id) {
    text.put(",\"id\":");
    text.put_string(*reply.id);
  }
  text.put(",\"outputs\":[");
  for (const ReplyOutput& output : reply.outputs) {
    if (&output != reply.outputs.data()) text.put(',');
    put_output(text, output);
  }
  text.put("]}");
  LUMEN_CHECK(text.size() <= longest);
  encoded.json = text.text();
  return encoded;
}

size_t write_error_body(std::span<char> out, std::string_view message) noexcept {
  constexpr std::string_view kBegin = "{\"error\":\"";
  constexpr std::string_view kEnd = "\"}";
  LUMEN_CHECK(out.size() >= kBegin.size() + kEnd.size());
  Appender text(out.data());
  text.put(kBegin);
  const size_t most = out.size() - kEnd.size();
  while (!message.empty()) {
    const size_t plain = std::min(plain_prefix(message), most - text.size());
    text.put(message.substr(0, plain));
    message.remove_prefix(plain);
    if (message.empty()) break;
    const EscapedCharacter character = escape_character(message);
    if (text.size() + character.size > most) break;
    text.put(std::string_view(character.bytes, character.size));
    message.remove_prefix(character.consumed);
  }
  text.put(kEnd);
  return text.size();
}

}  // namespace lumen::wire
