// A plugin execution provider of ONNX Runtime that pretends to be devices, so that the path to
// devices is tested where there is none. Their memory can't be touched by the host: a tensor's
// address lies in pages without access, its bytes lie behind them. Device 0 has streams and memory
// of the host for its copies, device 1 neither, and device 2 computes in the host's memory. A run
// is computed by a session on the CPU of the same file, takes a given time and may fail
// (control.h).
// Options beside those of control.h: "not_supported" = an operator that is left to the CPU.
// Threads: any, as ONNX Runtime calls it. Memory: mappings for tensors, else the heap.
// Errors: as statuses of ONNX Runtime. Interface: onnxruntime_ep_c_api.h of version 24.
#include "device/computation.h"
#include "device/control.h"
#include "device/library.h"
#include "device/memory.h"
#include "device/stream.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::device {
namespace {

constexpr std::array<const char*, 3> kNames = {"LumenTestDevice", "LumenTestDeviceWithoutStreams",
                                               "LumenTestDeviceInHostMemory"};

struct Transfer : OrtDataTransferImpl {
  Transfer() : OrtDataTransferImpl{} {
    ort_version_supported = ORT_API_VERSION;
    Release = [](OrtDataTransferImpl* self) noexcept { delete static_cast<Transfer*>(self); };
    CanCopy = [](const OrtDataTransferImpl*, const OrtMemoryDevice* from,
                 const OrtMemoryDevice* to) noexcept {
      return ep_api->MemoryDevice_GetVendorId(from) == kVendor ||
             ep_api->MemoryDevice_GetVendorId(to) == kVendor;
    };
    CopyTensors = [](OrtDataTransferImpl*, const OrtValue** from, OrtValue** to,
                     OrtSyncStream** streams, size_t count) noexcept -> OrtStatus* {
      for (size_t i = 0; i < count; ++i) {
        Place source;
        Place target;
        RETURN_IF_FAILED(find_place(to[i], target));
        RETURN_IF_FAILED(find_place(from[i], source));
        const auto copy = [source, target]() -> const char* {
          if (control.is_lost) return "the device is lost";
          if (target.size > 0) std::memcpy(target.bytes, source.bytes, target.size);
          return nullptr;
        };
        ++control.copies;
        Stream* const stream =
            streams == nullptr || streams[i] == nullptr ? nullptr : Stream::of(streams[i]);
        if (stream != nullptr) {
          stream->add(copy);
        } else if (const char* error = copy(); error != nullptr) {
          return failed(error);
        }
      }
      return nullptr;
    };
  }
};

struct Provider : OrtEp {
  OrtEnv* env = nullptr;
  const char* name = nullptr;
  std::string not_supported;

  Provider() : OrtEp{} {
    ort_version_supported = ORT_API_VERSION;
    GetName = [](const OrtEp* self) noexcept { return static_cast<const Provider*>(self)->name; };
    GetCapability = [](OrtEp* self, const OrtGraph* graph,
                       OrtEpGraphSupportInfo* support) noexcept -> OrtStatus* {
      return static_cast<Provider*>(self)->claim(graph, support);
    };
    Compile = [](OrtEp* self, const OrtGraph** graphs, const OrtNode** nodes, size_t count,
                 OrtNodeComputeInfo** made, OrtNode**) noexcept -> OrtStatus* {
      for (size_t i = 0; i < count; ++i) {
        auto one = std::make_unique<Computation>();
        RETURN_IF_FAILED(one->open(static_cast<Provider*>(self)->env, graphs[i], nodes[i]));
        made[i] = one.release();
      }
      return nullptr;
    };
    ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo** infos, size_t count) noexcept {
      for (size_t i = 0; i < count; ++i) delete static_cast<Computation*>(infos[i]);
    };
  }

 private:
  OrtStatus* claim(const OrtGraph* graph, OrtEpGraphSupportInfo* support) const {
    size_t count = 0;
    RETURN_IF_FAILED(ort->Graph_GetNumNodes(graph, &count));
    std::vector<const OrtNode*> nodes(count);
    RETURN_IF_FAILED(ort->Graph_GetNodes(graph, nodes.data(), count));
    for (const OrtNode* node : nodes) {
      const char* type = nullptr;
      RETURN_IF_FAILED(ort->Node_GetOperatorType(node, &type));
      if (type == not_supported) return nullptr;
    }
    OrtNodeFusionOptions options{};
    options.ort_version_supported = ORT_API_VERSION;
    options.drop_constant_initializers = true;
    return count == 0
               ? nullptr
               : ep_api->EpGraphSupportInfo_AddNodesToFuse(support, nodes.data(), count, &options);
  }
};

struct Factory : OrtEpFactory {
  const char* name = nullptr;
  OrtMemoryInfo* info = nullptr;       // nullptr: it computes in the host's memory
  OrtMemoryInfo* host_info = nullptr;  // nullptr: it has neither streams nor memory of the host
  OrtEnv* env = nullptr;

  Factory() : OrtEpFactory{} {
    ort_version_supported = ORT_API_VERSION;
    GetName = [](const OrtEpFactory* self) noexcept {
      return static_cast<const Factory*>(self)->name;
    };
    GetVendor = [](const OrtEpFactory*) noexcept { return "Lumen"; };
    GetVendorId = [](const OrtEpFactory*) noexcept { return kVendor; };
    GetVersion = [](const OrtEpFactory*) noexcept { return "1.0.0"; };
    GetSupportedDevices = [](OrtEpFactory* self, const OrtHardwareDevice* const* devices,
                             size_t count, OrtEpDevice** made, size_t most,
                             size_t* number) noexcept -> OrtStatus* {
      return static_cast<Factory*>(self)->find_devices({devices, devices + count}, made, most,
                                                       *number);
    };
    CreateEp = [](OrtEpFactory* self, const OrtHardwareDevice* const*,
                  const OrtKeyValuePairs* const*, size_t, const OrtSessionOptions* options,
                  const OrtLogger*, OrtEp** made) noexcept -> OrtStatus* {
      auto provider = std::make_unique<Provider>();
      provider->env = static_cast<Factory*>(self)->env;
      provider->name = static_cast<Factory*>(self)->name;
      RETURN_IF_FAILED(read_options(*options, *provider));
      *made = provider.release();
      return nullptr;
    };
    ReleaseEp = [](OrtEpFactory*, OrtEp* made) noexcept { delete static_cast<Provider*>(made); };
    CreateAllocator = [](OrtEpFactory* self, const OrtMemoryInfo* wanted, const OrtKeyValuePairs*,
                         OrtAllocator** made) noexcept -> OrtStatus* {
      auto* const factory = static_cast<Factory*>(self);
      const bool is_host =
          ort->MemoryInfoGetDeviceMemType(wanted) == OrtDeviceMemoryType_HOST_ACCESSIBLE;
      *made = make_allocator(is_host ? factory->host_info : factory->info);
      return nullptr;
    };
    ReleaseAllocator = [](OrtEpFactory*, OrtAllocator* made) noexcept { release_allocator(made); };
    CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** made) noexcept -> OrtStatus* {
      *made = std::make_unique<Transfer>().release();
      return nullptr;
    };
    IsStreamAware = [](const OrtEpFactory* self) noexcept {
      return static_cast<const Factory*>(self)->host_info != nullptr;
    };
    CreateSyncStreamForDevice = [](OrtEpFactory*, const OrtMemoryDevice*, const OrtKeyValuePairs*,
                                   OrtSyncStreamImpl** made) noexcept -> OrtStatus* {
      *made = std::make_unique<Stream>().release();
      return nullptr;
    };
  }
  ~Factory() {
    if (info != nullptr) ort->ReleaseMemoryInfo(info);
    if (host_info != nullptr) ort->ReleaseMemoryInfo(host_info);
    if (env != nullptr) ort->ReleaseEnv(env);
  }
  Factory(const Factory&) = delete;
  Factory& operator=(const Factory&) = delete;

 private:
  // One device: the CPU has to stand in as its hardware.
  OrtStatus* find_devices(const std::vector<const OrtHardwareDevice*>& devices, OrtEpDevice** made,
                          size_t most, size_t& number) {
    number = 0;
    for (const OrtHardwareDevice* device : devices) {
      if (ort->HardwareDevice_Type(device) != OrtHardwareDeviceType_CPU || number == most) continue;
      RETURN_IF_FAILED(ep_api->CreateEpDevice(this, device, nullptr, nullptr, &made[number]));
      if (info != nullptr) {
        RETURN_IF_FAILED(ep_api->EpDevice_AddAllocatorInfo(made[number], info));
      }
      if (host_info != nullptr) {
        RETURN_IF_FAILED(ep_api->EpDevice_AddAllocatorInfo(made[number], host_info));
      }
      ++number;
    }
    return nullptr;
  }

  // The options of a session arrive as "ep.PROVIDER.NAME" in its configuration.
  static OrtStatus* option(const OrtSessionOptions& options, const Provider& provider,
                           const char* name, std::string& value) {
    std::string key = std::string("ep.") + provider.name + ".";
    std::ranges::transform(key, key.begin(),
                           [](unsigned char letter) { return std::tolower(letter); });
    key += name;
    int is_there = 0;
    RETURN_IF_FAILED(ort->HasSessionConfigEntry(&options, key.c_str(), &is_there));
    value.clear();
    if (is_there == 0) return nullptr;
    size_t size = 0;
    RETURN_IF_FAILED(ort->GetSessionConfigEntry(&options, key.c_str(), nullptr, &size));
    value.resize(size);
    RETURN_IF_FAILED(ort->GetSessionConfigEntry(&options, key.c_str(), value.data(), &size));
    value.resize(std::strlen(value.c_str()));
    return nullptr;
  }
  template <typename T>
  static OrtStatus* number(const OrtSessionOptions& options, const Provider& provider,
                           const char* name, std::atomic<T>& target) {
    std::string text;
    RETURN_IF_FAILED(option(options, provider, name, text));
    uint64_t value = 0;
    if (text.empty()) return nullptr;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) {
      return failed("an option of the device is no number");
    }
    target = static_cast<T>(value);
    return nullptr;
  }
  static OrtStatus* read_options(const OrtSessionOptions& options, Provider& provider) {
    RETURN_IF_FAILED(number(options, provider, "run_us", control.run_us));
    RETURN_IF_FAILED(number(options, provider, "failing_runs", control.failing_runs));
    RETURN_IF_FAILED(number(options, provider, "failing_value", control.failing_value));
    RETURN_IF_FAILED(number(options, provider, "lost", control.is_lost));
    RETURN_IF_FAILED(number(options, provider, "memory_bytes", control.memory_bytes));
    return option(options, provider, "not_supported", provider.not_supported);
  }
};

OrtStatus* make_factory(uint32_t id, OrtEpFactory*& made) {
  auto factory = std::make_unique<Factory>();
  factory->name = kNames.at(id);
  RETURN_IF_FAILED(ort->CreateEnv(ORT_LOGGING_LEVEL_FATAL, factory->name, &factory->env));
  const auto make_info = [&](OrtDeviceMemoryType type, OrtMemoryInfo*& info) {
    return ort->CreateMemoryInfo_V2(factory->name, OrtMemoryInfoDeviceType_GPU, kVendor,
                                    static_cast<int32_t>(id), type, 0, OrtDeviceAllocator, &info);
  };
  if (id < 2) RETURN_IF_FAILED(make_info(OrtDeviceMemoryType_DEFAULT, factory->info));
  if (id < 1) RETURN_IF_FAILED(make_info(OrtDeviceMemoryType_HOST_ACCESSIBLE, factory->host_info));
  made = factory.release();
  return nullptr;
}

}  // namespace
}  // namespace lumen::device

using namespace lumen::device;

extern "C" {

DeviceControl* lumen_device_control() { return &control; }

OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base, const OrtLogger*,
                             OrtEpFactory** factories, size_t most, size_t* count) {
  ort = base->GetApi(ORT_API_VERSION);
  ep_api = ort->GetEpApi();
  for (*count = 0; *count < std::min(most, kNames.size()); ++*count) {
    RETURN_IF_FAILED(make_factory(static_cast<uint32_t>(*count), factories[*count]));
  }
  return nullptr;
}

OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
  delete static_cast<Factory*>(factory);
  return nullptr;
}

}  // extern "C"
