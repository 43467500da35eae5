// See the header. No memory.
#include <lumen/service/memory_need.h>

#include <algorithm>
#include <optional>

namespace lumen::service {
namespace {

// The shortest text of an element is "1,", and the longest element that it can be has eight bytes.
constexpr size_t kTextBytesOfAnElement = 2;
constexpr size_t kMostBytesOfAnElement = 8;
// The longest text of a byte of output: "false," of a BOOL.
constexpr size_t kTextOfAByte = 6;
// Lists, names and numbers around one tensor, in the request and in the reply, and its alignment.
constexpr size_t kListBytesOfATensor = 1024;
constexpr size_t kListBytes = 4096;

size_t saturated_sum(size_t a, size_t b) noexcept {
  size_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}
size_t saturated_product(size_t a, size_t b) noexcept {
  size_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

// Elements of all axes but a free first one; nullopt: another axis is free.
std::optional<size_t> elements_of_a_row(const Shape& shape) noexcept {
  Shape row = shape;
  if (row.rank() > 0 && row[0] < 0) row[0] = 1;
  return row.element_count();
}

bool has_rows(const Shape& shape) noexcept { return shape.rank() > 0 && shape[0] < 0; }

// As many rows as the whole body could be of the first input.
size_t most_rows(const engine::ModelMetadata& model, const BodySize& body) noexcept {
  if (model.inputs.empty() || !has_rows(model.inputs[0].shape)) return 1;
  const engine::TensorSpec& input = model.inputs[0];
  const size_t elements = body.binary_bytes / std::max<size_t>(element_size(input.type), 1) +
                          body.text_bytes / kTextBytesOfAnElement;
  return elements / std::max<size_t>(elements_of_a_row(input.shape).value_or(1), 1) + 1;
}

}  // namespace

MemoryNeed memory_need(const engine::ModelMetadata& model, const BodySize& body) noexcept {
  const size_t tensors = model.inputs.size() + model.outputs.size();
  MemoryNeed need;
  need.body_bytes = kListBytes + tensors * kListBytesOfATensor;
  const size_t decoded =
      saturated_product(body.text_bytes, kMostBytesOfAnElement / kTextBytesOfAnElement);
  for (const size_t part : {body.binary_bytes, body.collected_bytes, decoded}) {
    need.body_bytes = saturated_sum(need.body_bytes, part);
  }
  const size_t rows = most_rows(model, body);
  for (const engine::TensorSpec& output : model.outputs) {
    const std::optional<size_t> row = elements_of_a_row(output.shape);
    if (!row) {
      need.reply_bytes = saturated_sum(need.reply_bytes, saturated_sum(body.binary_bytes, decoded));
      continue;
    }
    const size_t elements = saturated_product(*row, has_rows(output.shape) ? rows : 1);
    const size_t bytes = saturated_product(elements, element_size(output.type));
    need.reply_bytes = saturated_sum(need.reply_bytes, saturated_product(bytes, 1 + kTextOfAByte));
  }
  return need;
}

}  // namespace lumen::service
