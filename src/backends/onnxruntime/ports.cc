// See the header.
#include "backends/onnxruntime/ports.h"

#include <lumen/base/limits.h>

#include <algorithm>
#include <memory>
#include <string_view>

namespace lumen::backends::onnxruntime {
namespace {

struct TypePair {
  ElementType ours;
  ONNXTensorElementDataType theirs;
};
constexpr std::array<TypePair, 14> kTypes = {{
    {ElementType::kBool, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL},
    {ElementType::kUint8, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8},
    {ElementType::kUint16, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16},
    {ElementType::kUint32, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32},
    {ElementType::kUint64, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64},
    {ElementType::kInt8, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8},
    {ElementType::kInt16, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16},
    {ElementType::kInt32, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},
    {ElementType::kInt64, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64},
    {ElementType::kFp16, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16},
    {ElementType::kBf16, ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16},
    {ElementType::kFp32, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},
    {ElementType::kFp64, ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE},
    {ElementType::kBytes, ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING},
}};

using GetCount = OrtStatus*(ORT_API_CALL*)(const OrtSession*, size_t*);
using GetName = OrtStatus*(ORT_API_CALL*)(const OrtSession*, size_t, OrtAllocator*, char**);
using GetType = OrtStatus*(ORT_API_CALL*)(const OrtSession*, size_t, OrtTypeInfo**);

const char* kind_name(ONNXType type) noexcept {
  switch (type) {
    case ONNX_TYPE_SEQUENCE: return "a sequence";
    case ONNX_TYPE_MAP: return "a map";
    case ONNX_TYPE_SPARSETENSOR: return "a sparse tensor";
    case ONNX_TYPE_OPTIONAL: return "optional";
    default: return "no tensor";
  }
}

std::string name_of(const OrtSession& session, GetName get, size_t index) {
  OrtAllocator* allocator = nullptr;
  must(api().GetAllocatorWithDefaultOptions(&allocator));
  char* name = nullptr;
  must(get(&session, index, allocator, &name));
  const std::string copy = name;
  must(api().AllocatorFree(allocator, name));
  return copy;
}

Result<Port> describe_one(const std::string& model, const char* kind, std::string name,
                          const OrtTypeInfo& type) {
  Port port;
  port.spec.name = std::move(name);
  ONNXType what = ONNX_TYPE_UNKNOWN;
  must(api().GetOnnxTypeFromTypeInfo(&type, &what));
  if (what != ONNX_TYPE_TENSOR) {
    return Status::error(
        Code::kUnsupported,
        "model '%s': %s '%s' is %s, which the protocol can't carry; wanted tensors. "
        "Convert the model with tensors as outputs (skl2onnx, onnxmltools: "
        "options={'zipmap': False})",
        model.c_str(), kind, port.spec.name.c_str(), kind_name(what));
  }
  const OrtTensorTypeAndShapeInfo* info = nullptr;  // the type's own
  must(api().CastTypeInfoToTensorInfo(&type, &info));
  ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  must(api().GetTensorElementType(info, &element));
  size_t rank = 0;
  must(api().GetDimensionsCount(info, &rank));
  const std::optional<ElementType> ours = our_type(element);
  if (!ours || rank > limits::kMaxRank) {
    return Status::error(
        Code::kUnsupported,
        "model '%s': %s '%s' has ONNX's datatype %d and rank %zu; wanted a datatype "
        "of the protocol and a rank of at most %zu",
        model.c_str(), kind, port.spec.name.c_str(), static_cast<int>(element), rank,
        limits::kMaxRank);
  }
  std::vector<int64_t> sizes(rank);
  std::vector<const char*> names(rank);
  must(api().GetDimensions(info, sizes.data(), rank));
  must(api().GetSymbolicDimensions(info, names.data(), rank));
  port.spec.type = *ours;
  for (size_t axis = 0; axis < rank; ++axis) {
    const bool is_free = sizes[axis] < 0;
    (void)port.spec.shape.append(is_free ? Shape::kDynamic : sizes[axis]);  // fits: see rank
    port.axes.emplace_back(is_free ? names[axis] : "");
  }
  return port;
}

Result<std::vector<Port>> describe_all(const std::string& model, const char* kind,
                                       const OrtSession& session, GetCount get_count,
                                       GetName get_name, GetType get_type) {
  size_t count = 0;
  must(get_count(&session, &count));
  std::vector<Port> ports;
  for (size_t i = 0; i < count; ++i) {
    OrtTypeInfo* type = nullptr;
    must(get_type(&session, i, &type));
    const Owned<OrtTypeInfo> owned(type);
    Result<Port> port = describe_one(model, kind, name_of(session, get_name, i), *type);
    if (!port.ok()) return port.status();
    ports.push_back(std::move(*port));
  }
  return ports;
}

// Converters of LightGBM declare labels as [1] for any number of rows (onnxmltools 1.16), and the
// library takes that for no more than a hint. So do we.
void free_rows(const std::vector<Port>& inputs, std::vector<Port>& outputs) {
  const auto has_free_rows = [](const Port& port) {
    return port.spec.shape.rank() > 0 && port.spec.shape[0] == Shape::kDynamic;
  };
  if (inputs.empty() || !std::ranges::all_of(inputs, has_free_rows)) return;
  for (Port& output : outputs) {
    Shape& shape = output.spec.shape;
    if (shape.rank() > 0 && shape[0] == 1) shape[0] = Shape::kDynamic;
  }
}

}  // namespace

std::optional<ElementType> our_type(ONNXTensorElementDataType type) noexcept {
  const auto found = std::ranges::find(kTypes, type, &TypePair::theirs);
  return found == kTypes.end() ? std::nullopt : std::optional(found->ours);
}

ONNXTensorElementDataType their_type(ElementType type) noexcept {
  return std::ranges::find(kTypes, type, &TypePair::ours)->theirs;
}

Result<Ports> describe(const std::string& model, const OrtSession& session) {
  const OrtApi& ort = api();
  auto inputs = describe_all(model, "input", session, ort.SessionGetInputCount,
                             ort.SessionGetInputName, ort.SessionGetInputTypeInfo);
  if (!inputs.ok()) return inputs.status();
  auto outputs = describe_all(model, "output", session, ort.SessionGetOutputCount,
                              ort.SessionGetOutputName, ort.SessionGetOutputTypeInfo);
  if (!outputs.ok()) return outputs.status();
  free_rows(*inputs, *outputs);
  return Ports{.inputs = std::move(*inputs), .outputs = std::move(*outputs)};
}

void mark_passed_on(const onnx::Graph& graph, Ports& ports) {
  const auto computed = onnx::computed_values(graph);
  for (Port& port : ports.outputs) port.is_computed = computed.contains(port.spec.name);
}

Status mark_unranked(const std::string& model, const onnx::Graph& graph, Ports& ports) {
  const auto inputs = onnx::without_shape(graph.inputs);
  for (const Port& port : ports.inputs) {
    if (port.spec.shape.rank() > 0 || !inputs.contains(port.spec.name)) continue;
    return Status::error(Code::kUnsupported,
                         "model '%s': input '%s' has no shape, not even a number of axes; wanted a "
                         "shape, with names for axes of any size. Give it one "
                         "(onnx.tools.update_model_dims), or export the model with an example",
                         model.c_str(), port.spec.name.c_str());
  }
  const auto outputs = onnx::without_shape(graph.outputs);
  for (Port& port : ports.outputs) {
    port.spec.has_rank = port.spec.shape.rank() > 0 || !outputs.contains(port.spec.name);
  }
  return {};
}

}  // namespace lumen::backends::onnxruntime
