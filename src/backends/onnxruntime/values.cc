// See the header.
#include "backends/onnxruntime/values.h"

#include <array>
#include <new>

namespace lumen::backends::onnxruntime {

void AlignedFree::operator()(std::byte* p) const noexcept {
  ::operator delete[](p, std::align_val_t{kTensorAlignment});
}

Buffer make_buffer(size_t bytes) {
  return Buffer(new (std::align_val_t{kTensorAlignment}) std::byte[bytes]());
}

OrtValue* BoundValue::bind(const OrtMemoryInfo& memory, ElementType type, const Shape& shape,
                           void* data, size_t bytes) {
  if (value_ != nullptr && data_ == data && shape_ == shape) return value_.get();
  value_.reset();
  OrtValue* value = nullptr;
  must(api().CreateTensorWithDataAsOrtValue(&memory, data, bytes, shape.dimensions().data(),
                                            shape.rank(), their_type(type), &value));
  value_.reset(value);
  data_ = data;
  shape_ = shape;
  return value;
}

OrtValue* BoundValue::bind_strings(const Shape& shape) {
  if (value_ != nullptr && shape_ == shape) return value_.get();
  value_.reset();
  OrtAllocator* allocator = nullptr;
  must(api().GetAllocatorWithDefaultOptions(&allocator));
  OrtValue* value = nullptr;
  must(api().CreateTensorAsOrtValue(allocator, shape.dimensions().data(), shape.rank(),
                                    ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING, &value));
  value_.reset(value);
  shape_ = shape;
  return value;
}

Result<Shape> shape_of(const OrtValue& value, const std::string& output) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  must(api().GetTensorTypeAndShape(&value, &info));
  const Owned<OrtTensorTypeAndShapeInfo> owned(info);
  size_t rank = 0;
  must(api().GetDimensionsCount(info, &rank));
  if (rank > limits::kMaxRank) {
    return Status::error(Code::kUnsupported, "output '%s' has rank %zu; wanted at most %zu",
                         output.c_str(), rank, limits::kMaxRank);
  }
  std::array<int64_t, limits::kMaxRank> sizes{};
  must(api().GetDimensions(info, sizes.data(), rank));
  Shape shape;
  for (size_t axis = 0; axis < rank; ++axis) (void)shape.append(sizes[axis]);
  return shape;
}

}  // namespace lumen::backends::onnxruntime
