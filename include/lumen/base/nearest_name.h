// nearest_name: which valid name a mistyped one was meant to be, for error messages.
// Threads: any. Memory: none. Errors: an empty view when nothing is near.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace lumen {

// Edit distance (insert, delete, replace, swap two neighbours: "mpcm" is one slip from "mpmc"),
// `limit` + 1 when above it or when a name is too long.
[[nodiscard]] constexpr size_t edit_distance(std::string_view a, std::string_view b,
                                             size_t limit) noexcept {
  constexpr size_t kMaxLength = 64;  // three rows on the stack; longer names are no typing mistake
  if (a.size() > kMaxLength || b.size() > kMaxLength) return limit + 1;
  std::array<size_t, kMaxLength + 1> row{}, above{}, two_above{};
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    two_above = above;
    above = row;
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], two_above[j - 2] + 1);
    }
  }
  return std::min(row[b.size()], limit + 1);
}

// The closest of `valid` if at most a third of it (and at least one letter) differs.
[[nodiscard]] constexpr std::string_view nearest_name(
    std::string_view name, std::span<const std::string_view> valid) noexcept {
  std::string_view best;
  size_t best_distance = static_cast<size_t>(-1);
  for (const std::string_view candidate : valid) {
    const size_t limit = std::max<size_t>(1, std::max(candidate.size(), name.size()) / 3);
    const size_t distance = edit_distance(name, candidate, limit);
    if (distance <= limit && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace lumen
