// TensorView: a tensor that owns nothing: type, shape and where its bytes lie.
// Threads: a value; the bytes belong to the owner of their memory. Memory: none. Errors: never.
#pragma once

#include <lumen/tensor/element_type.h>
#include <lumen/tensor/shape.h>

#include <cstddef>
#include <span>

namespace lumen {

struct TensorView {
  ElementType type = ElementType::kFp32;
  Shape shape;                // row-major, packed, little-endian
  std::byte* data = nullptr;  // nullptr: not there yet
  size_t byte_size = 0;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data, byte_size}; }
};

}  // namespace lumen
