// WrappingBackend: passes everything through to another backend, but gives each instance it makes
// to `wrap`, and each region offered to `on_region`.
// Threads: as Backend. Memory: the heap. Errors: as the wrapped backend does.
#pragma once

#include <lumen/models/backend.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace lumen::models {

using WrapInstance = std::function<std::unique_ptr<Instance>(std::unique_ptr<Instance>)>;

class WrappingModel final : public LoadedModel {
 public:
  WrappingModel(std::unique_ptr<LoadedModel> inner, WrapInstance wrap)
      : inner_(std::move(inner)), wrap_(std::move(wrap)) {}
  const ModelMetadata& metadata() const noexcept override { return inner_->metadata(); }
  Result<std::unique_ptr<Instance>> create_instance(std::span<const uint32_t> sizes) override {
    Result<std::unique_ptr<Instance>> inner = inner_->create_instance(sizes);
    if (!inner.ok()) return inner;
    return wrap_(std::move(*inner));
  }

 private:
  std::unique_ptr<LoadedModel> inner_;
  WrapInstance wrap_;
};

class WrappingBackend final : public Backend {
 public:
  WrappingBackend(
      std::unique_ptr<Backend> inner, WrapInstance wrap,
      std::function<void(std::span<std::byte>)> on_region = [](std::span<std::byte>) {})
      : inner_(std::move(inner)), wrap_(std::move(wrap)), on_region_(std::move(on_region)) {}
  std::string_view name() const noexcept override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  BackendTraits traits() const noexcept override { return inner_->traits(); }
  Result<std::unique_ptr<LoadedModel>> load(const ModelSource& source) override {
    Result<std::unique_ptr<LoadedModel>> inner = inner_->load(source);
    if (!inner.ok()) return inner;
    return std::unique_ptr<LoadedModel>(std::make_unique<WrappingModel>(std::move(*inner), wrap_));
  }
  Status register_memory(std::span<std::byte> region) override {
    on_region_(region);
    return inner_->register_memory(region);
  }
  void unregister_memory(std::span<std::byte> region) noexcept override {
    inner_->unregister_memory(region);
  }

 private:
  std::unique_ptr<Backend> inner_;
  WrapInstance wrap_;
  std::function<void(std::span<std::byte>)> on_region_;
};

}  // namespace lumen::models
