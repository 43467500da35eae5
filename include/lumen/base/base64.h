// Base64 of RFC 4648, the standard alphabet with padding. Its strict form: no other characters, no
// bits beyond the last byte.
// Threads: any. Memory: the result. Errors: nullopt.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lumen {

// By character; -1: none of the alphabet.
inline constexpr std::array<int8_t, 256> kBase64Values = [] {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  int8_t value = 0;
  for (const char c : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                       "0123456789+/")) {
    values[static_cast<uint8_t>(c)] = value++;
  }
  return values;
}();

[[nodiscard]] inline std::optional<std::string> decode_base64(std::string_view text) {
  constexpr size_t kGroup = 4;
  if (text.size() % kGroup != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(padding);
  std::string bytes;
  bytes.reserve(text.size() / kGroup * 3 + 2);
  uint32_t bits = 0;
  uint32_t count = 0;  // of bits
  for (const char c : text) {
    const int8_t value = kBase64Values[static_cast<uint8_t>(c)];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count));
    bits &= (1U << count) - 1;
  }
  // The padding says how many bytes are missing, and their bits are 0.
  if (bits != 0 || count != padding * 2) return std::nullopt;
  return bytes;
}

}  // namespace lumen
