// BYTES tensors (u32 little-endian length + bytes, an element) to and from strings, for backends
// that want std::string. Threads: any. Memory: std::string's own.
// Errors: kInvalidArgument when the lengths do not add up.
#pragma once

#include <lumen/base/result.h>

#include <cstddef>
#include <span>
#include <string>

namespace lumen::backends::openvino {

// Exactly texts.size() elements that fill `bytes`.
[[nodiscard]] Status read_bytes_tensor(const std::string& tensor_name,
                                       std::span<const std::byte> bytes,
                                       std::span<std::string> texts);

[[nodiscard]] size_t bytes_tensor_size(std::span<const std::string> texts) noexcept;
// `out` has bytes_tensor_size(texts) bytes.
void write_bytes_tensor(std::span<const std::string> texts, std::byte* out) noexcept;

}  // namespace lumen::backends::openvino
