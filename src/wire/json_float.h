// The fast way from a JSON number to a float: eight digits at a time, one multiplication as a
// double, and the rounding of that to a float wherever its error can't change the result.
//
// Why it is exact: let x be the text's value and d the double, at most kMaxError units in d's last
// place away from x. If no middle of two neighbouring floats lies that close to d, then x and d are
// on the same side of every such middle, so the float nearest to d is the one nearest to x. A
// middle is a double whose low 29 bits are a one and 28 zeros. One text in 13,000 comes that close
// to one and goes the slow way (json_number.h), as do texts that are short, long or large beyond
// the bounds here. Figures: docs/adr/0005.
// Threads: any. Memory: none. Errors: nullptr, for a text that is no number and for one that only
// the slow way can tell.
#pragma once

#include "wire/ascii.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lumen::wire {

// So many bytes behind the text may be read; their content does not matter.
inline constexpr size_t kFloatReadAhead = 64;

inline constexpr int kMaxPower = 60;
// 10^-kMaxPower .. 10^kMaxPower. Those above 10^22 and below 1 are a product or quotient of rounded
// ones, 40 units in the last place off at most; kMaxError has room for that.
constexpr std::array<double, 2 * kMaxPower + 1> make_powers_of_ten() noexcept {
  std::array<double, 2 * kMaxPower + 1> powers{};
  double power = 1;
  for (size_t i = 0; i <= kMaxPower; ++i, power *= 10) {
    powers[kMaxPower + i] = power;
    powers[kMaxPower - i] = 1 / power;
  }
  return powers;
}
inline constexpr auto kPowersOfTen = make_powers_of_ten();

inline constexpr std::array<uint64_t, 9> kWholePowers = {1,      10,      100,      1000,     10000,
                                                         100000, 1000000, 10000000, 100000000};

// How many of the eight bytes at the start are digits.
[[nodiscard]] constexpr size_t leading_digits(uint64_t word) noexcept {
  const uint64_t values = word ^ (kEachByte * '0');  // a digit is 0 to 9 then
  // A byte above 0x89 carries into the next, which is behind the first that is no digit.
  const uint64_t others = ((values + kEachByte * 0x76) | values) & kHighBits;
  return first_marked(others);  // 8 where all are: countr_zero(0) is 64
}

// The value of the first `count` bytes, which are digits; 0 for none.
[[nodiscard]] constexpr uint64_t digits_value(uint64_t word, size_t count) noexcept {
  // Moved to the end, with zeros before them; in two steps, as a shift by 64 is not defined.
  const size_t half = (8 - count) * 4;
  word = ((word & (kEachByte * 0x0f)) << half) << half;
  word = word * 10 + (word >> 8);  // pairs, then fours and eights at once
  constexpr uint64_t kPairs = 0x000000ff000000ff;
  constexpr uint64_t kFirst = 100 + (uint64_t{1000000} << 32);
  constexpr uint64_t kSecond = 1 + (uint64_t{10000} << 32);
  return ((word & kPairs) * kFirst + ((word >> 16) & kPairs) * kSecond) >> 32;
}

// (-1)^negative x digits x 10^power.
struct Decimal {
  uint64_t digits = 0;  // 18 decimals at most
  int64_t power = 0;
  bool negative = false;
  bool is_cut = false;        // there are more digits, less than one unit of `digits` together
  const char* end = nullptr;  // after it; nullptr: none, or one that this does not read
};

// The digits behind a point; false: none, or too many. Inlined by force, as read_decimal() is: a
// Decimal that goes through memory costs as much as its digits.
[[nodiscard, gnu::always_inline]] inline bool read_fraction(const char*& at, const char* end,
                                                            size_t whole_digits,
                                                            Decimal& number) noexcept {
  const uint64_t first = load_word(at);
  const size_t count = leading_digits(first);
  if (count == 0) return false;
  number.digits = number.digits * kWholePowers[count] + digits_value(first, count);
  number.power = -static_cast<int64_t>(count);
  at += count;
  if (count < 8) return true;
  const uint64_t second = load_word(at);
  const size_t more = leading_digits(second);
  if (whole_digits + 8 + more > 18) return false;
  number.digits = number.digits * kWholePowers[more] + digits_value(second, more);
  number.power -= static_cast<int64_t>(more);
  at += more;
  if (more < 8) return true;
  while (at < end) {
    const size_t rest = leading_digits(load_word(at));
    number.is_cut |= rest > 0;
    at += rest;
    if (rest < 8) return true;
  }
  return false;
}

[[nodiscard, gnu::always_inline]] inline Decimal read_decimal(const char* at,
                                                              const char* end) noexcept {
  Decimal number;
  number.negative = *at == '-';
  at += number.negative ? 1 : 0;
  number.digits = static_cast<uint8_t>(*at++ - '0');
  if (number.digits > 9) return {};
  size_t whole_digits = 1;
  if (*at != '.') {
    const uint64_t word = load_word(at);
    const size_t more = leading_digits(word);
    if (more == 8 || (more > 0 && number.digits == 0)) return {};  // JSON has no leading zeros
    number.digits = number.digits * kWholePowers[more] + digits_value(word, more);
    whole_digits += more;
    at += more;
  }
  if (*at == '.') {
    ++at;
    if (!read_fraction(at, end, whole_digits, number)) return {};
  }
  if ((*at | 0x20) == 'e') {
    ++at;
    const bool negative = *at == '-';
    if (negative || *at == '+') ++at;
    const uint64_t word = load_word(at);
    const size_t count = leading_digits(word);
    if (count == 0 || count == 8) return {};
    const auto exponent = static_cast<int64_t>(digits_value(word, count));
    number.power += negative ? -exponent : exponent;
    at += count;
  }
  // No JSON text ends with a number: a number that reaches the end may go on in the bytes behind
  // it.
  if (at < end) number.end = at;
  return number;
}

// A number, and the byte after it; nullptr: there is none, or one for read_number().
template <typename T>
struct FastNumber {
  const char* end = nullptr;
  T value = 0;
};

// In units of a double's last place: 9,008 for the digits that were cut (1 in kLeastCut), 40 for
// the power, 2 for the digits as a double and the product; twice that next to a power of two, where
// units halve.
inline constexpr uint64_t kMaxError = 20000;
inline constexpr uint64_t kLeastCut = 1'000'000'000'000;

// Whether a middle of two floats lies so close to `value` that the number that it stands for may be
// on the other side.
[[nodiscard]] inline bool is_near_middle(double value) noexcept {
  constexpr uint64_t kLowBits = (uint64_t{1} << 29) - 1;
  constexpr uint64_t kMiddle = uint64_t{1} << 28;
  const uint64_t low = std::bit_cast<uint64_t>(value) & kLowBits;
  return low - (kMiddle - kMaxError) <= 2 * kMaxError;
}

// `value` is not below 0; `is_negative` is 0 or 1.
[[nodiscard]] inline float signed_float(double value, uint32_t is_negative) noexcept {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(value)) |
                              (is_negative << 31));
}

// The float, or double, nearest to a number that was read.
template <typename T>
[[nodiscard]] FastNumber<T> make_float(const Decimal& number) noexcept;

template <>
[[nodiscard, gnu::always_inline]] inline FastNumber<float> make_float(
    const Decimal& number) noexcept {
  // Below may be subnormal, where the middles are others; above may be infinity.
  constexpr double kSmallest = 1.2e-38;
  constexpr double kLargest = 3.4e38;
  if (number.power < -kMaxPower || number.power > kMaxPower) return {};
  if (number.is_cut && number.digits < kLeastCut) return {};
  const double value = static_cast<double>(static_cast<int64_t>(number.digits)) *
                       kPowersOfTen[static_cast<size_t>(number.power + kMaxPower)];
  if (value < kSmallest ? number.digits != 0 : value > kLargest) return {};
  if (is_near_middle(value)) return {};
  return {number.end, signed_float(value, number.negative ? 1 : 0)};
}

// The same for a double, where digits and power are exact as doubles: then their product or
// quotient is rounded once (Clinger 1990). That is every number of up to 15 digits that a program
// is likely to send.
template <>
[[nodiscard, gnu::always_inline]] inline FastNumber<double> make_float(
    const Decimal& number) noexcept {
  constexpr uint64_t kExactDigits = uint64_t{1} << 53;
  constexpr int64_t kExactPower = 22;
  if (number.is_cut || number.digits > kExactDigits) return {};
  if (number.power < -kExactPower || number.power > kExactPower) return {};
  const auto digits = static_cast<double>(static_cast<int64_t>(number.digits));
  const bool divides = number.power < 0;
  const double power =
      kPowersOfTen[static_cast<size_t>(kMaxPower + (divides ? -number.power : number.power))];
  const double value = divides ? digits / power : digits * power;
  return {number.end, number.negative ? -value : value};
}

// The number at `at`, which is before `end`.
template <typename T>
[[nodiscard]] inline FastNumber<T> read_fast_float(const char* at, const char* end) noexcept {
  const Decimal number = read_decimal(at, end);
  return number.end == nullptr ? FastNumber<T>{} : make_float<T>(number);
}

}  // namespace lumen::wire
