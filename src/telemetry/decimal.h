// decimal: integers as decimal text, three digits at a time from a table of 4 KB. For lines that
// hold a dozen numbers below a million it takes half of std::to_chars' time (bench_csv_line);
// larger numbers go to that.
// Threads: any; pure. Memory: none; each may write one byte behind the end that it returns. Errors:
// never.
#pragma once

#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lumen::telemetry::detail {

// "000" to "999", each in four bytes, so that one load and one store move it.
inline constexpr std::array<std::array<char, 4>, 1000> kTriples = [] {
  std::array<std::array<char, 4>, 1000> all{};
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = {static_cast<char>('0' + i / 100), static_cast<char>('0' + i / 10 % 10),
              static_cast<char>('0' + i % 10), '\0'};
  }
  return all;
}();

// `value` < 1000, with leading zeroes.
inline char* put_triple(char* out, uint64_t value) noexcept {
  std::memcpy(out, kTriples[value].data(), 4);
  return out + 3;
}

inline char* put_number(char* out, uint64_t value) noexcept {
  if (value >= 1'000'000) return std::to_chars(out, out + 20, value).ptr;  // 20 digits: 2^64
  if (value >= 1000) return put_triple(put_number(out, value / 1000), value % 1000);
  static_assert(std::endian::native == std::endian::little);
  const unsigned zeroes = (value < 100 ? 1u : 0u) + (value < 10 ? 1u : 0u);
  const uint32_t text = std::bit_cast<uint32_t>(kTriples[value]) >> (8 * zeroes);
  std::memcpy(out, &text, 4);
  return out + 3 - zeroes;
}

}  // namespace lumen::telemetry::detail
