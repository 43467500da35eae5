// See the header.
#include "backends/onnxruntime/instance.h"

#include <lumen/base/clock.h>

#include "backends/bytes_tensor.h"
#include "backends/failure.h"
#include "backends/onnxruntime/refusal.h"
#include "backends/onnxruntime/values.h"
#include "backends/unwritten.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace lumen::backends::onnxruntime {
namespace {

// Up to here a tensor is copied into a buffer that stays bound, above it is bound where it lies.
// Making a value costs 0.1 us and an allocation; copying 16 KiB as much from cache.
constexpr size_t kMaxCopiedBytes = size_t{16} * 1024;

// Where the size of an output's axis is known from, before the run.
struct AxisSource {
  int64_t size = Shape::kDynamic;  // fixed, or
  int input = -1;                  // that of an input's axis; neither: known after the run
  int axis = 0;
};

class OnnxRuntimeInstance final : public Instance {
 public:
  explicit OnnxRuntimeInstance(std::shared_ptr<const SharedSession> shared)
      : shared_(std::move(shared)) {
    for (const Port& port : shared_->ports.inputs) {
      inputs_.emplace_back();
      input_names_.push_back(port.spec.name.c_str());
      input_values_.push_back(nullptr);
      if (port.spec.type != ElementType::kBytes)
        inputs_.back().small = make_buffer(kMaxCopiedBytes);
    }
    for (const Port& port : shared_->ports.outputs) {
      outputs_.emplace_back();
      outputs_.back().axes = sources_of(port);
      outputs_.back().small = make_buffer(kMaxCopiedBytes);
    }
    output_names_.resize(outputs_.size());
    output_values_.resize(outputs_.size());
    OrtRunOptions* options = nullptr;
    must(api().CreateRunOptions(&options));
    run_options_.reset(options);
  }

  StartOutcome start(InferRequest& request, void (*)(InferRequest&) noexcept) noexcept override {
    request.status =
        or_failed(Code::kInternal, "running", shared_->metadata.name, [&] { return run(request); });
    return StartOutcome::kDone;
  }

  const void* last_bound_input(size_t index) const noexcept override {
    return inputs_[index].value.data();
  }

 private:
  struct Input {
    Buffer small;  // that small tensors are copied to
    Buffer large;  // and large ones that lie where the type may not
    size_t large_bytes = 0;
    BoundValue value;
  };
  struct Output {
    std::vector<AxisSource> axes;
    Buffer small;
    BoundValue value;
    // The memory that this run is to write to; nullptr: the library's choice.
    OrtValue* given = nullptr;
    Owned<OrtValue> made;         // by the library, in this run
    std::byte* target = nullptr;  // in the request's memory, when `given` lies there
    Shape shape;                  // of `given`
    size_t bytes = 0;             // of `given`
    bool is_wanted = false;
    bool is_to_be_checked = true;  // that a run writes its outputs
  };

  std::vector<AxisSource> sources_of(const Port& output) const {
    if (!output.spec.has_rank) return {AxisSource()};
    std::vector<AxisSource> sources;
    const std::vector<Port>& inputs = shared_->ports.inputs;
    for (size_t axis = 0; axis < output.axes.size(); ++axis) {
      AxisSource source{.size = output.spec.shape[axis]};
      const std::string& name = output.axes[axis];
      for (size_t i = 0; i < inputs.size() && !name.empty() && source.input < 0; ++i) {
        const auto found = std::ranges::find(inputs[i].axes, name);
        if (found == inputs[i].axes.end()) continue;
        source.input = static_cast<int>(i);
        source.axis = static_cast<int>(found - inputs[i].axes.begin());
      }
      sources.push_back(source);
    }
    return sources;
  }

  Status run(InferRequest& request) {
    const size_t wanted =
        request.outputs_wanted.empty() ? outputs_.size() : request.outputs_wanted.size();
    const std::span<TensorView> views = request.list_memory().allocate_array<TensorView>(wanted);
    if (views.size() != wanted) return no_room("(list)", wanted * sizeof(TensorView));
    for (size_t i = 0; i < inputs_.size(); ++i) {
      LUMEN_RETURN_IF_ERROR(bind_input(i, request.inputs[i]));
    }
    LUMEN_RETURN_IF_ERROR(bind_outputs(request, wanted));
    request.times.preprocessed_ns = now_ns();
    LUMEN_RETURN_IF_ERROR(has_to_check_ ? run_checked(request) : run_session(request));
    request.times.inferred_ns = now_ns();
    LUMEN_RETURN_IF_ERROR(collect(request, views));
    request.outputs = views;
    request.times.postprocessed_ns = now_ns();
    return {};
  }

  Status bind_input(size_t index, const TensorView& view) {
    Input& input = inputs_[index];
    if (view.type == ElementType::kBytes) return bind_strings(index, view);
    std::byte* data = view.data;
    if (view.byte_size <= kMaxCopiedBytes) {
      data = input.small.get();
    } else if (reinterpret_cast<uintptr_t>(data) % element_size(view.type) != 0) {
      if (input.large_bytes < view.byte_size) {
        input.large = make_buffer(view.byte_size);
        input.large_bytes = view.byte_size;
      }
      data = input.large.get();
    }
    if (data != view.data) std::memcpy(data, view.data, view.byte_size);
    input_values_[index] =
        input.value.bind(shared_->library->cpu(), view.type, view.shape, data, view.byte_size);
    return {};
  }

  Status bind_strings(size_t index, const TensorView& view) {
    OrtValue* value = inputs_[index].value.bind_strings(view.shape);
    input_values_[index] = value;
    return read_bytes_tensor(
        shared_->ports.inputs[index].spec.name, view.bytes(),
        view.shape.element_count().value_or(0), [value](size_t i, std::string_view text) {
          char* place = nullptr;
          must(api().GetResizedStringTensorElementBuffer(value, i, text.size(), &place));
          std::memcpy(place, text.data(), text.size());
        });
  }

  size_t output_index(const InferRequest& request, size_t position) const noexcept {
    return request.outputs_wanted.empty() ? position : request.outputs_wanted[position];
  }

  // The shape that the output will have; nullopt: only the run tells.
  std::optional<Shape> expected_shape(const Output& output,
                                      std::span<const TensorView> inputs) const {
    Shape shape;
    for (const AxisSource& axis : output.axes) {
      const int64_t size =
          axis.input < 0 ? axis.size : inputs[static_cast<size_t>(axis.input)].shape[axis.axis];
      if (size < 0 || !shape.append(size)) return std::nullopt;
    }
    return shape;
  }

  Status bind_outputs(const InferRequest& request, size_t wanted) {
    for (Output& output : outputs_) output.is_wanted = false;
    has_to_check_ = false;
    for (size_t position = 0; position < wanted; ++position) {
      const size_t index = output_index(request, position);
      Output& output = outputs_[index];
      if (std::exchange(output.is_wanted, true)) continue;  // named twice
      output.given = nullptr;
      output.target = nullptr;
      const TensorSpec& spec = shared_->ports.outputs[index].spec;
      const std::optional<Shape> shape = expected_shape(output, request.inputs);
      const bool is_computed = shared_->ports.outputs[index].is_computed;
      if (spec.type == ElementType::kBytes || !shape || !knows_shapes_ || !is_computed) continue;
      const size_t bytes = shape->element_count().value_or(0) * element_size(spec.type);
      if (bytes == 0) continue;
      std::byte* data = output.small.get();
      if (bytes > kMaxCopiedBytes) {
        data = static_cast<std::byte*>(request.memory->allocate(bytes, kTensorAlignment));
        if (data == nullptr) return no_room(spec.name, bytes);
        output.target = data;
      }
      output.shape = *shape;
      output.bytes = bytes;
      has_to_check_ |= output.is_to_be_checked;
      output.given = output.value.bind(shared_->library->cpu(), spec.type, *shape, data, bytes);
    }
    return {};
  }

  Status run_checked(const InferRequest& request) {
    std::string unwritten;
    for (const int filling : kFillings) {
      for (const Output& output : outputs_) {
        if (is_checked_now(output)) std::memset(memory_of(output), filling, output.bytes);
      }
      LUMEN_RETURN_IF_ERROR(run_session(request));
      const std::string* found = find_unwritten(filling);
      if (found == nullptr) {
        for (Output& output : outputs_) {
          if (is_checked_now(output)) output.is_to_be_checked = kChecksEachRun;
        }
        return {};
      }
      unwritten = *found;
    }
    return Status::error(Code::kInternal,
                         "model '%s': ONNX Runtime does not write output '%s' where it is asked to",
                         shared_->metadata.name.c_str(), unwritten.c_str());
  }

  const std::string* find_unwritten(int filling) const noexcept {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Output& output = outputs_[i];
      if (is_checked_now(output) && holds_only(filling, memory_of(output), output.bytes)) {
        return &shared_->ports.outputs[i].spec.name;
      }
    }
    return nullptr;
  }

  static bool is_checked_now(const Output& output) noexcept {
    return output.is_to_be_checked && output.is_wanted && output.given != nullptr;
  }
  static std::byte* memory_of(const Output& output) noexcept {
    return output.target != nullptr ? output.target : output.small.get();
  }

  Status run_session(const InferRequest& request) {
    Error error = call();
    // A model's declaration of its outputs may be false (one name for axes of two sizes): then the
    // library refuses the memory that it was given. It is not asked to use any again.
    if (error != nullptr && knows_shapes_ && was_given_any()) {
      for (Output& output : outputs_) output.given = nullptr;
      Error second = call();
      if (second == nullptr) {
        knows_shapes_ = false;
        return {};
      }
      error = std::move(second);
    }
    return error == nullptr ? Status() : refusal(*shared_, request, *error);
  }

  Error call() {
    size_t count = 0;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      Output& output = outputs_[i];
      if (!output.is_wanted) continue;
      output.made.reset();
      output_names_[count] = shared_->ports.outputs[i].spec.name.c_str();
      output_values_[count++] = output.given;
    }
    Error error(api().Run(shared_->session.get(), run_options_.get(), input_names_.data(),
                          input_values_.data(), input_values_.size(), output_names_.data(), count,
                          output_values_.data()));
    count = 0;
    for (Output& output : outputs_) {
      if (!output.is_wanted) continue;
      OrtValue* value = output_values_[count++];
      if (output.given == nullptr) output.made.reset(value);
    }
    return error;
  }

  bool was_given_any() const noexcept {
    return std::ranges::any_of(
        outputs_, [](const Output& one) { return one.is_wanted && one.given != nullptr; });
  }

  Status collect(const InferRequest& request, std::span<TensorView> views) {
    for (size_t position = 0; position < views.size(); ++position) {
      const size_t index = output_index(request, position);
      Output& output = outputs_[index];
      TensorView& view = views[position];
      view.type = shared_->ports.outputs[index].spec.type;
      LUMEN_RETURN_IF_ERROR(output.given != nullptr ? collect_given(request, index, view)
                                                    : collect_made(request, index, view));
    }
    for (Output& output : outputs_) output.made.reset();
    return {};
  }

  Status collect_given(const InferRequest& request, size_t index, TensorView& view) const {
    const Output& output = outputs_[index];
    view.shape = output.shape;
    view.byte_size = output.bytes;
    view.data = output.target;
    if (view.data != nullptr) return {};
    return copy_out(request, index, output.small.get(), view);
  }

  Status collect_made(const InferRequest& request, size_t index, TensorView& view) const {
    OrtValue* value = outputs_[index].made.get();
    const Result<Shape> shape = shape_of(*value, shared_->ports.outputs[index].spec.name);
    if (!shape.ok()) return shape.status();
    view.shape = *shape;
    const size_t count = view.shape.element_count().value_or(0);
    if (view.type == ElementType::kBytes) return copy_strings(request, index, count, *value, view);
    void* data = nullptr;
    must(api().GetTensorMutableData(value, &data));
    view.byte_size = count * element_size(view.type);
    return copy_out(request, index, static_cast<const std::byte*>(data), view);
  }

  Status copy_out(const InferRequest& request, size_t index, const std::byte* from,
                  TensorView& view) const {
    view.data = static_cast<std::byte*>(request.memory->allocate(view.byte_size, kTensorAlignment));
    if (view.data == nullptr) {
      return no_room(shared_->ports.outputs[index].spec.name, view.byte_size);
    }
    if (view.byte_size > 0) std::memcpy(view.data, from, view.byte_size);
    return {};
  }

  Status copy_strings(const InferRequest& request, size_t index, size_t count,
                      const OrtValue& strings, TensorView& view) const {
    size_t bytes = 0;
    must(api().GetStringTensorDataLength(&strings, &bytes));
    std::string text(bytes, '\0');
    std::vector<size_t> begins(count);
    must(api().GetStringTensorContent(&strings, text.data(), bytes, begins.data(), count));
    view.byte_size = bytes + count * sizeof(uint32_t);
    view.data = static_cast<std::byte*>(request.memory->allocate(view.byte_size, kTensorAlignment));
    if (view.data == nullptr) {
      return no_room(shared_->ports.outputs[index].spec.name, view.byte_size);
    }
    std::byte* next = view.data;
    for (size_t i = 0; i < count; ++i) {
      const size_t end = i + 1 < count ? begins[i + 1] : bytes;
      next = write_bytes_element(std::string_view(text).substr(begins[i], end - begins[i]), next);
    }
    return {};
  }

  const std::shared_ptr<const SharedSession> shared_;
  Owned<OrtRunOptions> run_options_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<const char*> input_names_;
  std::vector<const OrtValue*> input_values_;
  std::vector<const char*> output_names_;
  std::vector<OrtValue*> output_values_;
  bool knows_shapes_ = true;   // of its outputs, from its inputs
  bool has_to_check_ = false;  // an output of this run
};

}  // namespace

std::unique_ptr<Instance> make_instance(std::shared_ptr<const SharedSession> shared) {
  return std::make_unique<OnnxRuntimeInstance>(std::move(shared));
}

}  // namespace lumen::backends::onnxruntime
