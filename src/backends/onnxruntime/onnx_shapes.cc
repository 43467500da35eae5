// See the header.
#include "backends/onnxruntime/onnx_shapes.h"

#include "backends/onnxruntime/onnx_proto.h"

#include <cstdint>
#include <optional>

namespace lumen::backends::onnxruntime {
namespace {

// Calls with the name of each of the graph's tensors of this kind, and its shape; nullopt: it has none.
template <typename Visit>
void for_each_shape(Bytes model, uint32_t kind, Visit visit) {
  Fields graph(find_field(model, kGraph).value_or(Bytes()));
  while (const auto value = graph.next()) {
    if (value->number != kind) continue;
    const Bytes type = find_field(value->payload, kValueType).value_or(Bytes());
    const std::optional<Bytes> tensor = find_field(type, kTensorType);
    if (!tensor) continue;
    visit(text_of(find_field(value->payload, kValueName).value_or(Bytes())),
          find_field(*tensor, kShape));
  }
}

std::set<std::string_view> values_without_shape(Bytes model, uint32_t kind) {
  std::set<std::string_view> names;
  for_each_shape(model, kind, [&](std::string_view name, std::optional<Bytes> shape) {
    if (!shape) names.insert(name);
  });
  return names;
}

bool is_free(Bytes axis) {
  Fields fields(axis);
  while (const auto field = fields.next()) {
    if (field->number == kSize) return static_cast<int64_t>(field->value) < 0;
  }
  return true;
}

}  // namespace

bool has_free_axes(std::span<const std::byte> file) {
  bool found = false;
  for_each_shape(file, kGraphInput, [&](std::string_view, std::optional<Bytes> shape) {
    Fields axes(shape.value_or(Bytes()));
    while (const auto axis = axes.next()) found |= axis->number == kAxis && is_free(axis->payload);
  });
  return found;
}

std::set<std::string_view> inputs_without_shape(std::span<const std::byte> file) {
  return values_without_shape(file, kGraphInput);
}

std::set<std::string_view> outputs_without_shape(std::span<const std::byte> file) {
  return values_without_shape(file, kOutput);
}

}  // namespace lumen::backends::onnxruntime
