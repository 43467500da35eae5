// See the header.
#include "wire/grpc_contents.h"

#include <lumen/base/cache_line.h>
#include <lumen/tensor/bytes_tensor.h>
#include <lumen/wire/protobuf.h>

#include "wire/grpc_fields.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace lumen::wire {
namespace {

Status refuse(const InferInput& input, const char* why) noexcept {
  return Status::error(Code::kInvalidArgument, "input '%.*s': %s", width(input.name),
                       input.name.data(), why);
}

// The field of InferTensorContents for elements of a type; 0: there is none.
uint32_t field_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::kBool: return field::kBoolContents;
    case ElementType::kInt8:
    case ElementType::kInt16:
    case ElementType::kInt32: return field::kIntContents;
    case ElementType::kInt64: return field::kInt64Contents;
    case ElementType::kUint8:
    case ElementType::kUint16:
    case ElementType::kUint32: return field::kUintContents;
    case ElementType::kUint64: return field::kUint64Contents;
    case ElementType::kFp32: return field::kFp32Contents;
    case ElementType::kFp64: return field::kFp64Contents;
    case ElementType::kBytes: return field::kBytesContents;
    default: return 0;
  }
}

// As a varint has it: negative ones in 64 bits.
bool is_in_range(ElementType type, uint64_t value) noexcept {
  const auto signed_value = static_cast<int64_t>(value);
  switch (type) {
    case ElementType::kBool: return value <= 1;
    case ElementType::kInt8: return signed_value >= INT8_MIN && signed_value <= INT8_MAX;
    case ElementType::kInt16: return signed_value >= INT16_MIN && signed_value <= INT16_MAX;
    case ElementType::kInt32: return signed_value >= INT32_MIN && signed_value <= INT32_MAX;
    case ElementType::kUint8: return value <= UINT8_MAX;
    case ElementType::kUint16: return value <= UINT16_MAX;
    case ElementType::kUint32: return value <= UINT32_MAX;
    default: return true;
  }
}

// The elements, one after the other, little-endian.
class Filler {
 public:
  Filler(InferInput& input, size_t elements) noexcept : input_(input), left_(elements) {}

  [[nodiscard]] Status add(uint64_t value) noexcept {
    if (left_ == 0) return wrong_number();
    if (!is_in_range(input_.tensor.type, value)) {
      return refuse(input_, "an element of 'contents' is out of its datatype's range");
    }
    --left_;
    const size_t size = element_size(input_.tensor.type);
    std::memcpy(input_.tensor.data + used_, &value, size);
    used_ += size;
    return {};
  }
  [[nodiscard]] Status add(std::string_view packed, ProtobufWire wire) noexcept {
    if (wire == ProtobufWire::kVarint) {
      ProtobufReader reader(packed);
      for (uint64_t value = 0; !reader.is_at_end();) {
        if (!reader.take_varint(value)) return refuse(input_, "'contents' is broken");
        LUMEN_RETURN_IF_ERROR(add(value));
      }
      return {};
    }
    const size_t size = element_size(input_.tensor.type);
    if (packed.size() % size != 0) return refuse(input_, "'contents' is broken");
    if (packed.size() / size > left_) return wrong_number();
    if (!packed.empty()) std::memcpy(input_.tensor.data + used_, packed.data(), packed.size());
    used_ += packed.size();
    left_ -= packed.size() / size;
    return {};
  }
  [[nodiscard]] Status end() const noexcept { return left_ == 0 ? Status() : wrong_number(); }
  [[nodiscard]] Status wrong_number() const noexcept {
    return Status::error(Code::kInvalidArgument,
                         "input '%.*s': 'contents' has another number of elements than its shape, "
                         "%zu",
                         width(input_.name), input_.name.data(),
                         input_.tensor.shape.element_count().value_or(0));
  }

 private:
  InferInput& input_;
  size_t left_;
  size_t used_ = 0;
};

ProtobufWire wire_of(ElementType type) noexcept {
  if (type == ElementType::kFp32) return ProtobufWire::kFixed32;
  return type == ElementType::kFp64 ? ProtobufWire::kFixed64 : ProtobufWire::kVarint;
}

// BYTES: each element behind its length, as raw ones are.
Status read_texts(InferInput& input, std::string_view contents, size_t elements,
                  Allocator& memory) noexcept {
  size_t count = 0;
  size_t bytes = 0;
  ProtobufReader counting(contents);
  for (ProtobufField one; counting.next(one);) {
    if (one.number != field::kBytesContents) continue;
    if (one.wire != ProtobufWire::kBytes) return refuse(input, "'contents' is broken");
    ++count;
    bytes += sizeof(uint32_t) + one.bytes.size();
  }
  if (count != elements) return Filler(input, elements).wrong_number();
  const std::span<std::byte> room = memory.allocate_array<std::byte>(bytes);
  if (room.size() != bytes) {
    return Status::error(Code::kTooLarge, "the request's memory has no room for its tensors");
  }
  std::byte* at = room.data();
  ProtobufReader reader(contents);
  for (ProtobufField one; reader.next(one);) {
    if (one.number != field::kBytesContents) continue;
    const auto length = static_cast<uint32_t>(one.bytes.size());  // a message has 4 GiB at most
    std::memcpy(at, &length, sizeof(length));
    if (length > 0) std::memcpy(at + sizeof(length), one.bytes.data(), length);
    at += sizeof(length) + length;
  }
  input.tensor.data = room.data();
  input.tensor.byte_size = bytes;
  return {};
}

}  // namespace

Status check_raw_size(const InferInput& input, size_t elements) noexcept {
  const size_t size = input.tensor.byte_size;
  const bool is_text = input.tensor.type == ElementType::kBytes;
  const size_t wanted = elements * (is_text ? sizeof(uint32_t) : element_size(input.tensor.type));
  if (is_text ? size >= wanted : size == wanted) return {};
  return Status::error(Code::kInvalidArgument, "input '%.*s' has %zu bytes, but %s needs %s%zu",
                       width(input.name), input.name.data(), size, describe(input.tensor).text,
                       is_text ? "at least " : "", wanted);
}

Status read_contents(InferInput& input, std::string_view contents, size_t elements,
                     Allocator& memory) noexcept {
  const ElementType type = input.tensor.type;
  const uint32_t wanted = field_of(type);
  if (wanted == 0)
    return refuse(input, "FP16 and BF16 have no 'contents'; send raw_input_contents");
  ProtobufReader checking(contents);
  for (ProtobufField one; checking.next(one);) {
    if (one.number == wanted || one.number > field::kBytesContents) continue;
    return refuse(input, "'contents' has elements of another datatype than the input");
  }
  if (checking.is_broken()) return refuse(input, "'contents' is broken");
  if (type == ElementType::kBytes) return read_texts(input, contents, elements, memory);
  // Not before it is known that as many are there: a message of a few bytes may name any shape.
  if (elements > contents.size()) return Filler(input, elements).wrong_number();
  const size_t bytes = elements * element_size(type);
  input.tensor.data =
      static_cast<std::byte*>(memory.allocate(std::max<size_t>(bytes, 1), kCacheLine));
  if (input.tensor.data == nullptr) {
    return Status::error(Code::kTooLarge, "the request's memory has no room for its tensors");
  }
  input.tensor.byte_size = bytes;
  Filler filler(input, elements);
  ProtobufReader reader(contents);
  for (ProtobufField one; reader.next(one);) {
    if (one.number != wanted) continue;
    if (one.wire == ProtobufWire::kBytes) {
      LUMEN_RETURN_IF_ERROR(filler.add(one.bytes, wire_of(type)));
    } else if (one.wire == wire_of(type)) {
      LUMEN_RETURN_IF_ERROR(filler.add(one.value));
    } else {
      return refuse(input, "'contents' is broken");
    }
  }
  return filler.end();
}

}  // namespace lumen::wire
