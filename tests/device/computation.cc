// See the header.
#include "device/computation.h"

#include "device/stream.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

namespace lumen::device {
namespace {

using Value = std::shared_ptr<OrtValue>;

Value own(OrtValue* value) {
  return {value, [](OrtValue* one) { ort->ReleaseValue(one); }};
}

OrtStatus* shape_of(const OrtValue* value, ONNXTensorElementDataType& type,
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

bool holds_failing_value(const std::vector<std::byte>& bytes) {
  const int64_t wanted = control.failing_value;
  for (size_t i = 0; wanted != 0 && i + sizeof(float) <= bytes.size(); i += sizeof(float)) {
    float one = 0;
    std::memcpy(&one, bytes.data() + i, sizeof(one));
    if (one == static_cast<float>(wanted)) return true;
  }
  return false;
}

bool takes_one(std::atomic<uint32_t>& number) {
  uint32_t left = number;
  while (left > 0 && !number.compare_exchange_weak(left, left - 1)) {
  }
  return left > 0;
}

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

}  // namespace

struct Computation::Run {
  struct Input {
    Place place;  // on the device
    std::vector<std::byte> bytes;
    Value value;  // over `bytes`
  };
  struct Output {
    Place place;  // on the device
    Place result;
    Value value;  // that holds the result
  };
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  bool has_failing_value = false;

  // On the device: when the time is over. The error, or nullptr.
  const char* finish() {
    const uint32_t now = ++control.running;
    uint32_t most = control.most_running;
    while (now > most && !control.most_running.compare_exchange_weak(most, now)) {
    }
    // sleep: stands for the time that the device takes, without the CPU
    std::this_thread::sleep_for(std::chrono::microseconds(control.run_us));
    const char* const error = write_outputs();
    --control.running;
    ++control.runs;
    return error;
  }

 private:
  const char* write_outputs() {
    if (control.is_lost) return "the device is lost";
    if (takes_one(control.failing_runs) || has_failing_value) {
      return "the device failed as the test wants";
    }
    for (const Input& input : inputs) {
      if (input.place.size > 0 &&
          std::memcmp(input.place.bytes, input.bytes.data(), input.place.size) != 0) {
        return "an input was changed during its run";
      }
    }
    for (const Output& output : outputs) {
      if (output.place.size == 0) continue;
      std::memcpy(output.place.bytes, output.result.bytes, output.place.size);
    }
    return nullptr;
  }
};

Computation::Computation() : OrtNodeComputeInfo{} {
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

Computation::~Computation() {
  if (session != nullptr) ort->ReleaseSession(session);
  if (cpu != nullptr) ort->ReleaseMemoryInfo(cpu);
}

OrtStatus* Computation::open(OrtEnv* env, const OrtGraph* graph, const OrtNode* node) {
  const char* path = nullptr;
  RETURN_IF_FAILED(ort->Graph_GetModelPath(graph, &path));
  if (path == nullptr || *path == '\0') return failed("a model without a file is not computed");
  RETURN_IF_FAILED(names_of(node, false, inputs));
  RETURN_IF_FAILED(names_of(node, true, outputs));
  RETURN_IF_FAILED(ort->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &cpu));
  OrtSessionOptions* options = nullptr;
  RETURN_IF_FAILED(ort->CreateSessionOptions(&options));
  OrtStatus* status = ort->SetIntraOpNumThreads(options, 1);
  if (status == nullptr) status = ort->CreateSession(env, path, options, &session);
  ort->ReleaseSessionOptions(options);
  return status;
}

OrtStatus* Computation::run(OrtKernelContext* context) {
  void* handle = nullptr;
  RETURN_IF_FAILED(ort->KernelContext_GetGPUComputeStream(context, &handle));
  auto* const stream = static_cast<Stream*>(handle);
  if (stream != nullptr) {
    // The inputs may be on their way.
    if (const char* error = stream->wait_for_all(); error != nullptr) return failed(error);
  }
  const auto run = std::make_shared<Run>();
  RETURN_IF_FAILED(compute(context, *run));
  if (stream != nullptr) {
    stream->add([run] { return run->finish(); });
    return nullptr;
  }
  const char* const error = run->finish();
  return error == nullptr ? nullptr : failed(error);
}

OrtStatus* Computation::compute(OrtKernelContext* context, Run& run) const {
  std::vector<const OrtValue*> values;
  std::vector<const char*> input_names;
  for (size_t i = 0; i < inputs.size(); ++i) {
    RETURN_IF_FAILED(take_input(context, i, run));
    values.push_back(run.inputs.back().value.get());
    input_names.push_back(inputs[i].c_str());
  }
  std::vector<const char*> output_names;
  output_names.reserve(outputs.size());
  for (const std::string& name : outputs) output_names.push_back(name.c_str());
  std::vector<OrtValue*> made(outputs.size());
  RETURN_IF_FAILED(ort->Run(session, nullptr, input_names.data(), values.data(), values.size(),
                            output_names.data(), output_names.size(), made.data()));
  for (OrtValue* value : made) run.outputs.emplace_back().value = own(value);
  for (size_t i = 0; i < made.size(); ++i) {
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    std::vector<int64_t> sizes;
    RETURN_IF_FAILED(shape_of(made[i], type, sizes));
    OrtValue* output = nullptr;
    RETURN_IF_FAILED(ort->KernelContext_GetOutput(context, i, sizes.data(), sizes.size(), &output));
    RETURN_IF_FAILED(find_place(output, run.outputs[i].place));
    RETURN_IF_FAILED(find_place(made[i], run.outputs[i].result));
  }
  return nullptr;
}

OrtStatus* Computation::take_input(OrtKernelContext* context, size_t index, Run& run) const {
  const OrtValue* input = nullptr;
  RETURN_IF_FAILED(ort->KernelContext_GetInput(context, index, &input));
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  std::vector<int64_t> sizes;
  RETURN_IF_FAILED(shape_of(input, type, sizes));
  Run::Input& taken = run.inputs.emplace_back();
  RETURN_IF_FAILED(find_place(input, taken.place));
  taken.bytes.assign(taken.place.bytes, taken.place.bytes + taken.place.size);
  if (index == 0) run.has_failing_value = holds_failing_value(taken.bytes);
  OrtValue* value = nullptr;
  RETURN_IF_FAILED(ort->CreateTensorWithDataAsOrtValue(cpu, taken.bytes.data(), taken.bytes.size(),
                                                       sizes.data(), sizes.size(), type, &value));
  taken.value = own(value);
  return nullptr;
}

}  // namespace lumen::device
