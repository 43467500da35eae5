// ElementType: the datatypes of the Open Inference Protocol, their names and sizes.
// Threads: values. Memory: none. Errors: nullopt for an unknown name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lumen {

enum class ElementType : uint8_t {
  kBool,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFp16,
  kBf16,
  kFp32,
  kFp64,
  kBytes,  // variable length: u32 little-endian length + bytes, an element
};

// Bytes of one element; 0 for kBytes, whose elements have no fixed size.
[[nodiscard]] constexpr size_t element_size(ElementType type) noexcept {
  switch (type) {
    case ElementType::kBool:
    case ElementType::kUint8:
    case ElementType::kInt8: return 1;
    case ElementType::kUint16:
    case ElementType::kInt16:
    case ElementType::kFp16:
    case ElementType::kBf16: return 2;
    case ElementType::kUint32:
    case ElementType::kInt32:
    case ElementType::kFp32: return 4;
    case ElementType::kUint64:
    case ElementType::kInt64:
    case ElementType::kFp64: return 8;
    case ElementType::kBytes: return 0;
  }
  return 0;
}

// Protocol name: "FP32", "BF16", "BYTES".
[[nodiscard]] constexpr std::string_view element_type_name(ElementType type) noexcept {
  constexpr std::string_view kNames[] = {"BOOL", "UINT8", "UINT16", "UINT32", "UINT64",
                                         "INT8", "INT16", "INT32",  "INT64",  "FP16",
                                         "BF16", "FP32",  "FP64",   "BYTES"};
  return kNames[static_cast<size_t>(type)];
}

[[nodiscard]] constexpr std::optional<ElementType> parse_element_type(
    std::string_view name) noexcept {
  for (int i = 0; i <= static_cast<int>(ElementType::kBytes); ++i) {
    if (element_type_name(static_cast<ElementType>(i)) == name) return static_cast<ElementType>(i);
  }
  return std::nullopt;
}

}  // namespace lumen
