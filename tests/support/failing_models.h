// Inputs for the models of tests/fixtures/models, which refuse or fail for some of them.
// Threads: one. Memory: the request's. Errors: LUMEN_CHECK where that has no room.
#pragma once

#include "support/pending_request.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lumen::models {

// "relu_sum" and "relu_concat": the rows have to fit together.
inline void add_pair(PendingRequest& pending, int64_t left_rows, int64_t right_rows) {
  for (const int64_t rows : {left_rows, right_rows}) {
    std::vector<float> values(static_cast<size_t>(4 * rows));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.37f * static_cast<float>(i) - static_cast<float>(rows);
    }
    pending.add_input(ElementType::kFp32, {rows, 4}, values);
  }
}

// "pick": the run fails for an index of 4 and more.
inline void add_pick(PendingRequest& pending, int64_t rows, int32_t index) {
  const auto count = static_cast<size_t>(4 * rows);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = 0.21f * static_cast<float>(i);
  std::vector<int32_t> indices(count, 2);
  indices.back() = index;
  pending.add_input(ElementType::kFp32, {rows, 4}, values);
  pending.add_input(ElementType::kInt32, {rows, 4}, indices);
}

// "reshape_to": eight numbers, in a shape that the request gives.
inline void add_reshape(PendingRequest& pending, int64_t first, int64_t second) {
  pending.add_input<float>(ElementType::kFp32, {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  pending.add_input<int64_t>(ElementType::kInt64, {2}, {first, second});
}

}  // namespace lumen::models
