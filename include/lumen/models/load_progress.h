// LoadProgress: says now and then how far the loading of a repository is, where that takes long.
// Threads: one. Memory: the heap, for a text. Errors: never.
#pragma once

#include <lumen/models/model_repository.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

namespace lumen::models {

class LoadProgress {
 public:
  // At most one line in this time, and none for a repository that is loaded within it.
  static constexpr uint64_t kPeriodNs = 1'000'000'000;

  LoadProgress(uint64_t begin_ns, std::function<void(std::string_view)> say)
      : begin_ns_(begin_ns), next_ns_(begin_ns + kPeriodNs), say_(std::move(say)) {}

  // The model, the `number`-th of `count`, is loaded or can't be.
  void on_loaded(const Model& model, size_t number, size_t count, uint64_t now_ns);

 private:
  const uint64_t begin_ns_;
  uint64_t next_ns_;
  const std::function<void(std::string_view)> say_;
};

}  // namespace lumen::models
