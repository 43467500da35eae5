// The bytes of a BYTES tensor: each element is a little-endian u32 length and that many bytes.
// Threads: any. Memory: none. Errors: Status naming the tensor, the value got and the value wanted.
#pragma once

#include <lumen/base/result.h>
#include <lumen/tensor/tensor_view.h>

#include <string_view>

namespace lumen {

// Of bytes that somebody else wrote: the lengths must add up and match the shape.
[[nodiscard]] Status check_bytes_tensor(std::string_view tensor_name,
                                        const TensorView& tensor) noexcept;

// "FP32 [1,256]", for error messages.
struct TensorText {
  char text[200];
};
[[nodiscard]] TensorText describe(const TensorView& tensor) noexcept;

}  // namespace lumen
