// A plugin execution provider of ONNX Runtime that pretends to be a device, so that the path to
// devices is tested where there is none. Its memory can't be touched by the host: a tensor's
// address lies in pages without access, its bytes lie behind them. A run is computed by a session
// on the CPU of the same file, takes a given time and may fail (control.h).
// Options beside those of control.h: "not_supported" = an operator that is left to the CPU.
// Threads: any, as ONNX Runtime calls it. Memory: mappings for tensors, else the heap.
// Errors: as statuses of ONNX Runtime. Interface: onnxruntime_ep_c_api.h of version 24.
#include "device/control.h"

#include <onnxruntime_c_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using lumen::device::DeviceControl;

constexpr uint32_t kVendor = 0x4C55;  // nobody's
constexpr size_t kPage = 4096;
constexpr const char* kName = "LumenTestDevice";

DeviceControl control;
const OrtApi* ort = nullptr;
const OrtEpApi* ep_api = nullptr;

OrtStatus* failed(const char* text) { return ort->CreateStatus(ORT_EP_FAIL, text); }

#define RETURN_IF_FAILED(call) \
  if (OrtStatus* status = (call); status != nullptr) return status

// The device's memory: for each block pages without access, and as many behind them.
class Memory {
 public:
  void* allocate(size_t size) {
    const size_t half = (std::max<size_t>(size, 1) + kPage - 1) / kPage * kPage;
    const std::lock_guard lock(mutex_);
    if (control.used_bytes + half > control.memory_bytes) return nullptr;
    void* base = ::mmap(nullptr, 2 * half, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    if (::mprotect(static_cast<std::byte*>(base) + half, half, PROT_READ | PROT_WRITE) != 0) {
      return nullptr;
    }
    control.used_bytes += half;
    halves_[static_cast<std::byte*>(base)] = half;
    return base;
  }
  void free(void* base) {
    if (base == nullptr) return;
    const std::lock_guard lock(mutex_);
    const auto found = halves_.find(static_cast<std::byte*>(base));
    ::munmap(base, 2 * found->second);
    control.used_bytes -= found->second;
    halves_.erase(found);
  }
  // Where the bytes of a tensor lie; of the host's memory: there.
  std::byte* bytes_of(const void* address) {
    auto* const place = static_cast<std::byte*>(const_cast<void*>(address));
    const std::lock_guard lock(mutex_);
    auto found = halves_.upper_bound(place);
    if (found == halves_.begin()) return place;
    --found;
    return place < found->first + found->second ? place + found->second : place;
  }

 private:
  std::mutex mutex_;
  std::map<std::byte*, size_t> halves_;
};
Memory memory;

OrtStatus* bytes_of(const OrtValue* value, std::byte*& bytes, size_t& size) {
  void* data = nullptr;
  RETURN_IF_FAILED(ort->GetTensorMutableData(const_cast<OrtValue*>(value), &data));
  RETURN_IF_FAILED(ort->GetTensorSizeInBytes(value, &size));
  // ONNX Runtime 1.31 passes on the nullptr of an allocator that has no memory.
  if (data == nullptr && size > 0) return failed("the device has no memory left");
  bytes = memory.bytes_of(data);
  return nullptr;
}

struct Allocator : OrtAllocator {
  OrtMemoryInfo* info = nullptr;

  Allocator() : OrtAllocator{} {
    version = ORT_API_VERSION;
    Alloc = [](OrtAllocator*, size_t size) -> void* { return memory.allocate(size); };
    Reserve = Alloc;
    Free = [](OrtAllocator*, void* place) { memory.free(place); };
    Info = [](const OrtAllocator* self) -> const OrtMemoryInfo* {
      return static_cast<const Allocator*>(self)->info;
    };
  }
};

struct Transfer : OrtDataTransferImpl {
  Transfer() : OrtDataTransferImpl{} {
    ort_version_supported = ORT_API_VERSION;
    Release = [](OrtDataTransferImpl* self) noexcept { delete static_cast<Transfer*>(self); };
    CanCopy = [](const OrtDataTransferImpl*, const OrtMemoryDevice* from,
                 const OrtMemoryDevice* to) noexcept {
      return ep_api->MemoryDevice_GetVendorId(from) == kVendor ||
             ep_api->MemoryDevice_GetVendorId(to) == kVendor;
    };
    CopyTensors = [](OrtDataTransferImpl*, const OrtValue** from, OrtValue** to, OrtSyncStream**,
                     size_t count) noexcept -> OrtStatus* {
      if (control.is_lost) return failed("the device is lost");
      for (size_t i = 0; i < count; ++i) {
        std::byte* source = nullptr;
        std::byte* target = nullptr;
        size_t bytes = 0;
        RETURN_IF_FAILED(bytes_of(to[i], target, bytes));
        RETURN_IF_FAILED(bytes_of(from[i], source, bytes));
        if (bytes > 0) std::memcpy(target, source, bytes);
      }
      return nullptr;
    };
  }
};

// A model's computation: a session on the CPU.
struct Computation : OrtNodeComputeInfo {
  OrtSession* session = nullptr;
  OrtMemoryInfo* cpu = nullptr;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;

  Computation() : OrtNodeComputeInfo{} {
    ort_version_supported = ORT_API_VERSION;
    CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*, void** state) -> OrtStatus* {
      *state = self;
      return nullptr;
    };
    ReleaseState = [](OrtNodeComputeInfo*, void*) {};
    Compute = [](OrtNodeComputeInfo* self, void*, OrtKernelContext* context) -> OrtStatus* {
      return static_cast<Computation*>(self)->run(context);
    };
  }
  ~Computation() {
    if (session != nullptr) ort->ReleaseSession(session);
    if (cpu != nullptr) ort->ReleaseMemoryInfo(cpu);
  }
  Computation(const Computation&) = delete;
  Computation& operator=(const Computation&) = delete;

  OrtStatus* run(OrtKernelContext* context) {
    const uint32_t now = ++control.running;
    uint32_t most = control.most_running;
    while (now > most && !control.most_running.compare_exchange_weak(most, now)) {
    }
    OrtStatus* status = run_slowly(context);
    --control.running;
    ++control.runs;
    return status;
  }

 private:
  OrtStatus* run_slowly(OrtKernelContext* context) {
    // sleep: stands for the time that the device takes, without the CPU
    std::this_thread::sleep_for(std::chrono::microseconds(control.run_us));
    if (control.is_lost) return failed("the device is lost");
    uint32_t failing = control.failing_runs;
    while (failing > 0 && !control.failing_runs.compare_exchange_weak(failing, failing - 1)) {
    }
    if (failing > 0) return failed("the device failed as the test wants");
    std::vector<OrtValue*> values;
    OrtStatus* status = compute(context, values);
    for (OrtValue* value : values) ort->ReleaseValue(value);
    return status;
  }

  OrtStatus* compute(OrtKernelContext* context, std::vector<OrtValue*>& values) {
    std::vector<const char*> input_names;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const OrtValue* input = nullptr;
      RETURN_IF_FAILED(ort->KernelContext_GetInput(context, i, &input));
      OrtValue* here = nullptr;
      RETURN_IF_FAILED(on_host(input, here));
      if (i == 0 && holds_failing_value(here)) {
        ort->ReleaseValue(here);
        return failed("the device failed as the test wants");
      }
      values.push_back(here);
      input_names.push_back(inputs[i].c_str());
    }
    std::vector<const char*> output_names;
    output_names.reserve(outputs.size());
    for (const std::string& name : outputs) output_names.push_back(name.c_str());
    std::vector<OrtValue*> made(outputs.size());
    RETURN_IF_FAILED(ort->Run(session, nullptr, input_names.data(), values.data(), values.size(),
                              output_names.data(), output_names.size(), made.data()));
    values.insert(values.end(), made.begin(), made.end());
    for (size_t i = 0; i < made.size(); ++i) RETURN_IF_FAILED(copy_out(context, i, made[i]));
    return nullptr;
  }

  static bool holds_failing_value(const OrtValue* value) {
    const int64_t wanted = control.failing_value;
    std::byte* bytes = nullptr;
    size_t size = 0;
    if (wanted == 0 || bytes_of(value, bytes, size) != nullptr) return false;
    for (size_t i = 0; i + sizeof(float) <= size; i += sizeof(float)) {
      float one = 0;
      std::memcpy(&one, bytes + i, sizeof(one));
      if (one == static_cast<float>(wanted)) return true;
    }
    return false;
  }

  static OrtStatus* shape_of(const OrtValue* value, ONNXTensorElementDataType& type,
                             std::vector<int64_t>& sizes) {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    RETURN_IF_FAILED(ort->GetTensorTypeAndShape(value, &info));
    size_t rank = 0;
    OrtStatus* status = ort->GetTensorElementType(info, &type);
    if (status == nullptr) status = ort->GetDimensionsCount(info, &rank);
    sizes.resize(rank);
    if (status == nullptr) status = ort->GetDimensions(info, sizes.data(), rank);
    ort->ReleaseTensorTypeAndShapeInfo(info);
    return status;
  }

  OrtStatus* on_host(const OrtValue* input, OrtValue*& here) const {
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    std::vector<int64_t> sizes;
    RETURN_IF_FAILED(shape_of(input, type, sizes));
    std::byte* bytes = nullptr;
    size_t size = 0;
    RETURN_IF_FAILED(bytes_of(input, bytes, size));
    return ort->CreateTensorWithDataAsOrtValue(cpu, bytes, size, sizes.data(), sizes.size(), type,
                                               &here);
  }

  static OrtStatus* copy_out(OrtKernelContext* context, size_t index, const OrtValue* made) {
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    std::vector<int64_t> sizes;
    RETURN_IF_FAILED(shape_of(made, type, sizes));
    OrtValue* output = nullptr;
    RETURN_IF_FAILED(
        ort->KernelContext_GetOutput(context, index, sizes.data(), sizes.size(), &output));
    std::byte* source = nullptr;
    std::byte* target = nullptr;
    size_t size = 0;
    RETURN_IF_FAILED(bytes_of(output, target, size));
    RETURN_IF_FAILED(bytes_of(made, source, size));
    if (size > 0) std::memcpy(target, source, size);
    return nullptr;
  }
};

OrtStatus* names_of(const OrtNode* node, bool outputs, std::vector<std::string>& names) {
  size_t count = 0;
  RETURN_IF_FAILED(outputs ? ort->Node_GetNumOutputs(node, &count)
                           : ort->Node_GetNumInputs(node, &count));
  std::vector<const OrtValueInfo*> values(count);
  RETURN_IF_FAILED(outputs ? ort->Node_GetOutputs(node, values.data(), count)
                           : ort->Node_GetInputs(node, values.data(), count));
  for (const OrtValueInfo* value : values) {
    const char* name = nullptr;
    RETURN_IF_FAILED(ort->GetValueInfoName(value, &name));
    names.emplace_back(name);
  }
  return nullptr;
}

struct Provider : OrtEp {
  OrtEnv* env = nullptr;
  std::string not_supported;

  Provider() : OrtEp{} {
    ort_version_supported = ORT_API_VERSION;
    GetName = [](const OrtEp*) noexcept { return kName; };
    GetCapability = [](OrtEp* self, const OrtGraph* graph,
                       OrtEpGraphSupportInfo* support) noexcept -> OrtStatus* {
      return static_cast<Provider*>(self)->claim(graph, support);
    };
    Compile = [](OrtEp* self, const OrtGraph** graphs, const OrtNode** nodes, size_t count,
                 OrtNodeComputeInfo** made, OrtNode**) noexcept -> OrtStatus* {
      for (size_t i = 0; i < count; ++i) {
        auto one = std::make_unique<Computation>();
        RETURN_IF_FAILED(static_cast<Provider*>(self)->compile(graphs[i], nodes[i], *one));
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

  OrtStatus* compile(const OrtGraph* graph, const OrtNode* node, Computation& made) const {
    const char* path = nullptr;
    RETURN_IF_FAILED(ort->Graph_GetModelPath(graph, &path));
    if (path == nullptr || *path == '\0') return failed("a model without a file is not computed");
    RETURN_IF_FAILED(names_of(node, false, made.inputs));
    RETURN_IF_FAILED(names_of(node, true, made.outputs));
    RETURN_IF_FAILED(ort->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &made.cpu));
    OrtSessionOptions* options = nullptr;
    RETURN_IF_FAILED(ort->CreateSessionOptions(&options));
    OrtStatus* status = ort->SetIntraOpNumThreads(options, 1);
    if (status == nullptr) status = ort->CreateSession(env, path, options, &made.session);
    ort->ReleaseSessionOptions(options);
    return status;
  }
};

struct Factory : OrtEpFactory {
  OrtMemoryInfo* info = nullptr;
  OrtEnv* env = nullptr;

  Factory() : OrtEpFactory{} {
    ort_version_supported = ORT_API_VERSION;
    GetName = [](const OrtEpFactory*) noexcept { return kName; };
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
      RETURN_IF_FAILED(read_options(*options, *provider));
      *made = provider.release();
      return nullptr;
    };
    ReleaseEp = [](OrtEpFactory*, OrtEp* made) noexcept { delete static_cast<Provider*>(made); };
    CreateAllocator = [](OrtEpFactory* self, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                         OrtAllocator** made) noexcept -> OrtStatus* {
      auto allocator = std::make_unique<Allocator>();
      allocator->info = static_cast<Factory*>(self)->info;
      *made = allocator.release();
      return nullptr;
    };
    ReleaseAllocator = [](OrtEpFactory*, OrtAllocator* made) noexcept {
      delete static_cast<Allocator*>(made);
    };
    CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** made) noexcept -> OrtStatus* {
      *made = std::make_unique<Transfer>().release();
      return nullptr;
    };
    IsStreamAware = [](const OrtEpFactory*) noexcept { return false; };
  }
  ~Factory() {
    if (info != nullptr) ort->ReleaseMemoryInfo(info);
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
      RETURN_IF_FAILED(ep_api->EpDevice_AddAllocatorInfo(made[number], info));
      ++number;
    }
    return nullptr;
  }

  // The options of a session arrive as "ep.lumentestdevice.NAME" in its configuration.
  static OrtStatus* option(const OrtSessionOptions& options, const char* name, std::string& value) {
    std::string key = "ep.lumentestdevice.";
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
  static OrtStatus* number(const OrtSessionOptions& options, const char* name,
                           std::atomic<T>& target) {
    std::string text;
    RETURN_IF_FAILED(option(options, name, text));
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
    RETURN_IF_FAILED(number(options, "run_us", control.run_us));
    RETURN_IF_FAILED(number(options, "failing_runs", control.failing_runs));
    RETURN_IF_FAILED(number(options, "failing_value", control.failing_value));
    RETURN_IF_FAILED(number(options, "lost", control.is_lost));
    RETURN_IF_FAILED(number(options, "memory_bytes", control.memory_bytes));
    return option(options, "not_supported", provider.not_supported);
  }
};

}  // namespace

extern "C" {

DeviceControl* lumen_device_control() { return &control; }

OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base, const OrtLogger*,
                             OrtEpFactory** factories, size_t most, size_t* count) {
  ort = base->GetApi(ORT_API_VERSION);
  ep_api = ort->GetEpApi();
  if (most < 1) return failed("no room for a factory");
  auto factory = std::make_unique<Factory>();
  RETURN_IF_FAILED(ort->CreateEnv(ORT_LOGGING_LEVEL_FATAL, kName, &factory->env));
  RETURN_IF_FAILED(ort->CreateMemoryInfo_V2(kName, OrtMemoryInfoDeviceType_GPU, kVendor, 0,
                                            OrtDeviceMemoryType_DEFAULT, 0, OrtDeviceAllocator,
                                            &factory->info));
  factories[0] = factory.release();
  *count = 1;
  return nullptr;
}

OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
  delete static_cast<Factory*>(factory);
  return nullptr;
}

}  // extern "C"
