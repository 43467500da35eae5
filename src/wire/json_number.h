// One JSON number to the element type of a tensor, correctly rounded and range-checked.
// This is the slow way, which takes every number; the usual ones go through json_float.h.
// std::from_chars reads a float as a float: through a double, 1.00000017881393432617187499 becomes
// the wrong neighbour. It also takes numbers that JSON does not (inf, 01, 1., .5), hence the checks
// around it.
// Threads: any. Memory: none. Errors: an enum.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <system_error>
#include <type_traits>

namespace lumen::wire {

enum class NumberError : uint8_t { kNone, kNotANumber, kNotAnInteger, kOutOfRange };

template <typename T>
struct Number {
  T value{};
  const char* end = nullptr;  // after it, with kNone
  NumberError error = NumberError::kNotANumber;
};

[[nodiscard]] constexpr bool is_number_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// True if the number at `at`, which from_chars found out of range, is too small and not too large.
[[nodiscard]] bool is_underflow(const char* at, const char* end) noexcept;

template <std::floating_point T>
[[nodiscard]] inline Number<T> read_number(const char* at, const char* end) noexcept {
  const char* digit = at;
  if (digit < end && *digit == '-') ++digit;
  if (digit == end || !is_number_digit(*digit)) return {};
  const char* whole = digit;
  while (whole < end && is_number_digit(*whole)) ++whole;
  if (*digit == '0' && whole - digit > 1) return {};
  if (whole < end && *whole == '.' && (whole + 1 == end || !is_number_digit(whole[1]))) return {};
  Number<T> number;
  const auto [stop, error] = std::from_chars(at, end, number.value);
  number.end = stop;
  number.error = NumberError::kNone;
  // libstdc++ reports both ways over the range as an error, other versions give inf or 0.
  if (error != std::errc() || !std::isfinite(number.value)) {
    if (!is_underflow(at, stop)) number.error = NumberError::kOutOfRange;
    number.value = *at == '-' ? -T(0) : T(0);
  }
  return number;
}

template <std::integral T>
[[nodiscard]] inline Number<T> read_number(const char* at, const char* end) noexcept {
  const bool negative = at < end && *at == '-';
  const char* const digit = at + (negative ? 1 : 0);
  const char* stop = digit;
  uint64_t magnitude = 0;
  bool fits = true;
  for (; stop < end && is_number_digit(*stop); ++stop) {
    fits &= !__builtin_mul_overflow(magnitude, uint64_t{10}, &magnitude) &&
            !__builtin_add_overflow(magnitude, static_cast<uint64_t>(*stop - '0'), &magnitude);
  }
  if (stop == digit || (*digit == '0' && stop - digit > 1)) return {};
  if (stop < end && (*stop == '.' || *stop == 'e' || *stop == 'E')) {
    return {T(0), stop, NumberError::kNotAnInteger};
  }
  constexpr uint64_t kMax = static_cast<uint64_t>(std::numeric_limits<T>::max());
  const uint64_t most = negative ? (std::is_signed_v<T> ? kMax + 1 : 0) : kMax;
  if (!fits || magnitude > most) return {T(0), stop, NumberError::kOutOfRange};
  return {static_cast<T>(negative ? 0 - magnitude : magnitude), stop, NumberError::kNone};
}

}  // namespace lumen::wire
