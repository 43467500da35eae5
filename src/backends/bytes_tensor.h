// BYTES tensors (u32 little-endian length + bytes, an element) to and from strings, for backends
// that keep strings of their own. Threads: any. Memory: none of its own.
// Errors: kInvalidArgument when the lengths do not add up.
#pragma once

#include <lumen/base/result.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace lumen::backends {

// Calls `take(index, text)` for exactly `count` elements that fill `bytes`; those before a wrong
// one have been taken when it fails.
template <typename Take>
[[nodiscard]] Status read_bytes_tensor(const std::string& tensor_name,
                                       std::span<const std::byte> bytes, size_t count, Take take) {
  const auto wrong = [&](size_t element) {
    return Status::error(Code::kInvalidArgument,
                         "input '%s': the lengths of its BYTES elements do not add up at element "
                         "%zu of %zu (%zu bytes in all)",
                         tensor_name.c_str(), element, count, bytes.size());
  };
  size_t position = 0;
  for (size_t i = 0; i < count; ++i) {
    uint32_t length = 0;
    if (bytes.size() - position < sizeof(length)) return wrong(i);
    std::memcpy(&length, bytes.data() + position, sizeof(length));
    position += sizeof(length);
    if (bytes.size() - position < length) return wrong(i);
    take(i, std::string_view(reinterpret_cast<const char*>(bytes.data() + position), length));
    position += length;
  }
  return position == bytes.size() ? Status() : wrong(count);
}

// Writes one element; returns where the next goes.
inline std::byte* write_bytes_element(std::string_view text, std::byte* out) noexcept {
  const auto length = static_cast<uint32_t>(text.size());
  std::memcpy(out, &length, sizeof(length));
  std::memcpy(out + sizeof(length), text.data(), text.size());
  return out + sizeof(length) + text.size();
}

}  // namespace lumen::backends
