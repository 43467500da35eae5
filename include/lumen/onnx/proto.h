// Fields of a message in protobuf's wire format, of which ONNX files are made.
// Threads: any. Memory: none, but of MessageWriter; views of the file. Errors: nullopt for bytes
// that are no message. Format: onnx.proto3 of ONNX 1.x.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lumen::onnx {

using Bytes = std::span<const std::byte>;

// Numbers of fields in onnx.proto3, by message.
enum ModelField : uint32_t { kIrVersion = 1, kGraph = 7, kOpsetImport = 8, kFunctions = 25 };
enum OpsetField : uint32_t { kOpsetDomain = 1, kOpsetVersion = 2 };
enum FunctionField : uint32_t { kFunctionName = 1, kFunctionDomain = 10 };
enum GraphField : uint32_t {
  kNode = 1,
  kInitializer = 5,
  kGraphInput = 11,
  kOutput = 12,
  kValueInfo = 13,
  kSparseInitializer = 15
};
enum NodeField : uint32_t {
  kInput = 1,
  kNodeOutput = 2,
  kNodeName = 3,
  kOpType = 4,
  kAttribute = 5,
  kNodeDomain = 7
};
enum AttributeField : uint32_t {
  kAttributeName = 1,
  kAttributeFloat = 2,
  kAttributeInt = 3,
  kAttributeString = 4,
  kAttributeTensor = 5,
  kAttributeGraph = 6,
  kFloats = 7,
  kInts = 8,
  kStrings = 9,
  kAttributeType = 20,
  kReferredName = 21  // of an attribute of the function around the node
};
enum TensorField : uint32_t {
  kDims = 1,
  kDataType = 2,
  kFloatData = 4,
  kInt32Data = 5,
  kInt64Data = 7,
  kTensorName = 8,
  kRawData = 9,
  kDataLocation = 14
};
enum ValueField : uint32_t { kValueName = 1, kValueType = 2 };
enum TypeField : uint32_t { kTensorType = 1 };
enum TensorTypeField : uint32_t { kElementType = 1, kShape = 2 };
enum ShapeField : uint32_t { kAxis = 1 };
enum AxisField : uint32_t { kSize = 1, kSymbol = 2 };
enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

inline std::string_view text_of(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// One field of a message. `whole` has its tag too; `payload` is empty for numbers.
struct Field {
  uint32_t number = 0;
  WireType type{};
  Bytes whole;
  Bytes payload;
  uint64_t value = 0;
};

// A message's fields, one after the other.
class Fields {
 public:
  explicit Fields(Bytes message) : rest_(message) {}

  // nullopt at the end, and where the bytes are no message: see is_whole().
  std::optional<Field> next() {
    const Bytes begin = rest_;
    Field field;
    const std::optional<uint64_t> tag = take_varint();
    if (!tag) return std::nullopt;
    field.number = static_cast<uint32_t>(*tag >> 3);
    field.type = static_cast<WireType>(*tag & 7);
    std::optional<uint64_t> number = 0;  // the value, or how many bytes follow
    if (field.type == kVarint || field.type == kBytes) number = take_varint();
    if (!number) return std::nullopt;
    uint64_t size = 0;
    switch (field.type) {
      case kVarint: field.value = *number; break;
      case kFixed64: size = 8; break;
      case kFixed32: size = 4; break;
      case kBytes: size = *number; break;
      default: return std::nullopt;
    }
    if (size > rest_.size()) return std::nullopt;
    field.payload = rest_.first(size);
    rest_ = rest_.subspan(size);
    field.whole = begin.first(begin.size() - rest_.size());
    return field;
  }
  [[nodiscard]] bool is_whole() const noexcept { return rest_.empty(); }

 private:
  std::optional<uint64_t> take_varint() noexcept {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_ = rest_.subspan(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if ((byte & 0x80u) == 0) return value;
    }
    return std::nullopt;
  }

  Bytes rest_;
};

// Makes a message, field by field. Memory: the heap.
class MessageWriter {
 public:
  void add(Bytes raw) { bytes_.insert(bytes_.end(), raw.begin(), raw.end()); }
  void add_message(uint32_t number, Bytes payload) {
    add_varint(uint64_t{number} << 3 | kBytes);
    add_varint(payload.size());
    add(payload);
  }
  void add_text(uint32_t number, std::string_view text) {
    add_message(number, std::as_bytes(std::span(text)));
  }
  void add_number(uint32_t number, uint64_t value) {
    add_varint(uint64_t{number} << 3 | kVarint);
    add_varint(value);
  }
  [[nodiscard]] std::vector<std::byte>& bytes() noexcept { return bytes_; }

 private:
  void add_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(std::byte((value & 0x7F) | 0x80));
    bytes_.push_back(std::byte(value));
  }

  std::vector<std::byte> bytes_;
};

// The field `number` of a message; nullopt: it has none.
inline std::optional<Bytes> find_field(Bytes message, uint32_t number) {
  Fields fields(message);
  while (const auto field = fields.next()) {
    if (field->number == number) return field->payload;
  }
  return std::nullopt;
}

}  // namespace lumen::onnx
