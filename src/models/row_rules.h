// The rules of row_values.h, and their common parts. Each follows the axis of rows through one kind
// of operator.
// Threads: any. Memory: the heap. Errors: as RowRule.
#pragma once

#include "models/row_values.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lumen::models::row_rules {

using Kind = RowValue::Kind;
using Axes = std::optional<std::vector<int64_t>>;

inline constexpr char kMixes[] = "works along the axis that has the rows";
inline constexpr char kNotFollowed[] = "has a form that is not followed";

// A negative axis counts from the end; nullopt: out of range.
inline std::optional<size_t> axis_of(int64_t axis, size_t rank) {
  const auto size = static_cast<int64_t>(rank);
  if (axis < -size || axis >= size) return std::nullopt;
  return static_cast<size_t>(axis < 0 ? axis + size : axis);
}

inline const RowValue* rows_at(const RowNode& node, size_t i) {
  const RowValue* value = node.input(i);
  return value != nullptr && value->has_rows() && value->shape ? value : nullptr;
}

inline bool is_fixed_or_left_out(const RowNode& node, size_t i) {
  return node.input(i) == nullptr || node.input(i)->is_fixed();
}

// All from `first` on.
inline bool are_fixed(const RowNode& node, size_t first) {
  for (size_t i = first; i < node.inputs.size(); ++i) {
    if (!is_fixed_or_left_out(node, i)) return false;
  }
  return true;
}

inline RowValue rows(RowShape shape, size_t axis) {
  return {.kind = Kind::kRows, .axis = axis, .shape = std::move(shape), .numbers = {}};
}

inline void give_all(RowNode& node, const RowValue& value) {
  for (RowValue& out : node.outputs) out = value;
}

// Of an attribute, or of the input that newer operator sets have instead. `is_given` is false where
// neither is.
inline Axes axes_of(const RowNode& node, const char* name, size_t input, bool& is_given) {
  is_given = true;
  if (auto axes = node.node.integers(name)) return axes;
  if (const RowValue* value = node.input(input)) return value->constants();
  is_given = false;
  return std::vector<int64_t>{};
}

// row_rules_axes.cc. No axes: all of them. `keeps`: as axes of size 1.
[[nodiscard]] std::string reduce_axes(RowNode& node, const Axes& axes, bool keeps);
[[nodiscard]] std::string softmax(RowNode& node);
[[nodiscard]] std::string lp_normalization(RowNode& node);
[[nodiscard]] std::string cum_sum(RowNode& node);
[[nodiscard]] std::string layer_normalization(RowNode& node);
[[nodiscard]] std::string reduce(RowNode& node);
[[nodiscard]] std::string arg_max(RowNode& node);
[[nodiscard]] std::string top_k(RowNode& node);
[[nodiscard]] std::string concat(RowNode& node);
[[nodiscard]] std::string split(RowNode& node);
[[nodiscard]] std::string slice(RowNode& node);
[[nodiscard]] std::string pad(RowNode& node);
[[nodiscard]] std::string gather(RowNode& node);
[[nodiscard]] std::string gather_elements(RowNode& node);
// row_rules_nets.cc
[[nodiscard]] std::string mat_mul(RowNode& node);
[[nodiscard]] std::string gemm(RowNode& node);
[[nodiscard]] std::string convolution(RowNode& node);
[[nodiscard]] std::string by_picture(RowNode& node);
[[nodiscard]] std::string pool(RowNode& node);
[[nodiscard]] std::string global_pool(RowNode& node);
[[nodiscard]] std::string by_channel(RowNode& node);
[[nodiscard]] std::string quantize(RowNode& node);
[[nodiscard]] std::string recurrent(RowNode& node);
[[nodiscard]] std::string by_table_row(RowNode& node);
[[nodiscard]] std::string one_hot_encoder(RowNode& node);
[[nodiscard]] std::string feature_vectorizer(RowNode& node);
[[nodiscard]] std::string array_feature_extractor(RowNode& node);
// row_rules_shapes.cc
[[nodiscard]] std::string transpose(RowNode& node);
[[nodiscard]] std::string squeeze(RowNode& node);
[[nodiscard]] std::string unsqueeze(RowNode& node);
[[nodiscard]] std::string reshape(RowNode& node);
[[nodiscard]] std::string flatten(RowNode& node);
[[nodiscard]] std::string expand(RowNode& node);
[[nodiscard]] std::string constant_of_shape(RowNode& node);
[[nodiscard]] std::string tile(RowNode& node);
// row_rules.cc
[[nodiscard]] std::string broadcast(RowNode& node);
[[nodiscard]] std::string same_shape(RowNode& node);
[[nodiscard]] std::string dropout(RowNode& node);

}  // namespace lumen::models::row_rules
