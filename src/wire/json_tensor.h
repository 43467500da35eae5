// The "data" of a tensor as JSON: flat or nested as its shape, straight into packed little-endian.
// Threads: one. Memory: one block from the cursor's Allocator, 64-byte aligned.
// Errors: false, with the reason in the cursor, whose subject names the tensor.
#pragma once

#include <lumen/tensor/bytes_tensor.h>
#include <lumen/tensor/tensor_view.h>

#include "wire/json_cursor.h"

namespace lumen::wire {

// The cursor is at the value. `tensor` has its type and shape; data and byte_size are filled in.
[[nodiscard]] bool read_json_tensor(JsonCursor& cursor, TensorView& tensor) noexcept;

}  // namespace lumen::wire
