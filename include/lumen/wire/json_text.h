// json_text: a JSON document of any length as a string, for the control plane.
// Threads: any. Memory: the heap; a string that grows until the document fits. Errors: aborts above
// 1 GiB.
#pragma once

#include <lumen/base/check.h>
#include <lumen/wire/json_writer.h>

#include <cstddef>
#include <string>

namespace lumen::wire {

// The text that `fill(JsonWriter&)` writes. It may be called several times.
template <typename Fill>
[[nodiscard]] std::string json_text(const Fill& fill) {
  for (size_t bytes = 4096;; bytes *= 4) {
    std::string text(bytes, '\0');
    JsonWriter writer(text);
    fill(writer);
    if (!writer.overflowed()) {
      text.resize(writer.text().size());
      return text;
    }
    LUMEN_CHECK(bytes < (1u << 30));
  }
}

}  // namespace lumen::wire
