// A backend that runs models on a device by an execution provider of ONNX Runtime: one session a
// model, an instance of which has several runs under way at once. Nothing of a model runs on the
// CPU without a word: a node that the provider has no kernel for makes the model unavailable.
// Threads: load() and create_instance() by several; the runs on the slots' own. Memory: the
// device's, as the provider likes. Errors: the library's errors become a Status.
#include <lumen/backends/onnxruntime.h>
#include <lumen/memory/request_memory.h>
#include <lumen/models/trial_run.h>

#include "backends/failure.h"
#include "backends/onnxruntime/device_instance.h"
#include "backends/onnxruntime/device_link.h"
#include "backends/onnxruntime/devices.h"
#include "backends/onnxruntime/instance.h"
#include "backends/onnxruntime/session.h"
#include "backends/slots.h"

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lumen::backends::onnxruntime {
namespace {

// For the tensors of a warm-up; virtual until they are written.
constexpr size_t kWarmUpBytes = size_t{64} << 20;

// Refuses nodes on the CPU, then as the device likes.
class OnDeviceAlone final : public SessionDevice {
 public:
  explicit OnDeviceAlone(const Device& device) : device_(device) {}
  void append_to(OrtSessionOptions& options, const ModelSource& source,
                 bool shapes_vary) const override {
    must(api().AddSessionConfigEntry(&options, "session.disable_cpu_ep_fallback", "1"));
    device_.append_to(options, source, shapes_vary);
  }

 private:
  const Device& device_;
};

class DeviceModel final : public LoadedModel {
 public:
  DeviceModel(std::shared_ptr<const SharedSession> shared, DeviceOptions options,
              const OrtEpDevice* device)
      : shared_(std::move(shared)), options_(std::move(options)), device_(device) {}

  const ModelMetadata& metadata() const noexcept override { return shared_->metadata; }

  Result<std::unique_ptr<Instance>> create_instance(std::span<const uint32_t>) override {
    return or_failed(Code::kUnavailable, "starting", shared_->metadata.name,
                     [&]() -> Result<std::unique_ptr<Instance>> { return make_slots(); });
  }

 private:
  Result<std::unique_ptr<Instance>> make_slots() const {
    Result<RequestMemory> memory = RequestMemory::create(kWarmUpBytes);
    if (!memory.ok()) return memory.status();
    std::vector<std::unique_ptr<Instance>> slots;
    for (uint32_t i = 0; i < options_.streams; ++i) {
      slots.push_back(make_device_instance(shared_, device_));
      LUMEN_RETURN_IF_ERROR(warm_up(*slots.back(), *memory));
    }
    return std::unique_ptr<Instance>(std::make_unique<Slots>(std::move(slots)));
  }

  // The first run of a size chooses kernels and takes memory. A model may refuse rows that are made
  // up: then a request pays for that. A device that does not answer makes it unavailable.
  Status warm_up(Instance& instance, RequestMemory& memory) const {
    for (const uint32_t rows : options_.batch_sizes) {
      memory.reset(kWarmUpBytes);
      TrialRun trial(shared_->metadata, nullptr, memory);
      const bool ran = trial.run(instance, 0, rows, TrialRun::kUsualFreeSize);
      if (!ran && trial.status().code() == Code::kInternal &&
          !DeviceLink(shared_, device_).answers()) {
        return trial.status();
      }
      if (!has_batch_axis(shared_->metadata)) break;  // one size
    }
    return {};
  }

  const std::shared_ptr<const SharedSession> shared_;
  const DeviceOptions options_;
  const OrtEpDevice* const device_;
};

class DeviceBackend final : public Backend {
 public:
  explicit DeviceBackend(const ExecutionProvider& provider)
      : name_(provider.name), device_(make_device(provider)) {}

  std::string_view name() const noexcept override { return name_; }
  std::string description() const override { return device_->description(); }
  Status availability() const override { return device_->availability(); }
  BackendTraits traits() const noexcept override {
    return {.loads_in_parallel = true, .batches_in_flight = true};
  }

  Result<std::unique_ptr<LoadedModel>> load(const ModelSource& source) override {
    LUMEN_RETURN_IF_ERROR(check_source(source, name_.c_str()));
    if (const Status here = availability(); !here.ok()) {
      return Status::error(here.code(), "model '%s': %s", source.name.c_str(), here.c_message());
    }
    Result<std::shared_ptr<Library>> library = Library::open();
    if (!library.ok()) return library.status();
    return or_failed(Code::kUnavailable, "loading", source.name,
                     [&] { return open(std::move(*library), source); });
  }

 private:
  Status check_types(const ModelMetadata& metadata) const {
    for (const auto* tensors : {&metadata.inputs, &metadata.outputs}) {
      for (const TensorSpec& one : *tensors) {
        if (one.type != ElementType::kBytes) continue;
        return Status::error(Code::kUnavailable,
                             "model '%s': '%s' is a tensor of strings, which the backend %s can't "
                             "hold; wanted numbers, or \"backend\": \"auto\"",
                             metadata.name.c_str(), one.name.c_str(), name_.c_str());
      }
    }
    return {};
  }

  Result<std::unique_ptr<LoadedModel>> open(std::shared_ptr<Library> library,
                                            const ModelSource& source) const {
    const OnDeviceAlone alone(*device_);
    try {
      auto shared = open_session(std::move(library), source, &alone);
      if (!shared.ok()) return shared.status();
      LUMEN_RETURN_IF_ERROR(check_types((*shared)->metadata));
      return std::unique_ptr<LoadedModel>(std::make_unique<DeviceModel>(
          std::move(*shared), source.options.device, device_->ep_device(source.options)));
    } catch (const Failure& failure) {
      if (std::string_view(failure.what()).find("fallback to CPU EP") == std::string_view::npos) {
        throw;
      }
    }
    return Status::error(Code::kUnavailable,
                         "model '%s': the backend %s has no kernel for some of its nodes, and "
                         "they are not run on the CPU without a word; wanted a model that it can "
                         "run as a whole, or \"backend\": \"auto\"",
                         source.name.c_str(), name_.c_str());
  }

  const std::string name_;
  const std::unique_ptr<Device> device_;
};

}  // namespace
}  // namespace lumen::backends::onnxruntime

namespace lumen::backends {

std::unique_ptr<models::Backend> make_device_backend(const models::ExecutionProvider& provider) {
  onnxruntime::disable_reports();
  return std::make_unique<onnxruntime::DeviceBackend>(provider);
}

}  // namespace lumen::backends
