// See the header.
#include "models/metadata_limits.h"

#include <lumen/base/limits.h>
#include <lumen/base/utf8.h>

#include <cstdint>
#include <string>

namespace lumen::models {
namespace {

// A frame of the bus counts a name's bytes in 16 bits.
constexpr size_t kMaxOutputNameBytes = UINT16_MAX;

// Requests name inputs, in JSON or in a frame of the bus; replies name outputs, which no request
// has to.
Status check_tensors(const ModelMetadata& metadata, const char* what, size_t least,
                     const std::vector<TensorSpec>& tensors, size_t most_name_bytes) noexcept {
  if (tensors.size() < least || tensors.size() > limits::kMaxTensors) {
    return Status::error(Code::kUnavailable, "model '%s' has %zu %ss; wanted %zu to %zu",
                         metadata.name.c_str(), tensors.size(), what, least, limits::kMaxTensors);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = tensors[i].name;
    const bool is_text = is_utf8(name);
    if (is_text && !name.empty() && name.size() <= most_name_bytes) continue;
    return Status::error(Code::kUnavailable,
                         "model '%s': the name of %s %zu has %zu bytes%s, which no message can "
                         "carry; wanted 1 to %zu bytes of UTF-8; rename it in the file",
                         metadata.name.c_str(), what, i, name.size(),
                         is_text ? "" : " that are not UTF-8", most_name_bytes);
  }
  return {};
}

}  // namespace

Status check_metadata(const ModelMetadata& metadata) noexcept {
  LUMEN_RETURN_IF_ERROR(
      check_tensors(metadata, "input", 0, metadata.inputs, limits::kMaxNameBytes));
  return check_tensors(metadata, "output", 1, metadata.outputs, kMaxOutputNameBytes);
}

}  // namespace lumen::models
