// ASCII classes and small parsers that HTTP needs: tables built at compile time, no locale.
// Threads: any. Memory: none. Errors: false or nullopt.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace lumen::wire {

enum : uint8_t {
  kTchar = 1,       // RFC 9110 5.6.2: the characters of a method or a header name
  kTargetChar = 2,  // of a request target: visible ASCII but '#' (a fragment is never sent)
  kHostChar = 4,    // RFC 3986 reg-name, IP literal and port; no userinfo, path or list
  kHexDigit = 8,
};

constexpr std::array<uint8_t, 256> make_character_classes() noexcept {
  std::array<uint8_t, 256> table{};
  for (unsigned c = 0x21; c < 0x7f; ++c) {
    const char ch = static_cast<char>(c);
    const bool alnum =
        (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
    const auto in = [ch](std::string_view set) { return set.find(ch) != std::string_view::npos; };
    unsigned classes = 0;
    if (alnum || in("!#$%&'*+-.^_`|~")) classes |= kTchar;
    if (ch != '#') classes |= kTargetChar;
    if (alnum || in("-._~:[]")) classes |= kHostChar;
    if ((ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'f') || (ch >= 'A' && ch <= 'F')) {
      classes |= kHexDigit;
    }
    table[c] = static_cast<uint8_t>(classes);
  }
  return table;
}

inline constexpr std::array<uint8_t, 256> kCharacterClasses = make_character_classes();

[[nodiscard]] constexpr bool is(char c, uint8_t character_class) noexcept {
  return (kCharacterClasses[static_cast<uint8_t>(c)] & character_class) != 0;
}

[[nodiscard]] constexpr bool is_control(char c) noexcept {
  return static_cast<uint8_t>(c) < 0x20 || c == 0x7f;
}

[[nodiscard]] constexpr char to_lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

// `lower` is lower case already.
[[nodiscard]] constexpr bool equals_ignoring_case(std::string_view text,
                                                  std::string_view lower) noexcept {
  if (text.size() != lower.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (to_lower(text[i]) != lower[i]) return false;
  }
  return true;
}

[[nodiscard]] constexpr std::string_view trim_blanks(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

[[nodiscard]] constexpr int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// 1 to 19 digits and nothing else: always fits, and no sign, space or list slips through.
[[nodiscard]] constexpr std::optional<uint64_t> parse_digits(std::string_view text) noexcept {
  if (text.empty() || text.size() > 19) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

// Eight bytes as one word, for the byte-parallel tests below.
[[nodiscard]] inline uint64_t load_word(const char* at) noexcept {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

inline constexpr uint64_t kEachByte = 0x0101010101010101;
inline constexpr uint64_t kHighBits = 0x8080808080808080;

// High bit set in (at least) the lowest byte that is below `n` (n <= 128); the lowest is exact.
[[nodiscard]] constexpr uint64_t bytes_below(uint64_t word, uint8_t n) noexcept {
  return (word - kEachByte * n) & ~word & kHighBits;
}
[[nodiscard]] constexpr uint64_t bytes_equal(uint64_t word, char c) noexcept {
  return bytes_below(word ^ (kEachByte * static_cast<uint8_t>(c)), 1);
}
// Index of the first byte marked by one of the functions above; little-endian.
static_assert(std::endian::native == std::endian::little);
[[nodiscard]] constexpr size_t first_marked(uint64_t marks) noexcept {
  return static_cast<size_t>(std::countr_zero(marks)) / 8;
}

}  // namespace lumen::wire
