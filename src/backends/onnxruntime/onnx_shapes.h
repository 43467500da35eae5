// What an ONNX file says of the shapes of its inputs and outputs: what a session would tell too late, or not.
// Threads: any. Memory: the heap; names are views of the file.
// Errors: a file that is no model has no inputs and no outputs.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string_view>

namespace lumen::backends::onnxruntime {

// Whether an axis of an input has any size.
[[nodiscard]] bool has_free_axes(std::span<const std::byte> file);

// Not even a number of axes.
[[nodiscard]] std::set<std::string_view> inputs_without_shape(std::span<const std::byte> file);
[[nodiscard]] std::set<std::string_view> outputs_without_shape(std::span<const std::byte> file);

}  // namespace lumen::backends::onnxruntime
