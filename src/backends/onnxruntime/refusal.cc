// See the header.
#include "backends/onnxruntime/refusal.h"

#include <lumen/models/validate.h>

#include "backends/failure.h"

#include <algorithm>
#include <string_view>

namespace lumen::backends::onnxruntime {
namespace {

// The reason stands at the end, behind the node's name, and a source file and the condition
// there.
std::string_view last_sentence(std::string_view text) noexcept {
  for (const std::string_view mark : {"Status Message: ", " was false. "}) {
    const size_t found = text.find(mark);
    if (found != text.npos) text.remove_prefix(found + mark.size());
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace

Status refusal(const SharedSession& shared, const InferRequest& request,
               OrtStatus& error) noexcept {
  const char* text = api().GetErrorMessage(&error);
  const std::string_view said(text);
  const bool has_no_memory =
      said.find("bad_alloc") != said.npos || said.find("Failed to allocate memory") != said.npos;
  const bool has_free_axes = std::ranges::any_of(
      shared.ports.inputs, [](const Port& port) { return !port.spec.shape.is_static(); });
  const bool is_argument = api().GetErrorCode(&error) == ORT_INVALID_ARGUMENT;
  const bool may_be_sizes = has_free_axes && !shared.is_on_device;
  if (has_no_memory || (!may_be_sizes && !is_argument)) {
    return failed(Code::kInternal, "running", shared.metadata.name, text);
  }
  const Status shapes = shapes_refused(shared.metadata, request.inputs, true);
  const std::string_view reason = last_sentence(said).substr(0, 180);
  return Status::error(shapes.code(), "%.300s: %.*s", shapes.c_message(),
                       static_cast<int>(reason.size()), reason.data());
}

}  // namespace lumen::backends::onnxruntime
