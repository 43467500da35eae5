// Placement: which workers run a model, where its config.json names them or their number.
// Threads: the control plane. Memory: a list for each model. Errors: place() names the worker that
// there is not.
#pragma once

#include <lumen/base/limits.h>
#include <lumen/engine/engine.h>
#include <lumen/models/model_repository.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace lumen::engine {

class Placement {
 public:
  // `warn`: told of a model's wish that the queue type does not follow.
  Placement(const EngineConfig& config, std::function<void(std::string_view)> warn)
      : queue_type_(config.queue_type),
        worker_count_(config.thread_count),
        warn_(std::move(warn)),
        workers_(limits::kMaxModels) {}

  [[nodiscard]] Status place(const models::Model& model);
  // In order; empty: all.
  [[nodiscard]] const std::vector<uint32_t>& workers_of(const models::Model& model) const noexcept {
    return workers_[model.index()];
  }
  [[nodiscard]] bool is_on(uint32_t worker, const models::Model& model) const noexcept;

 private:
  const models::QueueType queue_type_;
  const uint32_t worker_count_;
  const std::function<void(std::string_view)> warn_;
  std::vector<std::vector<uint32_t>> workers_;  // by Model::index()
};

}  // namespace lumen::engine
