// ObservingBackend: wraps a backend and notes where its model read each request's first input, and
// which regions the server has offered for request data.
// Threads: Observations from any. Memory: the heap. Says no: as the wrapped backend does.
#pragma once

#include <lumen/engine/backend.h>

#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace lumen::engine {

class Observations {
 public:
  struct Call {
    const std::byte* request_data;  // where the server has put the input
    const void* bound;              // where the model read it
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
  StartOutcome start(InferRequest& request, void (*done)(InferRequest&) noexcept) noexcept override {
    const std::byte* data = request.inputs[0].data;
    const StartOutcome outcome = inner_->start(request, done);
    observations_->note({data, inner_->last_bound_input(0)});
    return outcome;
  }
  uint32_t max_in_flight() const noexcept override { return inner_->max_in_flight(); }

 private:
  std::unique_ptr<Instance> inner_;
  std::shared_ptr<Observations> observations_;
};

class ObservingModel final : public LoadedModel {
 public:
  ObservingModel(std::unique_ptr<LoadedModel> inner, std::shared_ptr<Observations> observations)
      : inner_(std::move(inner)), observations_(std::move(observations)) {}
  const ModelMetadata& metadata() const noexcept override { return inner_->metadata(); }
  Result<std::unique_ptr<Instance>> create_instance() override {
    Result<std::unique_ptr<Instance>> inner = inner_->create_instance();
    if (!inner.ok()) return inner;
    return std::unique_ptr<Instance>(
        std::make_unique<ObservingInstance>(std::move(*inner), observations_));
  }

 private:
  std::unique_ptr<LoadedModel> inner_;
  std::shared_ptr<Observations> observations_;
};

class ObservingBackend final : public Backend {
 public:
  ObservingBackend(std::unique_ptr<Backend> inner, std::shared_ptr<Observations> observations)
      : inner_(std::move(inner)), observations_(std::move(observations)) {}
  std::string description() const override { return inner_->description(); }
  Result<std::unique_ptr<LoadedModel>> load(const ModelSource& source) override {
    Result<std::unique_ptr<LoadedModel>> inner = inner_->load(source);
    if (!inner.ok()) return inner;
    return std::unique_ptr<LoadedModel>(
        std::make_unique<ObservingModel>(std::move(*inner), observations_));
  }
  Status register_memory(std::span<std::byte> region) override {
    observations_->note(region);
    return inner_->register_memory(region);
  }

 private:
  std::unique_ptr<Backend> inner_;
  std::shared_ptr<Observations> observations_;
};

}  // namespace lumen::engine
