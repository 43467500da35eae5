// protobuf's wire format (protobuf.dev/programming-guides/encoding), as far as gRPC's messages need
// it: fields one after the other, and their bytes into memory that is large enough.
// Threads: any. Memory: none. Errors: the reader says that its message is broken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace lumen::wire {

enum class ProtobufWire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct ProtobufField {
  uint32_t number = 0;
  ProtobufWire wire = ProtobufWire::kVarint;
  uint64_t value = 0;      // of kBytes: how many there are, or should be
  std::string_view bytes;  // of kBytes, in the message
};

inline constexpr size_t kMostVarintBytes = 10;

class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view message) noexcept : rest_(message) {}

  // False: the message has ended, or is broken. If it ends within bytes, `field` has the number
  // that was to come.
  [[nodiscard]] bool next(ProtobufField& field) noexcept {
    if (rest_.empty() || is_broken_) return false;
    uint64_t tag = 0;
    is_broken_ = !take_varint(tag) || tag >> 3 == 0 || tag >> 3 > kMostNumber || !take(tag, field);
    return !is_broken_;
  }
  [[nodiscard]] bool is_broken() const noexcept { return is_broken_; }
  [[nodiscard]] bool is_at_end() const noexcept { return rest_.empty(); }
  [[nodiscard]] size_t left_bytes() const noexcept { return rest_.size(); }

  // The elements of a packed field.
  [[nodiscard]] bool take_varint(uint64_t& value) noexcept {
    value = 0;
    for (size_t i = 0; i < rest_.size() && i < kMostVarintBytes; ++i) {
      const auto byte = static_cast<uint8_t>(rest_[i]);
      value |= uint64_t{byte & 0x7fu} << (7 * i);
      if (byte >= 0x80) continue;
      rest_.remove_prefix(i + 1);
      return true;
    }
    value = 0;
    return false;
  }

 private:
  static constexpr uint64_t kMostNumber = (uint64_t{1} << 29) - 1;

  [[nodiscard]] bool take(uint64_t tag, ProtobufField& field) noexcept {
    field = {.number = static_cast<uint32_t>(tag >> 3),
             .wire = static_cast<ProtobufWire>(tag & 7),
             .value = 0,
             .bytes = {}};
    switch (field.wire) {
      case ProtobufWire::kVarint: return take_varint(field.value);
      case ProtobufWire::kFixed64: return take_fixed(field.value, sizeof(uint64_t));
      case ProtobufWire::kFixed32: return take_fixed(field.value, sizeof(uint32_t));
      case ProtobufWire::kBytes: break;
      default: return false;  // groups, which no message of ours has
    }
    if (!take_varint(field.value) || field.value > rest_.size()) return false;
    field.bytes = rest_.substr(0, field.value);
    rest_.remove_prefix(field.value);
    return true;
  }
  [[nodiscard]] bool take_fixed(uint64_t& value, size_t bytes) noexcept {
    if (rest_.size() < bytes) return false;
    std::memcpy(&value, rest_.data(), bytes);
    rest_.remove_prefix(bytes);
    return true;
  }

  std::string_view rest_;
  bool is_broken_ = false;
};

[[nodiscard]] constexpr size_t varint_bytes(uint64_t value) noexcept {
  size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}
// Field numbers below 16 alone: their tag is a byte.
[[nodiscard]] constexpr size_t field_bytes(size_t length) noexcept {
  return 1 + varint_bytes(length) + length;
}

// Into `out`, which has room for all: sizes are known before.
class ProtobufWriter {
 public:
  explicit ProtobufWriter(char* out) noexcept : at_(out) {}
  void varint(uint64_t value) noexcept {
    for (; value >= 0x80; value >>= 7) *at_++ = static_cast<char>(value | 0x80);
    *at_++ = static_cast<char>(value);
  }
  // The head of a field whose bytes follow.
  void head(uint32_t field, size_t length) noexcept {
    varint(uint64_t{field} << 3 | static_cast<uint64_t>(ProtobufWire::kBytes));
    varint(length);
  }
  void text(uint32_t field, std::string_view value) noexcept {
    head(field, value.size());
    at_ += value.copy(at_, value.size());
  }
  [[nodiscard]] char* at() const noexcept { return at_; }

 private:
  char* at_;
};

}  // namespace lumen::wire
