// Bounds: the limits of a number, as data that checks, help and documents share.
// Threads: a value. Memory: text() and a failed check(), the heap. Errors: Status with got and
// wanted.
#pragma once

#include <lumen/base/result.h>

#include <bit>
#include <cstdint>
#include <string>

namespace lumen {

struct Bounds {
  uint64_t low = 0;
  uint64_t high = 0;
  bool is_power_of_two = false;

  // "1 to 64"
  [[nodiscard]] std::string text() const {
    return (is_power_of_two ? "a power of two from " : "") + std::to_string(low) + " to " +
           std::to_string(high);
  }
  [[nodiscard]] Status check(uint64_t number) const {
    const bool is_right = !is_power_of_two || std::has_single_bit(number);
    if (is_right && number >= low && number <= high) return {};
    return Status::error(Code::kInvalidArgument, "got %llu, wanted %s",
                         static_cast<unsigned long long>(number), text().c_str());
  }
};

}  // namespace lumen
