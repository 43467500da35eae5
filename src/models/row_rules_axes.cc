// Operators that work along axes or look up: Softmax, reductions, Concat, Slice, Gather.
#include "models/row_rules.h"

#include <algorithm>

namespace lumen::models::row_rules {

// --- operators along axes

// Softmax and others of one axis, which the default of `axis` says.
static std::string along(RowNode& node, int64_t axis) {
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr || !are_fixed(node, 1)) return kNotFollowed;
  const auto along = axis_of(axis, x->rank());
  if (!along || *along == x->axis) return kMixes;
  give_all(node, rows(*x->shape, x->axis));
  return {};
}

std::string softmax(RowNode& node) {
  if (node.opset >= 13) return along(node, node.node.integer("axis", -1));
  // Of all axes from that one on.
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr) return kNotFollowed;
  const auto axis = axis_of(node.node.integer("axis", 1), x->rank());
  if (!axis || x->axis >= *axis) return kMixes;
  give_all(node, rows(*x->shape, x->axis));
  return {};
}

std::string lp_normalization(RowNode& node) { return along(node, node.node.integer("axis", -1)); }

std::string cum_sum(RowNode& node) {
  const RowValue* axis = node.input(1);
  const Axes axes = axis == nullptr ? Axes() : axis->constants();
  if (!axes || axes->size() != 1) return kNotFollowed;
  return along(node, axes->front());
}

std::string layer_normalization(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr || !are_fixed(node, 1)) return kNotFollowed;
  const auto axis = axis_of(node.node.integer("axis", -1), x->rank());
  if (!axis || x->axis >= *axis) return kMixes;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    RowShape shape = *x->shape;
    for (size_t at = *axis; i > 0 && at < shape.size(); ++at) shape[at] = RowSize::of(1);
    node.outputs[i] = rows(std::move(shape), x->axis);
  }
  return {};
}

std::string reduce_axes(RowNode& node, const Axes& axes, bool keeps) {
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr || !axes) return kNotFollowed;
  std::vector<bool> is_reduced(x->rank(), axes->empty());
  for (const int64_t one : *axes) {
    const auto axis = axis_of(one, x->rank());
    if (!axis) return kNotFollowed;
    is_reduced[*axis] = true;
  }
  if (is_reduced[x->axis]) return kMixes;
  RowShape shape;
  size_t axis = 0;
  for (size_t i = 0; i < x->rank(); ++i) {
    if (i == x->axis) axis = shape.size();
    if (!is_reduced[i]) {
      shape.push_back((*x->shape)[i]);
    } else if (keeps) {
      shape.push_back(RowSize::of(1));
    }
  }
  give_all(node, rows(std::move(shape), axis));
  return {};
}

std::string reduce(RowNode& node) {
  bool is_given = false;
  const Axes axes = axes_of(node, "axes", 1, is_given);
  const bool has_none = !is_given || (axes && axes->empty());
  if (has_none && node.node.integer("noop_with_empty_axes", 0) != 0) return same_shape(node);
  return reduce_axes(node, axes, node.node.integer("keepdims", 1) != 0);
}

std::string arg_max(RowNode& node) {
  return reduce_axes(node, std::vector<int64_t>{node.node.integer("axis", 0)},
                     node.node.integer("keepdims", 1) != 0);
}

std::string top_k(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  const RowValue* count = node.input(1);
  const Axes counts = count == nullptr ? Axes() : count->constants();
  if (x == nullptr || !counts || counts->size() != 1) return kNotFollowed;
  const auto axis = axis_of(node.node.integer("axis", -1), x->rank());
  if (!axis || *axis == x->axis) return kMixes;
  RowShape shape = *x->shape;
  shape[*axis] = RowSize::of(counts->front());
  give_all(node, rows(std::move(shape), x->axis));
  return {};
}

std::string concat(RowNode& node) {
  const RowValue* first = rows_at(node, 0);
  if (first == nullptr) return kNotFollowed;
  const auto axis = axis_of(node.node.integer("axis", 1), first->rank());
  if (!axis || *axis == first->axis) return kMixes;
  RowShape shape = *first->shape;
  RowSize sum = RowSize::of(0);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const RowValue* one = rows_at(node, i);
    const bool fits = one != nullptr && one->rank() == first->rank() && one->axis == first->axis &&
                      (*one->shape)[one->axis] == shape[first->axis];
    if (!fits) return "joins tensors that do not have the rows in the same axis";
    const RowSize size = (*one->shape)[*axis];
    const bool is_known = sum.kind == RowSize::Kind::kNumber && size.kind == RowSize::Kind::kNumber;
    sum = is_known ? RowSize::of(sum.number + size.number) : RowSize::other();
  }
  shape[*axis] = sum;
  give_all(node, rows(std::move(shape), first->axis));
  return {};
}

std::string split(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr) return kNotFollowed;
  const auto axis = axis_of(node.node.integer("axis", 0), x->rank());
  if (!axis || *axis == x->axis) return kMixes;
  bool is_given = false;
  const Axes sizes = axes_of(node, "split", 1, is_given);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    RowShape shape = *x->shape;
    const RowSize whole = shape[*axis];
    const auto parts = static_cast<int64_t>(node.outputs.size());
    const bool is_even = whole.kind == RowSize::Kind::kNumber && whole.number % parts == 0;
    shape[*axis] = is_given && sizes && i < sizes->size() ? RowSize::of((*sizes)[i])
                   : !is_given && is_even                 ? RowSize::of(whole.number / parts)
                                                          : RowSize::other();
    node.outputs[i] = rows(std::move(shape), x->axis);
  }
  return {};
}

std::string slice(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr || !are_fixed(node, 1)) return kNotFollowed;
  bool is_given = false;
  Axes axes = axes_of(node, "axes", 3, is_given);
  if (!is_given) {
    bool has_starts = false;
    const Axes starts = axes_of(node, "starts", 1, has_starts);
    if (!starts) return kNotFollowed;
    for (size_t i = 0; i < starts->size(); ++i) axes->push_back(static_cast<int64_t>(i));
  }
  if (!axes) return kNotFollowed;
  RowShape shape = *x->shape;
  for (const int64_t one : *axes) {
    const auto axis = axis_of(one, x->rank());
    if (!axis || *axis == x->axis) return "cuts the axis that has the rows";
    shape[*axis] = RowSize::other();
  }
  give_all(node, rows(std::move(shape), x->axis));
  return {};
}

std::string pad(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr || !are_fixed(node, 1)) return kNotFollowed;
  bool is_given = false;
  const Axes pads = axes_of(node, "pads", 1, is_given);
  const Axes axes = node.input(3) == nullptr ? Axes() : node.input(3)->constants();
  if (!pads || (node.input(3) != nullptr && !axes)) return kNotFollowed;
  const size_t count = axes ? axes->size() : x->rank();
  if (pads->size() != 2 * count) return kNotFollowed;
  RowShape shape = *x->shape;
  for (size_t i = 0; i < count; ++i) {
    const auto axis = axes ? axis_of((*axes)[i], x->rank()) : std::optional(i);
    if (!axis) return kNotFollowed;
    const int64_t more = (*pads)[i] + (*pads)[i + count];
    if (*axis == x->axis && ((*pads)[i] != 0 || (*pads)[i + count] != 0)) return kMixes;
    if (*axis != x->axis) {
      const bool is_known = shape[*axis].kind == RowSize::Kind::kNumber;
      shape[*axis] = is_known ? RowSize::of(shape[*axis].number + more) : RowSize::other();
    }
  }
  give_all(node, rows(std::move(shape), x->axis));
  return {};
}

// --- operators that look up

std::string gather(RowNode& node) {
  const RowValue* data = node.input(0);
  const RowValue* indices = node.input(1);
  if (data == nullptr || indices == nullptr || !data->shape || !indices->shape) return kNotFollowed;
  if (data->kind == Kind::kSizes || indices->kind == Kind::kSizes) return kNotFollowed;
  if (data->has_rows() && indices->has_rows()) return "looks up in rows by numbers of rows";
  const auto axis = axis_of(node.node.integer("axis", 0), data->rank());
  if (!axis) return kNotFollowed;
  if (data->has_rows() && *axis == data->axis) return "picks rows";
  RowShape shape(data->shape->begin(), data->shape->begin() + static_cast<int64_t>(*axis));
  shape.insert(shape.end(), indices->shape->begin(), indices->shape->end());
  shape.insert(shape.end(), data->shape->begin() + static_cast<int64_t>(*axis) + 1,
               data->shape->end());
  const size_t at = indices->has_rows()  ? *axis + indices->axis
                    : data->axis < *axis ? data->axis
                                         : data->axis + indices->rank() - 1;
  give_all(node, rows(std::move(shape), at));
  return {};
}

std::string gather_elements(RowNode& node) {
  const RowValue* data = rows_at(node, 0);
  const RowValue* indices = rows_at(node, 1);
  const bool fits = data != nullptr && indices != nullptr && data->axis == indices->axis &&
                    (*data->shape)[data->axis] == (*indices->shape)[data->axis];
  if (!fits) return kNotFollowed;
  const auto axis = axis_of(node.node.integer("axis", 0), data->rank());
  if (!axis || *axis == data->axis) return kMixes;
  give_all(node, rows(*indices->shape, indices->axis));
  return {};
}

}  // namespace lumen::models::row_rules
