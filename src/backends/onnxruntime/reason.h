// The reason in an error's text of ONNX Runtime, for users of the server.
// Threads: any. Memory: the heap. Errors: none.
#pragma once

#include <string>
#include <string_view>

namespace lumen::backends::onnxruntime {

// The library's words without the place in its source, its codes and this machine's name:
// "/onnxruntime_src/...cc:63 ... [ONNXRuntimeError] : 1 : FAIL : REASON ; GPU=-1 ; hostname=...".
[[nodiscard]] std::string reason_of(std::string_view text);

}  // namespace lumen::backends::onnxruntime
