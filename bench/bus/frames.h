// The frames that a Python consumer multiplies by a matrix: f32[256], value[i] = number + i * 0.001
// in double, rounded once, type 1; at the end 1,024 zero bytes of type 0.
// Threads: one. Memory: none. Errors: those of the end that they are sent through.
#pragma once

#include "two_processes.h"

namespace lumen::bench {

inline void fill_frame(std::byte* to, uint64_t number) {
  constexpr size_t kValues = 256;
  auto* values = reinterpret_cast<float*>(to);  // at a multiple of 64
  const auto first = static_cast<double>(number);
  for (size_t i = 0; i < kValues; ++i) {
    values[i] = static_cast<float>(first + static_cast<double>(i) * 0.001);
  }
}

// `end` sends as two_processes.h says, with the type as a third argument.
template <typename End>
void produce_frames(End& end, uint64_t count) {
  constexpr size_t kBytes = 1024;
  for (uint64_t number = 0; number < count; ++number) {
    end.send(kBytes, [number](std::byte* to) { fill_frame(to, number); }, 1);
  }
  end.send(kBytes, [](std::byte* to) { std::memset(to, 0, kBytes); }, 0);
  end.flush();
}

}  // namespace lumen::bench
