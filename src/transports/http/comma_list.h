// Lists of the settings of a listener: names and origins, separated by commas, in any case.
// Threads: any. Memory: none. Errors: none.
#pragma once

#include <algorithm>
#include <string_view>

namespace lumen::http {

constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

// `accept(element)`: of each, empty ones but the last too.
template <typename Accept>
void for_each_element(std::string_view list, Accept accept) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    accept(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
}

}  // namespace lumen::http
