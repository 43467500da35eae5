// Operators that change the shape: Transpose, Reshape, Expand.
#include "models/row_rules.h"

#include <algorithm>

namespace lumen::models::row_rules {

// --- shapes

std::string transpose(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr) return kNotFollowed;
  auto order = node.node.integers("perm");
  if (!order) {
    order.emplace();
    for (size_t i = x->rank(); i > 0; --i) order->push_back(static_cast<int64_t>(i) - 1);
  }
  if (order->size() != x->rank()) return kNotFollowed;
  RowShape shape;
  size_t axis = 0;
  for (size_t i = 0; i < order->size(); ++i) {
    const auto from = axis_of((*order)[i], x->rank());
    if (!from) return kNotFollowed;
    if (*from == x->axis) axis = i;
    shape.push_back((*x->shape)[*from]);
  }
  give_all(node, rows(std::move(shape), axis));
  return {};
}

std::string squeeze(RowNode& node) {
  bool is_given = false;
  const Axes axes = axes_of(node, "axes", 1, is_given);
  if (!is_given) return "squeezes the axis of rows, too, where there is one row";
  return reduce_axes(node, axes, false);
}

std::string unsqueeze(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  bool is_given = false;
  const Axes axes = axes_of(node, "axes", 1, is_given);
  if (x == nullptr || !is_given || !axes) return kNotFollowed;
  const size_t rank = x->rank() + axes->size();
  std::vector<bool> is_new(rank, false);
  for (const int64_t one : *axes) {
    const auto axis = axis_of(one, rank);
    if (!axis || is_new[*axis]) return kNotFollowed;
    is_new[*axis] = true;
  }
  RowShape shape;
  size_t axis = 0;
  size_t from = 0;
  for (size_t i = 0; i < rank; ++i) {
    if (!is_new[i] && from == x->axis) axis = i;
    shape.push_back(is_new[i] ? RowSize::of(1) : (*x->shape)[from++]);
  }
  give_all(node, rows(std::move(shape), axis));
  return {};
}

// The places of a row are contiguous behind the axes before the rows. So they stay together where
// these axes stay, and the next one is a multiple of the number of rows.
static std::string reshape_to(RowNode& node, RowShape target) {
  const RowValue& x = *node.input(0);
  const RowShape& from = *x.shape;
  size_t free = target.size();
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i].is(-1) && free < target.size()) return kNotFollowed;
    if (target[i].is(-1)) free = i;
  }
  const size_t axis = x.axis;
  if (target.size() <= axis) return "joins the axis that has the rows to others";
  for (size_t i = 0; i < axis; ++i) {
    // Free axes of the same size can't be told from others.
    const bool stays = target[i] == from[i] && from[i].kind == RowSize::Kind::kNumber;
    if (!stays) return "joins the axis that has the rows to others";
  }
  if (free < target.size()) {
    const RowSize all = product(from, axis, from.size());
    RowSize others = RowSize::of(1);
    for (size_t i = axis; i < target.size(); ++i) {
      if (i != free) others = times(others, target[i]);
    }
    if (free == axis) {
      // [-1, 64] of [rows, free, 64]: whole rows, if the sizes of one row are a multiple of the
      // others.
      const RowSize of_row =
          times(RowSize::of(from[axis].number), product(from, axis + 1, from.size()));
      RowSize known = RowSize::of(1);
      for (size_t i = axis; i < from.size(); ++i) {
        if (i == axis && from[i].number > 0) known = times(known, RowSize::of(from[i].number));
        if (i > axis && from[i].kind == RowSize::Kind::kNumber) known = times(known, from[i]);
      }
      const bool is_whole = others.kind == RowSize::Kind::kNumber && others.number > 0 &&
                            known.kind == RowSize::Kind::kNumber &&
                            known.number % others.number == 0;
      if (!is_whole) return "is not known to keep rows apart";
      const RowSize factor = divided(of_row, others);
      target[free] = RowSize::rows(
          from[axis].number > 0 && factor.kind == RowSize::Kind::kNumber ? factor.number : 0);
    } else {
      target[free] = all.kind == RowSize::Kind::kRows &&
                             target[axis].kind == RowSize::Kind::kRows && all.number > 0 &&
                             others.kind == RowSize::Kind::kRows && others.number > 0 &&
                             all.number % others.number == 0
                         ? RowSize::of(all.number / others.number)
                         : RowSize::other();
    }
  }
  if (target[axis].kind != RowSize::Kind::kRows) return "is not known to keep rows apart";
  for (size_t i = axis + 1; i < target.size(); ++i) {
    if (target[i].has_rows()) return "is not known to keep rows apart";
  }
  give_all(node, rows(std::move(target), axis));
  return {};
}

std::string reshape(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  const RowValue* shape = node.input(1);
  if (x == nullptr || shape == nullptr || !shape->numbers) return kNotFollowed;
  RowShape target = *shape->numbers;
  const bool copies = node.node.integer("allowzero", 0) == 0;
  for (size_t i = 0; copies && i < target.size(); ++i) {
    if (!target[i].is(0)) continue;
    if (i >= x->rank()) return kNotFollowed;
    target[i] = (*x->shape)[i];
  }
  return reshape_to(node, std::move(target));
}

std::string flatten(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr) return kNotFollowed;
  const auto axis = axis_of(node.node.integer("axis", 1), x->rank() + 1);
  if (!axis || x->axis != 0 || *axis == 0) return "joins the axis that has the rows to others";
  give_all(node, rows({product(*x->shape, 0, *axis), product(*x->shape, *axis, x->rank())}, 0));
  return {};
}

// Also of a constant, to as many rows.
std::string expand(RowNode& node) {
  const RowValue* x = node.input(0);
  const RowValue* shape = node.input(1);
  if (x == nullptr || !x->shape || x->kind == Kind::kSizes || shape == nullptr || !shape->numbers) {
    return kNotFollowed;
  }
  RowShape target = *shape->numbers;
  if (target.size() < x->rank())
    target.insert(target.begin(), x->rank() - target.size(), RowSize::of(1));
  const size_t ahead = target.size() - x->rank();
  std::optional<size_t> axis;
  if (x->has_rows()) axis = ahead + x->axis;
  for (size_t i = 0; i < target.size(); ++i) {
    const RowSize own = i < ahead ? RowSize::of(1) : (*x->shape)[i - ahead];
    const bool is_rows = axis && *axis == i && x->has_rows();
    if (is_rows) {
      if (!target[i].is(1) && target[i] != own) return kNotFollowed;
      target[i] = own;
    } else if (target[i].has_rows()) {
      if (axis || target[i].kind != RowSize::Kind::kRows || !own.is(1)) return kNotFollowed;
      axis = i;
    } else if (target[i].is(1)) {
      target[i] = own;
    }
  }
  if (!axis) return kNotFollowed;
  give_all(node, rows(std::move(target), *axis));
  return {};
}

std::string constant_of_shape(RowNode& node) {
  const RowValue* shape = node.input(0);
  if (shape == nullptr || !shape->numbers) return kNotFollowed;
  std::optional<size_t> axis;
  for (size_t i = 0; i < shape->numbers->size(); ++i) {
    const RowSize size = (*shape->numbers)[i];
    if (!size.has_rows()) continue;
    if (axis || size.kind != RowSize::Kind::kRows) return kNotFollowed;
    axis = i;
  }
  if (!axis) return kNotFollowed;
  give_all(node, rows(*shape->numbers, *axis));
  return {};
}

std::string tile(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  const Axes repeats = node.input(1) == nullptr ? Axes() : node.input(1)->constants();
  if (x == nullptr || !repeats || repeats->size() != x->rank()) return kNotFollowed;
  RowShape shape = *x->shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i == x->axis && (*repeats)[i] != 1) return kMixes;
    shape[i] = times(shape[i], RowSize::of((*repeats)[i]));
  }
  give_all(node, rows(std::move(shape), x->axis));
  return {};
}

}  // namespace lumen::models::row_rules
