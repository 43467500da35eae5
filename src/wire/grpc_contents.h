// The bytes of one input: sizes of raw ones, and InferTensorContents as packed elements.
// Threads: any. Memory: the Allocator given. Errors: Status naming the input.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/limits.h>
#include <lumen/base/result.h>
#include <lumen/wire/oip.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace lumen::wire {

// Of a client's text in a message: no more than a name may have.
[[nodiscard]] inline int width(std::string_view text) noexcept {
  return static_cast<int>(std::min(text.size(), limits::kMaxNameBytes));
}
// Whether input.tensor.byte_size is right for so many elements.
[[nodiscard]] Status check_raw_size(const InferInput& input, size_t elements) noexcept;
// `contents`: an InferTensorContents with `elements` of the input's type. Sets data and byte_size.
[[nodiscard]] Status read_contents(InferInput& input, std::string_view contents, size_t elements,
                                   Allocator& memory) noexcept;

}  // namespace lumen::wire
