// Products, pictures, sequences and tables: MatMul, Conv, pools, LSTM, trees.
#include "models/row_rules.h"

#include <algorithm>

namespace lumen::models::row_rules {

// --- products

std::string mat_mul(RowNode& node) {
  if (!are_fixed(node, 2)) return kNotFollowed;
  const RowValue* a = node.input(0);
  const RowValue* b = node.input(1);
  if (a == nullptr || b == nullptr || !a->shape || !b->shape || a->rank() < 2 || b->rank() < 2) {
    return kNotFollowed;
  }
  if (a->kind == Kind::kSizes || b->kind == Kind::kSizes) return kNotFollowed;
  const size_t rank = std::max(a->rank(), b->rank());
  const auto place = [rank](const RowValue& value) { return value.axis + rank - value.rank(); };
  if (a->has_rows() && a->axis == a->rank() - 1) return kMixes;
  if (b->has_rows() && b->axis == b->rank() - 2) return kMixes;
  if (a->has_rows() && b->has_rows()) {
    const bool is_same = place(*a) == place(*b) && place(*a) < rank - 2 &&
                         (*a->shape)[a->axis] == (*b->shape)[b->axis];
    if (!is_same) return "multiplies rows by rows";
  }
  const RowValue& one = a->has_rows() ? *a : *b;
  const size_t axis = place(one);
  RowShape shape(rank, RowSize::of(1));
  for (const RowValue* value : {a, b}) {
    for (size_t i = 0; i + 2 < value->rank(); ++i) {
      const size_t at = i + rank - value->rank();
      const RowSize size = (*value->shape)[i];
      if (at == axis && value->is_fixed() && !size.is(1)) return kNotFollowed;
      if (!size.is(1)) shape[at] = shape[at].is(1) || shape[at] == size ? size : RowSize::other();
    }
  }
  shape[rank - 2] = (*a->shape)[a->rank() - 2];
  shape[rank - 1] = (*b->shape)[b->rank() - 1];
  give_all(node, rows(std::move(shape), axis));
  return {};
}

std::string gemm(RowNode& node) {
  const RowValue* a = rows_at(node, 0);
  const RowValue* b = node.input(1);
  if (a == nullptr || b == nullptr || !b->is_fixed() || !b->shape || a->rank() != 2 ||
      b->rank() != 2) {
    return kNotFollowed;
  }
  const size_t outer = node.node.integer("transA", 0) != 0 ? 1 : 0;
  if (a->axis != outer) return kMixes;
  if (const RowValue* c = node.input(2)) {
    if (!c->is_fixed() || !c->shape) return kNotFollowed;
    if (c->rank() > 1 && !(*c->shape)[0].is(1))
      return "adds a constant with a size in the axis of rows";
  }
  const size_t columns = node.node.integer("transB", 0) != 0 ? 0 : 1;
  give_all(node, rows({(*a->shape)[outer], (*b->shape)[columns]}, 0));
  return {};
}

// --- pictures: [rows, channels, places...]

// Of one spatial axis; other: not known.
static RowSize window_size(const RowNode& node, size_t i, RowSize in, int64_t kernel) {
  const std::string auto_pad = [&] {
    const onnx::Attribute* attribute = node.node.find("auto_pad");
    return attribute == nullptr ? std::string("NOTSET") : attribute->s;
  }();
  if (in.kind != RowSize::Kind::kNumber || node.node.integer("ceil_mode", 0) != 0)
    return RowSize::other();
  const auto at = [&](const char* name, size_t place, int64_t otherwise) {
    const auto list = node.node.integers(name);
    return list && place < list->size() ? (*list)[place] : otherwise;
  };
  const int64_t stride = std::max<int64_t>(1, at("strides", i, 1));
  const int64_t reach = (kernel - 1) * at("dilations", i, 1) + 1;
  if (auto_pad.starts_with("SAME")) return RowSize::of((in.number + stride - 1) / stride);
  const auto pads = node.node.integers("pads");
  const size_t half = pads ? pads->size() / 2 : 0;
  const int64_t padding = auto_pad == "NOTSET" ? at("pads", i, 0) + at("pads", i + half, 0) : 0;
  const int64_t left = in.number + padding - reach;
  return left < 0 ? RowSize::other() : RowSize::of(left / stride + 1);
}

std::string convolution(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  const RowValue* weights = node.input(1);
  if (x == nullptr || x->axis != 0 || weights == nullptr || !are_fixed(node, 1) ||
      !weights->shape || weights->rank() != x->rank()) {
    return kNotFollowed;
  }
  RowShape shape = *x->shape;
  shape[1] = (*weights->shape)[0];
  for (size_t i = 2; i < shape.size(); ++i) {
    const RowSize kernel = (*weights->shape)[i];
    shape[i] = kernel.kind == RowSize::Kind::kNumber
                   ? window_size(node, i - 2, shape[i], kernel.number)
                   : RowSize::other();
  }
  give_all(node, rows(std::move(shape), 0));
  return {};
}

// Sizes are not followed beside the rows.
std::string by_picture(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr || x->axis != 0 || !are_fixed(node, 1)) return kNotFollowed;
  RowShape shape = *x->shape;
  for (size_t i = 1; i < shape.size(); ++i) shape[i] = RowSize::other();
  give_all(node, rows(std::move(shape), 0));
  return {};
}

std::string pool(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  const auto kernel = node.node.integers("kernel_shape");
  // Indices of the second output count through all rows.
  if (x == nullptr || x->axis != 0 || !kernel || node.outputs.size() > 1) return kNotFollowed;
  if (kernel->size() + 2 != x->rank()) return kNotFollowed;
  RowShape shape = *x->shape;
  for (size_t i = 2; i < shape.size(); ++i)
    shape[i] = window_size(node, i - 2, shape[i], (*kernel)[i - 2]);
  give_all(node, rows(std::move(shape), 0));
  return {};
}

std::string global_pool(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr || x->axis != 0) return kNotFollowed;
  RowShape shape = *x->shape;
  for (size_t i = 2; i < shape.size(); ++i) shape[i] = RowSize::of(1);
  give_all(node, rows(std::move(shape), 0));
  return {};
}

// Statistics are constants, or of one picture and channel.
std::string by_channel(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  const bool trains = node.node.integer("training_mode", 0) != 0 || node.outputs.size() > 1 ||
                      node.node.integer("spatial", 1) != 1;
  if (trains) return "takes its statistics from the rows";
  if (x == nullptr || x->axis != 0) return kNotFollowed;
  return same_shape(node);
}

// --- whole numbers with scales

std::string quantize(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  const RowValue* scale = node.input(1);
  if (x == nullptr || scale == nullptr || !scale->shape || !are_fixed(node, 1)) return kNotFollowed;
  const bool is_one = std::ranges::all_of(*scale->shape, [](RowSize size) { return size.is(1); });
  const auto axis = axis_of(node.node.integer("axis", 1), x->rank());
  if (!is_one && (!axis || *axis == x->axis || scale->rank() != 1)) return kMixes;
  return same_shape(node);
}

// --- sequences

std::string recurrent(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  const bool has_rows_first = node.node.integer("layout", 0) != 0;
  if (x == nullptr || x->rank() != 3 || x->axis != (has_rows_first ? 0 : 1)) return kMixes;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const RowValue* value = node.input(i);
    if (value == nullptr || (i <= 3 && value->is_fixed()) || (i == 7 && value->is_fixed()))
      continue;
    // Lengths and states have the rows, too.
    const bool is_state = i == 5 || i == 6;
    const size_t axis = i == 4 ? 0 : has_rows_first ? 0 : 1;
    const bool fits = (i == 4 || is_state) && value->has_rows() && value->axis == axis;
    if (!fits) return kNotFollowed;
  }
  const RowSize count = (*x->shape)[x->axis];
  const RowSize other = RowSize::other();
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (i == 0 && has_rows_first) node.outputs[i] = rows({count, other, other, other}, 0);
    if (i == 0 && !has_rows_first) node.outputs[i] = rows({other, other, count, other}, 2);
    if (i > 0 && has_rows_first) node.outputs[i] = rows({count, other, other}, 0);
    if (i > 0 && !has_rows_first) node.outputs[i] = rows({other, count, other}, 1);
  }
  return {};
}

// --- ai.onnx.ml: [rows, columns]

// One axis is one row of columns there.
std::string by_table_row(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr || x->axis != 0 || x->rank() != 2 || !are_fixed(node, 1)) return kNotFollowed;
  const std::string& type = node.node.op_type;
  const bool keeps =
      type == "Scaler" || type == "Normalizer" || type == "Imputer" || type == "Binarizer";
  const bool is_classifier = type.ends_with("Classifier");
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    RowShape shape{(*x->shape)[0]};
    if (!is_classifier || i > 0) shape.push_back(keeps ? (*x->shape)[1] : RowSize::other());
    node.outputs[i] = rows(std::move(shape), 0);
  }
  return {};
}

std::string one_hot_encoder(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr) return kNotFollowed;
  RowShape shape = *x->shape;
  shape.push_back(RowSize::other());
  give_all(node, rows(std::move(shape), x->axis));
  return {};
}

std::string feature_vectorizer(RowNode& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const RowValue* x = rows_at(node, i);
    if (x == nullptr || x->axis != 0 || x->rank() != 2) return kNotFollowed;
  }
  give_all(node, rows({(*node.input(0)->shape)[0], RowSize::other()}, 0));
  return {};
}

std::string array_feature_extractor(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr || x->rank() < 2 || x->axis == x->rank() - 1 || !are_fixed(node, 1))
    return kNotFollowed;
  RowShape shape(x->shape->begin(), x->shape->end() - 1);
  shape.push_back(RowSize::other());
  give_all(node, rows(std::move(shape), x->axis));
  return {};
}

}  // namespace lumen::models::row_rules
