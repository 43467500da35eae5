// See the header. Options: ONNX Runtime's pages on the CUDA and the TensorRT execution provider.
#include "backends/onnxruntime/devices.h"

#include <lumen/base/check.h>

#include "backends/onnxruntime/reason.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lumen::backends::onnxruntime {
namespace {

using models::ExecutionProvider;
using Options = std::map<std::string, std::string>;

// As two lists of C strings, for as long as the options live.
struct KeysAndValues {
  explicit KeysAndValues(const Options& options) {
    for (const auto& [key, value] : options) {
      keys.push_back(key.c_str());
      values.push_back(value.c_str());
    }
  }
  std::vector<const char*> keys;
  std::vector<const char*> values;
};

// Files that NVIDIA's driver makes; the last is that of WSL.
bool has_nvidia_driver() {
  constexpr std::array<const char*, 3> kFiles = {"/proc/driver/nvidia/version", "/dev/nvidiactl",
                                                 "/dev/dxg"};
  return std::ranges::any_of(kFiles, [](const char* file) {
    std::error_code ignored;
    return std::filesystem::exists(file, ignored);
  });
}

bool holds(std::string_view text, std::string_view part) noexcept {
  return text.find(part) != text.npos;
}

// The next thing that is missing, by the reason. `libraries`: that the provider is linked to.
std::string mend_nvidia(std::string_view reason, std::string_view libraries) {
  std::string mend;
  if (holds(reason, "not enabled in this build")) {
    mend = "wanted the Python package onnxruntime-gpu " + Library::version() +
           " in place of onnxruntime, " + std::string(libraries);
  } else if (holds(reason, "cannot open shared object file")) {
    mend = "wanted " + std::string(libraries) + " where the loader finds them (LD_LIBRARY_PATH)";
  } else {
    mend = "wanted a device that NVIDIA's driver and CUDA 13 can use";
  }
  return has_nvidia_driver()
             ? mend
             : mend + "; this machine has no NVIDIA driver (no /proc/driver/nvidia/version)";
}

// The answer is found once, by the first call.
class KnownAvailability {
 public:
  Status get(const std::function<Status()>& find) {
    const std::lock_guard lock(mutex_);
    if (!known_) known_ = find();
    return *known_;
  }

 private:
  std::mutex mutex_;
  std::optional<Status> known_;
};

Status unavailable(std::string_view backend, std::string_view reason, std::string_view mend) {
  return Status::error(Code::kUnavailable, "the backend %.*s can't be used here: %.*s; %.*s",
                       static_cast<int>(backend.size()), backend.data(),
                       static_cast<int>(reason.size()), reason.data(),
                       static_cast<int>(mend.size()), mend.data());
}

// A provider that is a part of ONNX Runtime: whether it can be appended at all is asked with
// options of its own.
class NvidiaDevice : public Device {
 public:
  explicit NvidiaDevice(ExecutionProvider provider) : provider_(std::move(provider)) {}

  Status availability() override {
    return known_.get([this]() -> Status {
      const auto library = Library::open();
      if (!library.ok()) return library.status();
      try {
        OrtSessionOptions* options = nullptr;
        must(api().CreateSessionOptions(&options));
        const Owned<OrtSessionOptions> owned(options);
        append(*options, own_options(provider_.device_id, {}, false));
      } catch (const Failure& failure) {
        const std::string reason = reason_of(failure.what());
        return unavailable(provider_.name, reason, mend_nvidia(reason, libraries()));
      }
      return {};
    });
  }

  void append_to(OrtSessionOptions& options, const ModelSource& source,
                 bool shapes_vary) const override {
    append(options, own_options(source.options.device.id.value_or(provider_.device_id),
                                source.options, shapes_vary));
  }

 protected:
  // Of the model, with those of the server's setting over them.
  [[nodiscard]] virtual Options own_options(uint32_t device_id, const ModelOptions& model,
                                            bool shapes_vary) const = 0;
  virtual void append(OrtSessionOptions& options, const Options& own) const = 0;
  // That the provider is linked to, in words.
  [[nodiscard]] virtual std::string_view libraries() const = 0;

  [[nodiscard]] const ExecutionProvider& provider() const noexcept { return provider_; }
  [[nodiscard]] Options with_setting(Options options) const {
    for (const auto& [key, value] : provider_.options) options[key] = value;
    return options;
  }

 private:
  const ExecutionProvider provider_;
  KnownAvailability known_;
};

std::string memory_limit(const ModelOptions& model) {
  return std::to_string(uint64_t{model.device.memory_mb} << 20);
}

class CudaDevice final : public NvidiaDevice {
 public:
  using NvidiaDevice::NvidiaDevice;
  std::string description() const override { return "CUDA"; }

  static void append_cuda(OrtSessionOptions& options, const Options& own) {
    OrtCUDAProviderOptionsV2* cuda = nullptr;
    must(api().CreateCUDAProviderOptions(&cuda));
    const std::unique_ptr<OrtCUDAProviderOptionsV2, void (*)(OrtCUDAProviderOptionsV2*)> owned(
        cuda, [](OrtCUDAProviderOptionsV2* p) { api().ReleaseCUDAProviderOptions(p); });
    const KeysAndValues lists(own);
    must(api().UpdateCUDAProviderOptions(cuda, lists.keys.data(), lists.values.data(),
                                         lists.keys.size()));
    must(api().SessionOptionsAppendExecutionProvider_CUDA_V2(&options, cuda));
  }

  static Options cuda_options(uint32_t device_id, const ModelOptions& model, bool shapes_vary) {
    Options options = {
        {"device_id", std::to_string(device_id)},
        // In steps of the request's size and not doubled: a limit is the most that is taken.
        {"arena_extend_strategy", "kSameAsRequested"},
        // The exhaustive search makes the first run of each new shape slow.
        {"cudnn_conv_algo_search", shapes_vary ? "HEURISTIC" : "EXHAUSTIVE"},
        // Of 10 bits of mantissa: only where the configuration leaves the precision open.
        {"use_tf32", model.precision == Precision::kAuto ? "1" : "0"}};
    if (model.device.memory_mb > 0) options["gpu_mem_limit"] = memory_limit(model);
    return options;
  }

 private:
  Options own_options(uint32_t device_id, const ModelOptions& model,
                      bool shapes_vary) const override {
    return with_setting(cuda_options(device_id, model, shapes_vary));
  }
  void append(OrtSessionOptions& options, const Options& own) const override {
    append_cuda(options, own);
  }
  std::string_view libraries() const override { return "CUDA 13 and cuDNN 9"; }
};

class TensorRtDevice final : public NvidiaDevice {
 public:
  using NvidiaDevice::NvidiaDevice;
  std::string description() const override { return "TensorRT"; }

  // Nodes that TensorRT has no kernel for stay on the device, by CUDA.
  void append_to(OrtSessionOptions& options, const ModelSource& source,
                 bool shapes_vary) const override {
    NvidiaDevice::append_to(options, source, shapes_vary);
    const uint32_t device_id = source.options.device.id.value_or(provider().device_id);
    CudaDevice::append_cuda(options,
                            CudaDevice::cuda_options(device_id, source.options, shapes_vary));
  }

 private:
  Options own_options(uint32_t device_id, const ModelOptions& model, bool) const override {
    Options options = {{"device_id", std::to_string(device_id)}};
    if (model.device.memory_mb > 0) options["trt_max_workspace_size"] = memory_limit(model);
    return with_setting(std::move(options));
  }
  void append(OrtSessionOptions& options, const Options& own) const override {
    OrtTensorRTProviderOptionsV2* tensorrt = nullptr;
    must(api().CreateTensorRTProviderOptions(&tensorrt));
    const std::unique_ptr<OrtTensorRTProviderOptionsV2, void (*)(OrtTensorRTProviderOptionsV2*)>
        owned(tensorrt,
              [](OrtTensorRTProviderOptionsV2* p) { api().ReleaseTensorRTProviderOptions(p); });
    const KeysAndValues lists(own);
    must(api().UpdateTensorRTProviderOptions(tensorrt, lists.keys.data(), lists.values.data(),
                                             lists.keys.size()));
    must(api().SessionOptionsAppendExecutionProvider_TensorRT_V2(&options, tensorrt));
  }
  std::string_view libraries() const override { return "CUDA 13, cuDNN 9 and TensorRT 10"; }
};

using DeviceList = std::vector<const OrtEpDevice*>;

DeviceList all_devices(const Library& library) {
  const OrtEpDevice* const* found = nullptr;
  size_t count = 0;
  must(api().GetEpDevices(&library.env(), &found, &count));
  return {found, found + count};
}

// The devices that the registration of a plugin adds. A plugin is registered once in a process, for
// all backends that name it. Throws Failure.
DeviceList devices_of(const Library& library, const std::filesystem::path& plugin) {
  static std::mutex mutex;
  static std::map<std::string, DeviceList> registered;
  const std::lock_guard lock(mutex);
  std::error_code ignored;  // one that isn't there is registered, and refused, by its own name
  const std::filesystem::path real = std::filesystem::canonical(plugin, ignored);
  const std::string name = real.empty() ? plugin.string() : real.string();
  if (const auto known = registered.find(name); known != registered.end()) return known->second;
  const DeviceList before = all_devices(library);
  must(api().RegisterExecutionProviderLibrary(&library.env(), name.c_str(), name.c_str()));
  DeviceList added;
  for (const OrtEpDevice* device : all_devices(library)) {
    if (std::ranges::find(before, device) == before.end()) added.push_back(device);
  }
  registered[name] = added;
  return added;
}

class PluginDevice final : public Device {
 public:
  explicit PluginDevice(ExecutionProvider provider) : provider_(std::move(provider)) {}

  std::string description() const override { return provider_.name + " (plugin)"; }

  Status availability() override {
    return known_.get([this]() -> Status {
      auto library = Library::open();
      if (!library.ok()) return library.status();
      library_ = std::move(*library);
      try {
        return find_devices();
      } catch (const Failure& failure) {
        return unavailable(provider_.name, reason_of(failure.what()),
                           "wanted a plugin execution provider for ONNX Runtime " +
                               Library::version() + " as its \"library\"");
      }
    });
  }

  void append_to(OrtSessionOptions& options, const ModelSource& source, bool) const override {
    const OrtEpDevice* const device = ep_device(source.options);
    Options own = provider_.options;
    if (source.options.device.memory_mb > 0) own["gpu_mem_limit"] = memory_limit(source.options);
    const KeysAndValues lists(own);
    must(api().SessionOptionsAppendExecutionProvider_V2(&options, &library_->env(), &device, 1,
                                                        lists.keys.data(), lists.values.data(),
                                                        lists.keys.size()));
  }

  const OrtEpDevice* ep_device(const ModelOptions& model) const override {
    LUMEN_CHECK(!devices_.empty());  // it is available
    const uint32_t id = model.device.id.value_or(provider_.device_id);
    if (id < devices_.size()) return devices_[id];
    throw Failure("got device " + std::to_string(id) + " of " + provider_.name + ", which has " +
                  std::to_string(devices_.size()) + ", counted from 0");
  }

 private:
  Status find_devices() {
    devices_ = devices_of(*library_, provider_.library);
    if (!devices_.empty()) return {};
    return unavailable(
        provider_.name,
        provider_.library.string() + " finds no device on this machine that it can use",
        "wanted one");
  }

  const ExecutionProvider provider_;
  KnownAvailability known_;
  std::shared_ptr<Library> library_;
  DeviceList devices_;
};

}  // namespace

std::unique_ptr<Device> make_device(const ExecutionProvider& provider) {
  if (provider.name == models::kCudaProvider) return std::make_unique<CudaDevice>(provider);
  if (provider.name == models::kTensorRtProvider) return std::make_unique<TensorRtDevice>(provider);
  return std::make_unique<PluginDevice>(provider);
}

}  // namespace lumen::backends::onnxruntime
