// The best classes of an output, as Triton's extension "classification" has them: for each row the
// `most` largest elements, in descending order, as texts "VALUE:INDEX" or "VALUE:INDEX:LABEL", the
// value with six decimals where it is a float. Of equal elements the first comes first; NaN comes
// last.
// Threads: any. Memory: one block for the texts and one for the choice, from the Allocator given.
// Errors: no memory, or elements that have no order (BYTES, BOOL).
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/result.h>
#include <lumen/tensor/tensor_view.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lumen::service {

// A BYTES tensor of [rows, classes], or of [classes] where `has_rows` is false: then all elements
// are one row. `name`: for messages.
[[nodiscard]] Result<TensorView> best_classes(std::string_view name, const TensorView& output,
                                              bool has_rows, uint32_t most,
                                              std::span<const std::string> labels,
                                              Allocator& memory) noexcept;

}  // namespace lumen::service
