// SequenceTurn: the sequence of a request, as the run of a model that keeps states needs it.
// Threads: written before the run, which reads it. Memory: none; the owner of the request keeps it
// until the run has ended. Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lumen::models {

struct SequenceTurn {
  const std::byte* state = nullptr;  // before the run
  std::byte* new_state = nullptr;    // memory for the new ones
  bool starts = false;
  bool ends = false;
  // Its id: a number of 1 or more, or a text; for a model that takes ids as texts a text.
  uint64_t number = 0;
  std::string_view text{};
};

}  // namespace lumen::models
