// See the header.
#include "models/answer_gap.h"

#include "models/format_text.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

namespace lumen::models {
namespace {

// IEEE 754's binary16: 5 bits of exponent, 10 of fraction.
double of_half(uint16_t bits) noexcept {
  const int exponent = bits >> 10 & 0x1F;
  const int fraction = bits & 0x3FF;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x1F) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 0x400, exponent - 25);
}

// The upper half of a binary32.
double of_bfloat(uint16_t bits) noexcept { return std::bit_cast<float>(uint32_t{bits} << 16); }

}  // namespace

std::optional<double> number_at(const TensorView& view, size_t index) noexcept {
  const std::byte* place = view.data + index * element_size(view.type);
  const auto as = [place]<typename T>(T value) {
    std::memcpy(&value, place, sizeof(value));
    return static_cast<double>(value);
  };
  switch (view.type) {
    case ElementType::kFp32: return as(float{});
    case ElementType::kFp64: return as(double{});
    case ElementType::kFp16:
    case ElementType::kBf16: {
      uint16_t bits = 0;
      std::memcpy(&bits, place, sizeof(bits));
      return view.type == ElementType::kFp16 ? of_half(bits) : of_bfloat(bits);
    }
    case ElementType::kInt8: return as(int8_t{});
    case ElementType::kInt16: return as(int16_t{});
    case ElementType::kInt32: return as(int32_t{});
    case ElementType::kInt64: return as(int64_t{});
    case ElementType::kBool:
    case ElementType::kUint8: return as(uint8_t{});
    case ElementType::kUint16: return as(uint16_t{});
    case ElementType::kUint32: return as(uint32_t{});
    case ElementType::kUint64: return as(uint64_t{});
    default: return std::nullopt;
  }
}

Gap gap_between(const TensorView& one, const TensorView& other) {
  if (one.type != other.type || !(one.shape == other.shape))
    return {1, " has one shape and another"};
  if (one.byte_size == other.byte_size && std::memcmp(one.data, other.data, one.byte_size) == 0) {
    return {};
  }
  if (!number_at(one, 0)) return {1, " is not the same bytes"};
  const bool may_round = one.type == ElementType::kFp32 || one.type == ElementType::kFp64;
  double largest = 0;
  double apart = 0;
  size_t worst = 0;
  for (size_t i = 0; i < one.byte_size / element_size(one.type); ++i) {
    const double a = *number_at(one, i);
    const double b = *number_at(other, i);
    if (a == b || (std::isnan(a) && std::isnan(b))) {
      if (std::isfinite(a)) largest = std::max(largest, std::abs(a));
      continue;
    }
    const bool are_numbers = std::isfinite(a) && std::isfinite(b);
    if (!may_round || !are_numbers) return {1, format_text(" at %zu is %.6g and %.6g", i, a, b)};
    largest = std::max({largest, std::abs(a), std::abs(b)});
    if (std::abs(a - b) <= apart) continue;
    apart = std::abs(a - b);
    worst = i;
  }
  if (apart == 0) return {};
  return {apart / largest, format_text(" at %zu is %.6g and %.6g", worst, *number_at(one, worst),
                                       *number_at(other, worst))};
}

}  // namespace lumen::models
