// ProtobufMessage: a message that is written, in protobuf's wire format
// (protobuf.dev/programming-guides/encoding): those of its forms that metrics and spans have.
// Threads: one. Memory: the heap; clear() keeps it. Errors: std::bad_alloc.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lumen::telemetry {

class ProtobufMessage {
 public:
  ProtobufMessage& varint(uint32_t number, uint64_t value) {
    raw(uint64_t{number} << 3);
    return raw(value);
  }
  // sint32 and sint64: small negative numbers stay short.
  ProtobufMessage& zigzag(uint32_t number, int64_t value) {
    return varint(number, static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
  }
  ProtobufMessage& real(uint32_t number, double value) {
    return fixed64(number, std::bit_cast<uint64_t>(value));
  }
  ProtobufMessage& fixed64(uint32_t number, uint64_t value) {
    return raw(uint64_t{number} << 3 | 1).little_endian(value, sizeof value);
  }
  ProtobufMessage& fixed32(uint32_t number, uint32_t value) {
    return raw(uint64_t{number} << 3 | 5).little_endian(value, sizeof value);
  }
  // A string, or bytes.
  ProtobufMessage& text(uint32_t number, std::string_view value) {
    head(number, value.size());
    bytes_.append(value);
    return *this;
  }
  ProtobufMessage& message(uint32_t number, const ProtobufMessage& value) {
    return text(number, value.bytes_);
  }
  // Of a field whose `length` bytes are written next, by other means.
  ProtobufMessage& head(uint32_t number, uint64_t length) {
    return raw(uint64_t{number} << 3 | 2).raw(length);
  }
  // A varint without a field: an element of a packed one, or a length.
  ProtobufMessage& raw(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
    return *this;
  }
  // Fields that are written already.
  ProtobufMessage& append(const ProtobufMessage& fields) {
    bytes_.append(fields.bytes_);
    return *this;
  }
  void clear() noexcept { bytes_.clear(); }
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  ProtobufMessage& little_endian(uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }

  std::string bytes_;
};

}  // namespace lumen::telemetry
