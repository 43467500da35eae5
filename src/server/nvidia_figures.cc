// See the header.
#include "server/nvidia_figures.h"

#include <dlfcn.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace lumen::server {
namespace {

constexpr const char* kLibrary = "libnvidia-ml.so.1";
constexpr size_t kUuidBytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE

// As nvml.h has them; 0 is success.
using Return = int;
struct Utilization {
  unsigned gpu = 0;  // percent
  unsigned memory = 0;
};
struct Memory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

}  // namespace

struct NvidiaFigures::Library {
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  Return (*count)(unsigned*) = nullptr;
  Return (*by_index)(unsigned, void**) = nullptr;
  Return (*uuid)(void*, char*, unsigned) = nullptr;
  Return (*utilization)(void*, Utilization*) = nullptr;
  Return (*memory)(void*, Memory*) = nullptr;
  Return (*power)(void*, unsigned*) = nullptr;             // mW
  Return (*power_limit)(void*, unsigned*) = nullptr;       // mW
  Return (*energy)(void*, unsigned long long*) = nullptr;  // mJ since the driver was loaded

  // False: a function that is needed is missing. The last three may be.
  bool find(void* library) {
    const auto get = [library](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    (void)get(power, "nvmlDeviceGetPowerUsage");
    (void)get(power_limit, "nvmlDeviceGetPowerManagementLimit");
    (void)get(energy, "nvmlDeviceGetTotalEnergyConsumption");
    return get(init, "nvmlInit_v2") && get(shutdown, "nvmlShutdown") &&
           get(count, "nvmlDeviceGetCount_v2") && get(by_index, "nvmlDeviceGetHandleByIndex_v2") &&
           get(uuid, "nvmlDeviceGetUUID") && get(utilization, "nvmlDeviceGetUtilizationRates") &&
           get(memory, "nvmlDeviceGetMemoryInfo");
  }

  // Of a device; nullopt: the driver does not say.
  [[nodiscard]] std::optional<double> busy_share(void* device) const {
    Utilization found;
    if (utilization(device, &found) != 0) return std::nullopt;
    return found.gpu / 100.0;
  }
  [[nodiscard]] std::optional<double> total_bytes(void* device) const {
    Memory found;
    if (memory(device, &found) != 0) return std::nullopt;
    return static_cast<double>(found.total);
  }
  [[nodiscard]] std::optional<double> used_bytes(void* device) const {
    Memory found;
    if (memory(device, &found) != 0) return std::nullopt;
    return static_cast<double>(found.used);
  }
  [[nodiscard]] std::optional<double> watts(void* device) const {
    unsigned found = 0;
    if (power == nullptr || power(device, &found) != 0) return std::nullopt;
    return found / 1e3;
  }
  [[nodiscard]] std::optional<double> most_watts(void* device) const {
    unsigned found = 0;
    if (power_limit == nullptr || power_limit(device, &found) != 0) return std::nullopt;
    return found / 1e3;
  }
  [[nodiscard]] std::optional<double> joules(void* device) const {
    unsigned long long found = 0;
    if (energy == nullptr || energy(device, &found) != 0) return std::nullopt;
    return static_cast<double>(found) / 1e3;
  }
};

NvidiaFigures::NvidiaFigures() {
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  auto found = std::make_unique<Library>();
  if (!found->find(library) || found->init() != 0) return;
  library_ = std::move(found);
  find_devices();
}

NvidiaFigures::~NvidiaFigures() {
  if (library_ != nullptr) (void)library_->shutdown();
}

void NvidiaFigures::find_devices() {
  unsigned count = 0;
  if (library_->count(&count) != 0) return;
  devices_.reserve(std::min(count, kMostDevices));
  for (unsigned i = 0; i < std::min(count, kMostDevices); ++i) {
    Device device;
    std::array<char, kUuidBytes> uuid{};
    if (library_->by_index(i, &device.handle) != 0) continue;
    if (library_->uuid(device.handle, uuid.data(), kUuidBytes) != 0) continue;
    uuid.back() = '\0';
    device.uuid = uuid.data();
    devices_.push_back(std::move(device));
  }
  for (Device& device : devices_) device.labels[0] = {"gpu_uuid", device.uuid};
}

std::span<const telemetry::PrometheusFigure> NvidiaFigures::read() {
  struct Kind {
    std::string_view name;
    std::string_view help;
    std::string_view type;
    std::optional<double> (Library::*get)(void*) const;
  };
  static constexpr std::array<Kind, 6> kKinds = {{
      {"nv_gpu_utilization", "Share of time in which the GPU computed, by its driver.", "gauge",
       &Library::busy_share},
      {"nv_gpu_memory_total_bytes", "Memory of the GPU.", "gauge", &Library::total_bytes},
      {"nv_gpu_memory_used_bytes", "Memory of the GPU in use, by all processes.", "gauge",
       &Library::used_bytes},
      {"nv_gpu_power_usage", "Power of the GPU now, in watts.", "gauge", &Library::watts},
      {"nv_gpu_power_limit", "Power that the GPU may take, in watts.", "gauge",
       &Library::most_watts},
      {"nv_energy_consumption", "Energy of the GPU since its driver was loaded, in joules.",
       "counter", &Library::joules},
  }};
  figures_.clear();
  for (const Kind& kind : kKinds) {
    for (const Device& device : devices_) {
      const std::optional<double> value = (library_.get()->*kind.get)(device.handle);
      if (value) figures_.push_back({kind.name, kind.help, kind.type, *value, device.labels});
    }
  }
  return figures_;
}

}  // namespace lumen::server
