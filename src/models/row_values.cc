// Arithmetic of sizes, and of whole numbers that are made of them. See the header.
#include "models/row_values.h"

#include <algorithm>
#include <limits>

namespace lumen::models {
namespace {

using Kind = RowSize::Kind;

constexpr size_t kMostNumbers = 64;  // a shape has no more axes

// Of two that count the places of different rows, or of none.
RowSize combined(RowSize a, RowSize b, bool is_sum, int64_t sign) {
  if (a.kind == Kind::kNumber && b.kind == Kind::kNumber) {
    int64_t result = 0;
    const bool overflows = is_sum ? __builtin_add_overflow(a.number, sign * b.number, &result)
                                  : __builtin_mul_overflow(a.number, b.number, &result);
    return overflows ? RowSize::unknown() : RowSize::of(result);
  }
  if (!a.has_rows() && !b.has_rows()) return RowSize::other();
  if (!is_sum) return times(a, b);
  if (b.is(0)) return a;
  return RowSize::unknown();
}

const RowValue* only_numbers(const RowNode& node, size_t i) {
  const RowValue* value = node.input(i);
  return value != nullptr && value->numbers ? value : nullptr;
}

// A result of whole numbers; fixed where none depends on the number of rows.
void give(RowNode& node, RowShape numbers, RowShape shape) {
  RowValue& out = node.outputs.front();
  const bool has_rows = std::ranges::any_of(numbers, &RowSize::has_rows);
  out.kind = has_rows ? RowValue::Kind::kSizes : RowValue::Kind::kFixed;
  out.shape = std::move(shape);
  out.numbers = std::move(numbers);
}

bool gather(RowNode& node) {
  const RowValue* data = only_numbers(node, 0);
  const RowValue* indices = only_numbers(node, 1);
  if (data == nullptr || indices == nullptr || data->rank() != 1) return false;
  const auto places = indices->constants();
  if (!places) return false;
  RowShape numbers;
  for (int64_t place : *places) {
    const auto size = static_cast<int64_t>(data->numbers->size());
    if (place < 0) place += size;
    if (place < 0 || place >= size) return false;
    numbers.push_back((*data->numbers)[static_cast<size_t>(place)]);
  }
  give(node, std::move(numbers), *indices->shape);
  return true;
}

bool concat(RowNode& node) {
  RowShape numbers;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const RowValue* part = only_numbers(node, i);
    if (part == nullptr || part->rank() != 1) return false;
    numbers.insert(numbers.end(), part->numbers->begin(), part->numbers->end());
  }
  const auto size = static_cast<int64_t>(numbers.size());
  give(node, std::move(numbers), {RowSize::of(size)});
  return true;
}

bool slice(RowNode& node) {
  const RowValue* data = only_numbers(node, 0);
  if (data == nullptr || data->rank() != 1 || node.opset < 10) return false;
  const auto one = [&](size_t i, int64_t otherwise) -> std::optional<int64_t> {
    if (node.input(i) == nullptr) return otherwise;
    const auto found = node.input(i)->constants();
    return found && found->size() == 1 ? std::optional(found->front()) : std::nullopt;
  };
  const auto start = one(1, 0);
  const auto end = one(2, 0);
  if (!start || !end || one(3, 0).value_or(1) != 0 || one(4, 1).value_or(0) != 1) return false;
  const auto size = static_cast<int64_t>(data->numbers->size());
  const auto place = [size](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const int64_t from = place(*start);
  const int64_t to = std::max(from, place(*end));
  RowShape numbers(data->numbers->begin() + from, data->numbers->begin() + to);
  give(node, std::move(numbers), {RowSize::of(to - from)});
  return true;
}

bool arithmetic(RowNode& node) {
  const RowValue* a = only_numbers(node, 0);
  const RowValue* b = only_numbers(node, 1);
  if (a == nullptr || b == nullptr) return false;
  const RowShape& left = *a->numbers;
  const RowShape& right = *b->numbers;
  const size_t count = std::max(left.size(), right.size());
  if ((left.size() != count && left.size() != 1) || (right.size() != count && right.size() != 1)) {
    return false;
  }
  const std::string& type = node.node.op_type;
  RowShape numbers;
  for (size_t i = 0; i < count; ++i) {
    const RowSize x = left[left.size() == 1 ? 0 : i];
    const RowSize y = right[right.size() == 1 ? 0 : i];
    numbers.push_back(type == "Div"   ? divided(x, y)
                      : type == "Mul" ? combined(x, y, false, 1)
                                      : combined(x, y, true, type == "Sub" ? -1 : 1));
  }
  const bool is_left = left.size() == count && (right.size() != count || a->rank() >= b->rank());
  give(node, std::move(numbers), is_left ? *a->shape : *b->shape);
  return true;
}

bool shape_of(RowNode& node) {
  const RowValue* data = node.input(0);
  if (data == nullptr || !data->shape) return false;
  const auto rank = static_cast<int64_t>(data->rank());
  const auto place = [rank](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t from = place(node.node.integer("start", 0));
  const int64_t to = std::max(from, place(node.node.integer("end", rank)));
  RowShape numbers(data->shape->begin() + from, data->shape->begin() + to);
  give(node, std::move(numbers), {RowSize::of(to - from)});
  return true;
}

bool constant(RowNode& node) {
  RowValue& out = node.outputs.front();
  for (const onnx::Attribute& attribute : node.node.attributes) {
    using AttributeKind = onnx::Attribute::Kind;
    if (attribute.kind == AttributeKind::kTensor && attribute.tensor != nullptr) {
      out.shape.emplace();
      for (const int64_t size : attribute.tensor->dims) out.shape->push_back(RowSize::of(size));
      if (const auto integers = attribute.tensor->integers()) {
        out.numbers.emplace();
        for (const int64_t one : *integers) out.numbers->push_back(RowSize::of(one));
      }
    } else if (attribute.kind == AttributeKind::kInt) {
      out.shape = RowShape();
      out.numbers = RowShape{RowSize::of(attribute.i)};
    } else if (attribute.kind == AttributeKind::kInts) {
      out.shape = RowShape{RowSize::of(static_cast<int64_t>(attribute.ints.size()))};
      out.numbers.emplace();
      for (const int64_t one : attribute.ints) out.numbers->push_back(RowSize::of(one));
    } else if (attribute.kind == AttributeKind::kFloat) {
      out.shape = RowShape();
    } else if (attribute.kind == AttributeKind::kFloats) {
      out.shape = RowShape{RowSize::of(static_cast<int64_t>(attribute.floats.size()))};
    }
  }
  return true;
}

// The same numbers in another shape of at most one axis.
bool same_numbers(RowNode& node) {
  const RowValue* data = only_numbers(node, 0);
  if (data == nullptr || data->numbers->size() > kMostNumbers) return false;
  const std::string& type = node.node.op_type;
  const auto count = static_cast<int64_t>(data->numbers->size());
  if (type == "Cast") {
    const int64_t to = node.node.integer("to", 0);
    if (to != onnx::kInt64 && to != onnx::kInt32) return false;
    give(node, *data->numbers, *data->shape);
  } else if (type == "Identity") {
    give(node, *data->numbers, *data->shape);
  } else if (type == "Unsqueeze") {
    if (data->rank() != 0) return false;
    give(node, *data->numbers, {RowSize::of(1)});
  } else if (type == "Squeeze") {
    if (data->rank() != 1 || count != 1) return false;
    give(node, *data->numbers, {});
  } else {  // Reshape to one axis
    const RowValue* shape = only_numbers(node, 1);
    if (shape == nullptr || shape->numbers->size() != 1) return false;
    give(node, *data->numbers, {RowSize::of(count)});
  }
  return true;
}

}  // namespace

RowSize times(RowSize a, RowSize b) {
  if (a.kind == Kind::kUnknown || b.kind == Kind::kUnknown) return RowSize::unknown();
  if (a.kind == Kind::kRows && b.kind == Kind::kRows) return RowSize::unknown();
  if (b.kind == Kind::kRows) std::swap(a, b);
  if (a.kind == Kind::kRows) {
    int64_t factor = 0;
    const bool is_known = b.kind == Kind::kNumber && b.number > 0 && a.number > 0 &&
                          !__builtin_mul_overflow(a.number, b.number, &factor);
    if (b.kind == Kind::kNumber && b.number <= 0) return RowSize::unknown();
    return RowSize::rows(is_known ? factor : 0);
  }
  if (a.is(1)) return b;
  if (b.is(1)) return a;
  if (a.kind == Kind::kOther || b.kind == Kind::kOther) return RowSize::other();
  return combined(a, b, false, 1);
}

RowSize product(const RowShape& shape, size_t from, size_t to) {
  RowSize all = RowSize::of(1);
  for (size_t i = from; i < std::min(to, shape.size()); ++i) all = times(all, shape[i]);
  return all;
}

RowSize divided(RowSize a, RowSize b) {
  if (b.is(1)) return a;
  if (!a.has_rows() && !b.has_rows()) {
    if (a.kind != Kind::kNumber || b.kind != Kind::kNumber) return RowSize::other();
    if (b.number == 0) return RowSize::other();
    // Div of whole numbers cuts toward zero, as C++ does.
    return b.number == -1 ? RowSize::other() : RowSize::of(a.number / b.number);
  }
  const bool is_whole = a.kind == Kind::kRows && a.number > 0 && b.kind == Kind::kNumber &&
                        b.number > 0 && a.number % b.number == 0;
  return is_whole ? RowSize::rows(a.number / b.number) : RowSize::unknown();
}

std::optional<std::vector<int64_t>> RowValue::constants() const {
  if (!numbers) return std::nullopt;
  std::vector<int64_t> all;
  for (const RowSize& one : *numbers) {
    if (one.kind != RowSize::Kind::kNumber) return std::nullopt;
    all.push_back(one.number);
  }
  return all;
}

bool compute_sizes(RowNode& node) {
  const std::string& type = node.node.op_type;
  if (node.outputs.size() != 1) return false;
  if (type == "Constant") return constant(node);
  if (type == "Shape") return shape_of(node);
  if (type == "Gather") return gather(node);
  if (type == "Concat") return concat(node);
  if (type == "Slice") return slice(node);
  if (type == "Mul" || type == "Add" || type == "Sub" || type == "Div") return arithmetic(node);
  const bool keeps = type == "Cast" || type == "Identity" || type == "Unsqueeze" ||
                     type == "Squeeze" || type == "Reshape";
  return keeps && same_numbers(node);
}

}  // namespace lumen::models
