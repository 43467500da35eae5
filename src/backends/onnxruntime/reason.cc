// See the header.
#include "backends/onnxruntime/reason.h"

#include <cstddef>

namespace lumen::backends::onnxruntime {

std::string reason_of(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  text = text.substr(0, text.find(" ; GPU="));
  constexpr std::string_view kCode = "[ONNXRuntimeError] : ";
  if (const size_t code = text.rfind(kCode); code != text.npos) {
    text.remove_prefix(code + kCode.size());
    for (int field = 0; field < 2; ++field) {  // a number and its word
      const size_t end = text.find(" : ");
      if (end != text.npos) text.remove_prefix(end + 3);
    }
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.remove_suffix(1);
  return std::string(text);
}

}  // namespace lumen::backends::onnxruntime
