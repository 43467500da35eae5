// The lists of a request's Accept and Accept-Encoding (RFC 9110, 12.4.2 and 12.5).
// Threads: any. Memory: none. Errors: an element that can't be read counts as not there.
#pragma once

#include <cstddef>
#include <string_view>

namespace lumen::wire {

inline constexpr int kNotListed = -1;

// How much the client wants `name`, which is lower case, in thousandths: 0, "not this", to 1000;
// kNotListed where the list does not name it. Other parameters than q are passed over. Of several
// elements the largest.
[[nodiscard]] int quality_of(std::string_view list, std::string_view name) noexcept;

// How many elements the list has; empty ones do not count.
[[nodiscard]] size_t elements_of(std::string_view list) noexcept;

}  // namespace lumen::wire
