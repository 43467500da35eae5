// Observations: where a model read each request's first input, and which regions the server has
// offered for request data. observe() wraps a backend so that it notes both.
// Threads: Observations from any. Memory: the heap. Errors: as the wrapped backend does.
#pragma once

#include "support/wrapping_backend.h"

#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace lumen::models {

class Observations {
 public:
  struct Call {
    const std::byte* request_data;  // where the server has put the input
    const void* bound;              // where the model read it
    const std::byte* made;          // the first output, once start() has returned; nullptr: none
  };
  void note(Call call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(call);
  }
  void note(std::span<std::byte> region) {
    const std::lock_guard lock(mutex_);
    regions_.push_back(region);
  }
  [[nodiscard]] std::vector<Call> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  [[nodiscard]] bool in_a_region(const void* address) const {
    const std::lock_guard lock(mutex_);
    for (const std::span<std::byte> region : regions_) {
      if (address >= region.data() && address < region.data() + region.size()) return true;
    }
    return false;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Call> calls_;
  std::vector<std::span<std::byte>> regions_;
};

class ObservingInstance final : public Instance {
 public:
  ObservingInstance(std::unique_ptr<Instance> inner, std::shared_ptr<Observations> observations)
      : inner_(std::move(inner)), observations_(std::move(observations)) {}
  StartOutcome start(InferRequest& request,
                     void (*done)(InferRequest&) noexcept) noexcept override {
    const std::byte* data = request.inputs[0].data;
    const StartOutcome outcome = inner_->start(request, done);
    const bool is_done = outcome == StartOutcome::kDone && !request.outputs.empty();
    observations_->note(
        {data, inner_->last_bound_input(0), is_done ? request.outputs[0].data : nullptr});
    return outcome;
  }
  uint32_t max_in_flight() const noexcept override { return inner_->max_in_flight(); }

 private:
  std::unique_ptr<Instance> inner_;
  std::shared_ptr<Observations> observations_;
};

inline std::unique_ptr<Backend> observe(std::unique_ptr<Backend> backend,
                                        std::shared_ptr<Observations> observations) {
  return std::make_unique<WrappingBackend>(
      std::move(backend),
      [observations](std::unique_ptr<Instance> inner) {
        return std::unique_ptr<Instance>(
            std::make_unique<ObservingInstance>(std::move(inner), observations));
      },
      [observations](std::span<std::byte> region) { observations->note(region); });
}

}  // namespace lumen::models
