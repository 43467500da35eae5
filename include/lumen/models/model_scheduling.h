// ModelScheduling: the part of a model's config.json about how and where its requests run.
// Threads: read by any. Memory: the heap, at the model's load. Errors: none.
#pragma once

#include <lumen/models/queue_type.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lumen::models {

// 1 is served first. Few, since each has a ring in each model's queue; clients that know more of
// them mean their lowest by the others.
inline constexpr uint32_t kPriorities = 3;
inline constexpr uint32_t kUsualPriority = 2;

struct ModelScheduling {
  // Of the workers' time, beside the other models that have work. A larger one is a typing mistake:
  // it would be as good as a priority.
  static constexpr uint32_t kMostWeight = 1000;

  QueueType queue_type = QueueType::kAuto;  // counts where the engine's is `auto`, too
  uint32_t weight = 1;
  uint32_t priority = kUsualPriority;  // of its requests that ask for none
  uint32_t instances = 0;              // so many workers have one; 0: all
  std::vector<uint32_t> workers;       // these have one; empty: any

  // It runs there alone, and never on an I/O thread.
  [[nodiscard]] bool is_on_some_workers() const noexcept {
    return instances != 0 || !workers.empty();
  }
  [[nodiscard]] uint32_t priority_of(uint32_t asked) const noexcept {
    return asked == 0 ? priority : std::min(asked, kPriorities);
  }
};

}  // namespace lumen::models
