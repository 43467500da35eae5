// Shape: up to kMaxRank dimensions, inline. In a model's metadata -1 means "any"; in a request
// never.
// Threads: values. Memory: none. Errors: nullopt on overflow, false from append when full.
#pragma once

#include <lumen/base/limits.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace lumen {

class Shape {
 public:
  static constexpr int64_t kDynamic = -1;

  Shape() noexcept = default;
  [[nodiscard]] bool append(int64_t dimension) noexcept {
    if (rank_ == limits::kMaxRank) return false;
    dimensions_[rank_++] = dimension;
    return true;
  }
  [[nodiscard]] size_t rank() const noexcept { return rank_; }
  [[nodiscard]] int64_t operator[](size_t axis) const noexcept { return dimensions_[axis]; }
  [[nodiscard]] int64_t& operator[](size_t axis) noexcept { return dimensions_[axis]; }
  [[nodiscard]] std::span<const int64_t> dimensions() const noexcept {
    return {dimensions_.data(), rank_};
  }
  [[nodiscard]] bool is_static() const noexcept {
    return std::ranges::none_of(dimensions(), [](int64_t d) { return d < 0; });
  }
  // Product of the dimensions (1 for rank 0); nullopt if one is negative or the product overflows.
  [[nodiscard]] std::optional<size_t> element_count() const noexcept {
    size_t product = 1;
    for (int64_t d : dimensions()) {
      if (d < 0 || __builtin_mul_overflow(product, static_cast<size_t>(d), &product)) {
        return std::nullopt;
      }
    }
    return product;
  }
  // True if `actual` fits this pattern, where -1 here matches any size.
  [[nodiscard]] bool accepts(const Shape& actual) const noexcept {
    if (rank_ != actual.rank_) return false;
    for (size_t i = 0; i < rank_; ++i) {
      if (dimensions_[i] != kDynamic && dimensions_[i] != actual.dimensions_[i]) return false;
    }
    return true;
  }
  friend bool operator==(const Shape& a, const Shape& b) noexcept {
    return std::ranges::equal(a.dimensions(), b.dimensions());
  }

 private:
  std::array<int64_t, limits::kMaxRank> dimensions_{};
  uint8_t rank_ = 0;
};

}  // namespace lumen
