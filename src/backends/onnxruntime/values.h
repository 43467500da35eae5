// Values of ONNX Runtime over memory that is not its own, and the memory that small tensors are
// copied to.
// Threads: the instance's. Memory: an allocation of the library's for each new value.
// Errors: the library's errors are thrown as Failure.
#pragma once

#include <lumen/base/result.h>
#include <lumen/tensor/shape.h>

#include "backends/onnxruntime/library.h"
#include "backends/onnxruntime/ports.h"

#include <cstddef>
#include <memory>
#include <string>

namespace lumen::backends::onnxruntime {

inline constexpr size_t kTensorAlignment = 64;

struct AlignedFree {
  void operator()(std::byte* p) const noexcept;
};
using Buffer = std::unique_ptr<std::byte[], AlignedFree>;
[[nodiscard]] Buffer make_buffer(size_t bytes);

// Kept for as long as it fits.
class BoundValue {
 public:
  // `memory`: where `data` lies.
  OrtValue* bind(const OrtMemoryInfo& memory, ElementType type, const Shape& shape, void* data,
                 size_t bytes);
  // A tensor of strings, which the library owns.
  OrtValue* bind_strings(const Shape& shape);
  [[nodiscard]] const void* data() const noexcept { return data_; }

 private:
  Owned<OrtValue> value_;
  Shape shape_;
  void* data_ = nullptr;
};

// kUnsupported: more axes than the protocol allows. `output`: its name, for that sentence.
[[nodiscard]] Result<Shape> shape_of(const OrtValue& value, const std::string& output);

}  // namespace lumen::backends::onnxruntime
