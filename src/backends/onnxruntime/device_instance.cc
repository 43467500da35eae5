// See the header.
#include "backends/onnxruntime/device_instance.h"

#include <lumen/base/clock.h>

#include "backends/failure.h"
#include "backends/onnxruntime/device_link.h"
#include "backends/onnxruntime/refusal.h"
#include "backends/onnxruntime/values.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lumen::backends::onnxruntime {
namespace {

// Of so many runs one is measured by parts: the host waits for each part, two wake-ups more.
constexpr uint32_t kRunsToAMeasuredOne = 64;

class DeviceInstance final : public Instance {
 public:
  DeviceInstance(std::shared_ptr<const SharedSession> shared, const OrtEpDevice* device)
      : shared_(std::move(shared)), link_(shared_, device) {
    OrtRunOptions* options = nullptr;
    must(api().CreateRunOptions(&options));
    run_options_.reset(options);
    link_.set_stream(*options);
    OrtIoBinding* binding = nullptr;
    must(api().CreateIoBinding(shared_->session.get(), &binding));
    binding_.reset(binding);
    make_inputs();
    make_outputs();
    check_places();
  }
  ~DeviceInstance() override {
    // Without success the device is gone, and with it the copies.
    (void)settle();
  }
  DeviceInstance(const DeviceInstance&) = delete;
  DeviceInstance& operator=(const DeviceInstance&) = delete;

  StartOutcome start(InferRequest& request, void (*)(InferRequest&) noexcept) noexcept override {
    request.status =
        or_failed(Code::kInternal, "running", shared_->metadata.name, [&] { return run(request); });
    return StartOutcome::kDone;
  }

 private:
  struct Input {
    bool is_there = false;
    DeviceLink::Memory there;
    DeviceLink::Memory here;
    BoundValue value_there;
    BoundValue value_here;
  };
  struct Output {
    const OrtMemoryInfo* memory = nullptr;
    bool is_there = false;
    bool is_wanted = false;
    Owned<OrtValue> made;  // by the run that is under way
    Shape shape;
    size_t bytes = 0;
    DeviceLink::Memory here;
    BoundValue value_here;
    const std::byte* result = nullptr;
  };

  // Some inputs and outputs of a model on a device lie in the host's memory, as sizes do. nullptr:
  // no operation takes or makes it.
  bool is_there(const OrtMemoryInfo* memory) const noexcept {
    if (memory == nullptr) return false;
    OrtMemoryInfoDeviceType type = OrtMemoryInfoDeviceType_CPU;
    api().MemoryInfoGetDeviceType(memory, &type);
    return link_.info_there() != nullptr && type != OrtMemoryInfoDeviceType_CPU &&
           api().MemoryInfoGetDeviceMemType(memory) == OrtDeviceMemoryType_DEFAULT;
  }

  void make_inputs() {
    std::vector<const OrtMemoryInfo*> memories(shared_->ports.inputs.size());
    must(api().SessionGetMemoryInfoForInputs(shared_->session.get(), memories.data(),
                                             memories.size()));
    for (const OrtMemoryInfo* memory : memories) {
      inputs_.push_back({.is_there = is_there(memory),
                         .there = link_.memory_there(),
                         .here = link_.memory_here(),
                         .value_there = {},
                         .value_here = {}});
    }
  }

  void make_outputs() {
    std::vector<const OrtMemoryInfo*> memories(shared_->ports.outputs.size());
    must(api().SessionGetMemoryInfoForOutputs(shared_->session.get(), memories.data(),
                                              memories.size()));
    for (const OrtMemoryInfo* memory : memories) {
      Output output{.made = {}, .shape = {}, .here = link_.memory_here(), .value_here = {}};
      output.is_there = is_there(memory);
      output.memory = output.is_there ? memory : &shared_->library->cpu();
      outputs_.push_back(std::move(output));
    }
  }

  // ONNX Runtime 1.31 ends the process where it is given a stream for a session that has none.
  void check_places() const {
    const auto lies_there = [](const auto& one) { return one.is_there; };
    if (link_.info_there() == nullptr || std::ranges::any_of(inputs_, lies_there) ||
        std::ranges::any_of(outputs_, lies_there)) {
      return;
    }
    throw Failure("nothing of it would run on the device; wanted \"backend\": \"auto\"");
  }

  Status run(InferRequest& request) {
    LUMEN_RETURN_IF_ERROR(settle());
    const size_t wanted =
        request.outputs_wanted.empty() ? outputs_.size() : request.outputs_wanted.size();
    const std::span<TensorView> views = request.list_memory().allocate_array<TensorView>(wanted);
    if (views.size() != wanted) return no_room("(list)", wanted * sizeof(TensorView));
    is_settled_ = false;
    from_.clear();
    to_.clear();
    for (size_t i = 0; i < inputs_.size(); ++i) put_input(i, request.inputs[i]);
    bind_outputs(request, wanted);
    request.times.preprocessed_ns = now_ns();
    if (const Error error = call(request.times.device); error != nullptr) {
      return refusal(*shared_, request, *error);
    }
    is_settled_ = true;
    request.times.inferred_ns = now_ns();
    const Status collected = collect(request, views);
    drop_outputs();
    LUMEN_RETURN_IF_ERROR(collected);
    request.outputs = views;
    request.times.postprocessed_ns = now_ns();
    return {};
  }

  // Waits for all that the last run left in the stream.
  Status settle() noexcept {
    if (is_settled_) return {};
    Error error = link_.wait();
    if (error != nullptr) error = link_.wait();  // the first was that run's own
    if (error != nullptr) {
      return failed(Code::kInternal, "waiting for the device after a failed run of",
                    shared_->metadata.name, api().GetErrorMessage(error.get()));
    }
    drop_outputs();
    is_settled_ = true;
    return {};
  }

  // Gives their memory on the device back.
  void drop_outputs() noexcept {
    for (Output& output : outputs_) output.made.reset();
  }

  void put_input(size_t index, const TensorView& view) {
    Input& input = inputs_[index];
    const bool is_usable = link_.is_synchronous() &&
                           reinterpret_cast<uintptr_t>(view.data) % element_size(view.type) == 0;
    std::byte* here = view.data;
    if (input.is_there || !is_usable) {
      here = input.here.at_least(view.byte_size);
      if (view.byte_size > 0) std::memcpy(here, view.data, view.byte_size);
    }
    const OrtMemoryInfo& memory = input.is_there ? link_.info_here() : shared_->library->cpu();
    OrtValue* value = input.value_here.bind(memory, view.type, view.shape, here, view.byte_size);
    if (input.is_there) {
      const OrtValue* const from = value;
      value = input.value_there.bind(*link_.info_there(), view.type, view.shape,
                                     input.there.at_least(view.byte_size), view.byte_size);
      if (view.byte_size > 0) {
        from_.push_back(from);
        to_.push_back(value);
      }
    }
    // In each run: the library may copy a value that lies here as it is bound.
    must(api().BindInput(binding_.get(), shared_->ports.inputs[index].spec.name.c_str(), value));
  }

  // Anew for each run: a binding would give the next run the memory of the last one's outputs.
  void bind_outputs(const InferRequest& request, size_t wanted) {
    for (Output& output : outputs_) output.is_wanted = request.outputs_wanted.empty();
    if (!request.outputs_wanted.empty()) {
      for (size_t i = 0; i < wanted; ++i) outputs_[request.outputs_wanted[i]].is_wanted = true;
    }
    api().ClearBoundOutputs(binding_.get());
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!outputs_[i].is_wanted) continue;
      must(api().BindOutputToDevice(binding_.get(), shared_->ports.outputs[i].spec.name.c_str(),
                                    outputs_[i].memory));
    }
  }

  Error call(DeviceTimes& times) {
    times = {};  // a request may run again after a batch that failed
    // The first is that of a warm-up.
    const bool is_measured = link_.info_there() != nullptr && runs_++ % kRunsToAMeasuredOne == 1;
    uint64_t begin = is_measured ? now_ns() : 0;
    const auto end_part = [&](uint64_t& taken_ns) {
      if (!is_measured) return Error();
      Error error = link_.wait();
      const uint64_t now = now_ns();
      taken_ns = now - begin;
      begin = now;
      return error;
    };
    Error error = link_.copy(from_, to_);
    if (error == nullptr) error = end_part(times.copy_in_ns);
    if (error != nullptr) return error;
    error.reset(api().RunWithBinding(shared_->session.get(), run_options_.get(), binding_.get()));
    if (error == nullptr) error = end_part(times.run_ns);
    if (error != nullptr) return error;
    take_outputs();
    from_.clear();
    to_.clear();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i].is_wanted) fetch_output(i);
    }
    error = link_.copy(from_, to_);
    if (error == nullptr) error = is_measured ? end_part(times.copy_out_ns) : link_.wait();
    return error;
  }

  void take_outputs() {
    OrtAllocator* allocator = nullptr;
    must(api().GetAllocatorWithDefaultOptions(&allocator));
    OrtValue** values = nullptr;
    size_t count = 0;
    must(api().GetBoundOutputValues(binding_.get(), allocator, &values, &count));
    size_t next = 0;
    for (Output& output : outputs_) {
      if (output.is_wanted) output.made.reset(values[next++]);
    }
    must(api().AllocatorFree(allocator, values));
    api().ClearBoundOutputs(binding_.get());  // it would keep them until the next run
  }

  void fetch_output(size_t index) {
    Output& output = outputs_[index];
    const TensorSpec& spec = shared_->ports.outputs[index].spec;
    const Result<Shape> shape = shape_of(*output.made, spec.name);
    if (!shape.ok()) throw Failure(std::string(shape.status().message()));
    output.shape = *shape;
    output.bytes = shape->element_count().value_or(0) * element_size(spec.type);
    if (!output.is_there) {
      void* data = nullptr;
      must(api().GetTensorMutableData(output.made.get(), &data));
      output.result = static_cast<const std::byte*>(data);
      return;
    }
    std::byte* const here = output.here.at_least(output.bytes);
    output.result = here;
    if (output.bytes == 0) return;
    from_.push_back(output.made.get());
    to_.push_back(
        output.value_here.bind(link_.info_here(), spec.type, output.shape, here, output.bytes));
  }

  Status collect(const InferRequest& request, std::span<TensorView> views) const {
    for (size_t position = 0; position < views.size(); ++position) {
      const size_t index =
          request.outputs_wanted.empty() ? position : request.outputs_wanted[position];
      const Output& output = outputs_[index];
      TensorView& view = views[position];
      view.type = shared_->ports.outputs[index].spec.type;
      view.shape = output.shape;
      view.byte_size = output.bytes;
      view.data = static_cast<std::byte*>(request.memory->allocate(output.bytes, kTensorAlignment));
      if (view.data == nullptr) {
        return no_room(shared_->ports.outputs[index].spec.name, output.bytes);
      }
      if (output.bytes > 0) std::memcpy(view.data, output.result, output.bytes);
    }
    return {};
  }

  const std::shared_ptr<const SharedSession> shared_;
  DeviceLink link_;
  Owned<OrtRunOptions> run_options_;
  Owned<OrtIoBinding> binding_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<const OrtValue*> from_;  // the tensors to copy
  std::vector<OrtValue*> to_;
  uint32_t runs_ = 0;
  bool is_settled_ = true;  // nothing of a run is in the stream
};

}  // namespace

std::unique_ptr<Instance> make_device_instance(std::shared_ptr<const SharedSession> shared,
                                               const OrtEpDevice* device) {
  return std::make_unique<DeviceInstance>(std::move(shared), device);
}

}  // namespace lumen::backends::onnxruntime
