// NpyFile: an array from a .npy file of NumPy (format versions 1, 2 and 3), as a tensor to send.
// Threads: a value. Memory: the heap; the file is read whole. Errors: Status naming the file, the
// form found and how to save it otherwise.
#pragma once

#include <lumen/base/result.h>
#include <lumen/tensor/element_type.h>
#include <lumen/tensor/shape.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace lumen::client {

struct NpyFile {
  ElementType type = ElementType::kFp32;
  Shape shape;
  std::string bytes;  // C order, little-endian, packed: as the protocol sends them
};

[[nodiscard]] Result<NpyFile> read_npy(const std::filesystem::path& file);

// The same from bytes; `name` is for messages.
[[nodiscard]] Result<NpyFile> parse_npy(std::string_view content, std::string_view name);

// "float32" for kFp32: NumPy's name of a type; empty if it has none (BF16, BYTES).
[[nodiscard]] std::string_view numpy_name(ElementType type) noexcept;

}  // namespace lumen::client
