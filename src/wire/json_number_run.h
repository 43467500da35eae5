// Arrays of numbers, as most requests have them: ",0.25,-1.5,3", each comma with a blank behind it,
// or none.
//
// The commas of 64 bytes are found first. So a number's begin and end are known before the numbers
// ahead of it are read, and the CPU reads several at a time. A number of up to 16 characters, its
// sign not counted, is read without a branch on its digits: its length and the place of its point
// are its shape, and a table has for each shape the shuffle that moves the digits together, which
// are then added up by pairs, fours and eights (SSSE3, SSE4.1; the same sums as in Lemire, "Number
// Parsing at a Gigabyte per Second", 2021). All other numbers go to json_float.h and
// json_number.h.
// Threads: any. Memory: none. Errors: where it stops, a number begins that only json_number.h
// reads.
#pragma once

#include "wire/json_float.h"
#include "wire/json_number.h"

#include <immintrin.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace lumen::wire {

inline constexpr size_t kBlockBytes = 64;
inline constexpr size_t kShortBytes = sizeof(__m128i);

using Bytes [[gnu::vector_size(kShortBytes)]] = uint8_t;

[[nodiscard, gnu::always_inline]] inline Bytes load(const char* at) noexcept {
  Bytes bytes;
  std::memcpy(&bytes, at, sizeof bytes);
  return bytes;
}

// A bit for each byte, of a comparison.
template <typename Truths>
[[nodiscard, gnu::always_inline]] inline uint32_t mask_of(Truths truths) noexcept {
  return static_cast<uint32_t>(_mm_movemask_epi8(std::bit_cast<__m128i>(truths)));
}

// Which of the 64 bytes at `at` are commas.
[[nodiscard, gnu::always_inline]] inline uint64_t commas_in(const char* at) noexcept {
  uint64_t found = 0;
  for (size_t i = 0; i < kBlockBytes; i += kShortBytes) {
    found |= uint64_t{mask_of(load(at + i) == ',')} << i;
  }
  return found;
}

// Of numbers with so many characters and the point at one place; without a point that place is
// behind the last.
struct alignas(32) NumberShape {
  std::array<int8_t, kShortBytes> shuffle{};  // digits to the end, zeros before them, no point
  double power = 1;        // 10 to the power of minus the digits behind the point
  uint16_t all = 0;        // a bit for each character
  uint16_t digits = 1;     // those that are digits; more than `all`: none can be
  char least_first = '0';  // JSON has no zero before other digits
  int8_t decimals = 0;
};
inline constexpr size_t kPointPlaces = kShortBytes + 1;

constexpr NumberShape make_number_shape(size_t bytes, size_t point) noexcept {
  NumberShape shape;
  // No digit before the point, or none behind it: then no text is of the shape.
  const bool is_possible = point > 0 && point <= bytes && point + 1 != bytes;
  if (!is_possible) return shape;
  const bool has_point = point < bytes;
  shape.all = static_cast<uint16_t>((uint32_t{1} << bytes) - 1);
  shape.digits = static_cast<uint16_t>(shape.all & ~(uint32_t{1} << point));
  shape.least_first = point > 1 ? '1' : '0';
  shape.decimals = static_cast<int8_t>(has_point ? bytes - point - 1 : 0);
  shape.power = kPowersOfTen[static_cast<size_t>(kMaxPower - shape.decimals)];
  const size_t digits = bytes - (has_point ? 1 : 0);
  for (size_t i = 0; i < kShortBytes; ++i) {
    const size_t unused = kShortBytes - digits;
    const size_t from = i - unused;
    shape.shuffle[i] =
        i < unused ? int8_t{-1} : static_cast<int8_t>(from + (from >= point ? 1 : 0));
  }
  return shape;
}

inline constexpr auto kNumberShapes = [] {
  std::array<NumberShape, kShortBytes * kPointPlaces> shapes{};
  for (size_t bytes = 1; bytes <= kShortBytes; ++bytes) {
    for (size_t point = 0; point < kPointPlaces; ++point) {
      shapes[(bytes - 1) * kPointPlaces + point] = make_number_shape(bytes, point);
    }
  }
  return shapes;
}();

// The digits of `bytes` characters, 1 to 16, that are a number without sign and exponent.
struct ShortNumber {
  const NumberShape* shape = nullptr;  // nullptr: they are none
  uint64_t digits = 0;
};

[[nodiscard, gnu::always_inline]] inline ShortNumber read_digits(const char* at,
                                                                 size_t bytes) noexcept {
  const Bytes text = load(at);
  const Bytes values = text - '0';
  const uint32_t digits = mask_of(values <= 9);
  const uint32_t points = mask_of(text == '.');
  const auto point = static_cast<size_t>(std::countr_zero(points | (uint32_t{1} << bytes)));
  const NumberShape& shape = kNumberShapes[(bytes - 1) * kPointPlaces + point];
  if ((digits & shape.all) != shape.digits || *at < shape.least_first) return {};
  const __m128i shuffle = _mm_load_si128(reinterpret_cast<const __m128i*>(shape.shuffle.data()));
  const __m128i ones = _mm_shuffle_epi8(std::bit_cast<__m128i>(values), shuffle);
  const __m128i pairs = _mm_maddubs_epi16(ones, _mm_set1_epi16(0x010a));    // 10, 1
  const __m128i fours = _mm_madd_epi16(pairs, _mm_set1_epi32(0x00010064));  // 100, 1
  const __m128i eights =
      _mm_madd_epi16(_mm_packus_epi32(fours, fours), _mm_set1_epi32(0x00012710));  // 10,000, 1
  const auto both = static_cast<uint64_t>(_mm_cvtsi128_si64(eights));
  return {&shape, (both & UINT32_MAX) * 100'000'000 + (both >> 32)};
}

// Whether the `bytes` characters at `at`, 1 to 16, are digits.
[[nodiscard, gnu::always_inline]] inline bool are_digits(const char* at, size_t bytes) noexcept {
  const Bytes values = load(at) - '0';
  const uint32_t others = mask_of(values > 9);
  return (others & ((uint32_t{1} << bytes) - 1)) == 0;
}

// A float of a sign and digits; `end` is nullptr if it can't be told so quickly.
template <std::floating_point T>
[[nodiscard, gnu::always_inline]] inline FastNumber<T> make_number(const ShortNumber& number,
                                                                   uint32_t is_negative,
                                                                   const char* stop) noexcept {
  if constexpr (std::is_same_v<T, float>) {
    // 0, or from 1e-14 to 1e16: no subnormal, and not infinite.
    const auto digits = static_cast<double>(static_cast<int64_t>(number.digits));
    const double value = digits * number.shape->power;
    if (is_near_middle(value)) return {};
    return {stop, signed_float(value, is_negative)};
  } else {
    return make_float<T>({.digits = number.digits,
                          .power = -number.shape->decimals,
                          .negative = is_negative != 0,
                          .end = stop});
  }
}

// The same for an integer, of digits alone.
template <std::integral T>
[[nodiscard, gnu::always_inline]] inline FastNumber<T> make_number(const ShortNumber& number,
                                                                   uint32_t is_negative,
                                                                   const char* stop) noexcept {
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<T>::max());
  const uint64_t most = std::is_signed_v<T> ? kMax + is_negative : kMax * (1 - is_negative);
  if (number.shape->digits != number.shape->all || number.digits > most) return {};
  return {stop, static_cast<T>(is_negative != 0 ? 0 - number.digits : number.digits)};
}

// The characters from `at` to `stop`, if they are a number without an exponent; `end` is nullptr if
// they are not, are too many, or can't be told so quickly. 33 bytes may be read.
template <typename T>
[[nodiscard, gnu::always_inline]] inline FastNumber<T> read_number_to(const char* at,
                                                                      const char* stop) noexcept {
  // By arithmetic: the instruction that keeps a comparison (setcc) writes one byte of a register
  // that the number before has used last, so each number would wait for that one.
  const auto first = static_cast<uint32_t>(static_cast<uint8_t>(*at));
  if (first < '-') return {};
  const uint32_t is_negative = (first - '.') >> 31;  // 1 for '-'
  at += is_negative;
  const auto bytes = static_cast<size_t>(stop - at);
  ShortNumber number;
  if (bytes - 1 < kShortBytes) {  // 0 - 1 is above it, too
    number = read_digits(at, bytes);
    if (number.shape == nullptr) return {};
  } else if (std::is_same_v<T, float> && bytes - 1 < 2 * kShortBytes) {
    // A double as text: the first 16 characters decide, unless many of them are zeros.
    number = read_digits(at, kShortBytes);
    if (number.shape == nullptr || number.shape->decimals == 0 || number.digits < kLeastCut ||
        !are_digits(at + kShortBytes, bytes - kShortBytes)) {
      return {};
    }
  } else {
    return {};
  }
  return make_number<T>(number, is_negative, stop);
}

// Any number that is not the last of its text; `end` is nullptr if only the caller can tell more.
template <typename T>
[[nodiscard]] inline FastNumber<T> read_one(const char* at, const char* end) noexcept {
  if constexpr (std::is_floating_point_v<T>) {
    return read_fast_float<T>(at, end);
  } else {
    const Number<T> number = read_number<T>(at, end);
    const bool is_whole = number.error == NumberError::kNone && number.end != end;
    return is_whole ? FastNumber<T>{number.end, number.value} : FastNumber<T>{};
  }
}

// Numbers and the commas before them, up to `count`, into `out`. Returns how many; `place` is then
// behind the last. kFloatReadAhead bytes behind `end` may be read.
template <typename T>
[[nodiscard, gnu::noinline]] inline size_t read_number_run(const char*& place,
                                                           const char* const end, T* out,
                                                           size_t count) noexcept {
  const char* at = place;
  // Of the first comma and, where they are the same, of all.
  const size_t gap = at < end && at[1] == ' ' ? 2 : 1;
  const char before = gap == 2 ? ' ' : ',';
  size_t read = 0;
  while (read < count && at < end && *at == ',') {
    const char* const block = at;
    const auto left = static_cast<size_t>(end - block);
    uint64_t commas = commas_in(block);
    if (left < kBlockBytes) commas &= (uint64_t{1} << left) - 1;
    commas &= commas - 1;  // the first is at `block`
    for (; commas != 0 && read < count; commas &= commas - 1) {
      const char* const stop = block + std::countr_zero(commas);
      if (at[gap - 1] != before) break;
      const FastNumber<T> made = read_number_to<T>(at + gap, stop);
      if (made.end == nullptr) break;
      out[read++] = made.value;
      at = stop;
    }
    if (read == count) break;
    if (commas == 0 && at != block) continue;
    // Not so short, at a comma with a blank more or less than the first, or the last of an array.
    const char* const begin = at + (at[1] == ' ' ? 2 : 1);
    if (begin >= end) break;
    const FastNumber<T> fast = read_one<T>(begin, end);
    if (fast.end == nullptr) break;
    out[read++] = fast.value;
    at = fast.end;
  }
  place = at;
  return read;
}

}  // namespace lumen::wire
