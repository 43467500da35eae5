// A tensor's type and shape as messages say them: "FP32[-1,3]".
// Threads: any. Memory: the string. Errors: none.
#pragma once

#include <lumen/tensor/element_type.h>
#include <lumen/tensor/shape.h>

#include <cstddef>
#include <string>

namespace lumen {

[[nodiscard]] inline std::string type_text(ElementType type, const Shape& shape) {
  std::string text(element_type_name(type));
  text += '[';
  for (size_t i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(shape[i]);
  }
  return text + ']';
}

}  // namespace lumen
