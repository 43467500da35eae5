// TensorNames: finds a tensor of a model by its name.
// Threads: any, once it is made. Memory: the heap, when it is made. Errors: nullopt.
#pragma once

#include <lumen/models/metadata.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lumen::models {

class TensorNames {
 public:
  TensorNames() = default;
  // `specs` outlive it.
  explicit TensorNames(std::span<const TensorSpec> specs) : specs_(specs), sorted_(specs.size()) {
    std::iota(sorted_.begin(), sorted_.end(), uint16_t{0});
    std::ranges::sort(sorted_, {},
                      [specs](uint16_t i) -> std::string_view { return specs[i].name; });
  }

  // `guess`: where it would be if a request named the tensors in the model's order, as most do; any
  // number.
  [[nodiscard]] std::optional<size_t> find(std::string_view name, size_t guess) const noexcept {
    if (guess < specs_.size() && specs_[guess].name == name) return guess;
    const auto name_of = [this](uint16_t i) -> std::string_view { return specs_[i].name; };
    const auto found = std::ranges::lower_bound(sorted_, name, {}, name_of);
    if (found == sorted_.end() || specs_[*found].name != name) return std::nullopt;
    return *found;
  }

 private:
  std::span<const TensorSpec> specs_;
  std::vector<uint16_t> sorted_;  // indices, by name
};

}  // namespace lumen::models
