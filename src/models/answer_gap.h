// How far the answers of two backends are apart, for the choice between them.
// Threads: control plane. Memory: strings. Errors: none.
#pragma once

#include <lumen/tensor/tensor_view.h>

#include <cstddef>
#include <optional>
#include <string>

namespace lumen::models {

// Where two outputs are furthest apart.
struct Gap {
  double share = 0;   // of the largest number in either; 1: too far to be an error of rounding
  std::string where;  // with both numbers, after the output's name
};

// nullopt: a text.
[[nodiscard]] std::optional<double> number_at(const TensorView& view, size_t index) noexcept;

// Whole numbers, halves and texts are the same or they are not.
[[nodiscard]] Gap gap_between(const TensorView& one, const TensorView& other);

}  // namespace lumen::models
