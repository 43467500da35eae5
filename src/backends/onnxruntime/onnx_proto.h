// What is read of ONNX files without their library: the fields of a message in protobuf's wire format.
// Threads: any. Memory: none; views of the file. Errors: nullopt for what is no message.
// Format: onnx.proto3 of ONNX 1.x.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lumen::backends::onnxruntime {

using Bytes = std::span<const std::byte>;

// Numbers of fields in onnx.proto3.
enum ModelField : uint32_t { kGraph = 7 };
enum GraphField : uint32_t { kNode = 1, kGraphInput = 11, kOutput = 12 };
enum ValueField : uint32_t { kValueName = 1, kValueType = 2 };
enum TypeField : uint32_t { kTensorType = 1 };
enum TensorField : uint32_t { kElementType = 1, kShape = 2 };
enum ShapeField : uint32_t { kAxis = 1 };
enum AxisField : uint32_t { kSize = 1 };
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
    uint64_t tag = 0;
    if (rest_.empty() || !take_varint(tag)) return std::nullopt;
    field.number = static_cast<uint32_t>(tag >> 3);
    field.type = static_cast<WireType>(tag & 7);
    uint64_t size = 0;
    switch (field.type) {
      case kVarint:
        if (!take_varint(field.value)) return std::nullopt;
        break;
      case kFixed64: size = 8; break;
      case kFixed32: size = 4; break;
      case kBytes:
        if (!take_varint(size)) return std::nullopt;
        break;
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
  bool take_varint(uint64_t& value) noexcept {
    value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_ = rest_.subspan(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if ((byte & 0x80u) == 0) return true;
    }
    return false;
  }

  Bytes rest_;
};

// The field `number` of a message; nullopt: it has none.
inline std::optional<Bytes> find_field(Bytes message, uint32_t number) {
  Fields fields(message);
  while (const auto field = fields.next()) {
    if (field->number == number) return field->payload;
  }
  return std::nullopt;
}

}  // namespace lumen::backends::onnxruntime
