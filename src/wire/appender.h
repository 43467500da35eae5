// Appender: writes text where the caller has reserved enough for all of it, so that no write checks.
// Threads: one. Memory: the caller's. Says no: never; who reserves states the bound beside it.
#pragma once

#include "wire/json_escape.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace lumen::wire {

// Longest texts of a number: "-1.17549435e-38", "-2.2250738585072014e-308" and 20 digits.
template <typename T>
inline constexpr size_t kMaxNumberText = sizeof(T) == 8 ? 24 : 16;

class Appender {
 public:
  explicit Appender(char* out) noexcept : begin_(out), at_(out) {}

  void put(char c) noexcept { *at_++ = c; }
  void put(std::string_view text) noexcept {
    at_ += text.copy(at_, text.size());  // not memcpy: an empty view may have no address
  }
  void put_unsigned(uint64_t value) noexcept { put_number(value); }

  // Shortest text that reads back as the same T, a float as a float; NaN and Inf have none in JSON.
  template <typename T>
  void put_number(T value) noexcept {
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) return put("null");
      // Class indices, counts and padding: the integer conversion takes a third of the time.
      const int32_t whole = std::fabs(value) < T(1 << 23) ? static_cast<int32_t>(value) : 0;
      if (whole != 0 && static_cast<T>(whole) == value) return put_number(whole);
    }
    at_ = std::to_chars(at_, at_ + kMaxNumberText<T>, value).ptr;
  }

  // With quotes; takes up to 2 + kMaxEscapedBytes for each byte of `text`.
  void put_string(std::string_view text) noexcept {
    put('"');
    while (true) {
      const size_t plain = plain_prefix(text);
      put(text.substr(0, plain));
      text.remove_prefix(plain);
      if (text.empty()) break;
      const EscapedCharacter character = escape_character(text);
      put(std::string_view(character.bytes, character.size));
      text.remove_prefix(character.consumed);
    }
    put('"');
  }

  [[nodiscard]] size_t size() const noexcept { return static_cast<size_t>(at_ - begin_); }
  [[nodiscard]] std::string_view text() const noexcept { return {begin_, size()}; }

 private:
  char* begin_;
  char* at_;
};

}  // namespace lumen::wire
