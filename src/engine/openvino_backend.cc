// The OpenVINO backend, and the only translation unit that includes OpenVINO (its headers are slow
// to compile). Threads: load and create_instance one at a time; an Instance belongs to one worker,
// and the model runs on that very thread. Memory: OpenVINO allocates 4 times a call of a small
// model, more when tensors are bound anew. Says no: every exception ends here and becomes a Status.
#include <lumen/engine/backend.h>

#include <lumen/base/clock.h>
#include <lumen/base/cpu.h>
#include <lumen/base/limits.h>

#include "engine/bytes_tensor.h"

#include <openvino/frontend/manager.hpp>
#include <openvino/op/result.hpp>
#include <openvino/op/string_tensor_pack.hpp>
#include <openvino/op/string_tensor_unpack.hpp>
#include <openvino/openvino.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <optional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lumen::engine {
namespace {

// Up to here a tensor is copied into the instance's bound buffer, above it is bound where it lies.
// Measured on an EPYC (Zen 5): binding anew costs 1.2 us a call, copying 16 KiB 0.3 us from L2 and
// 0.9 us from memory.
constexpr size_t kMaxCopiedBytes = 16 * 1024;

constexpr int kWarmupRuns = 3;

struct TypePair {
  ElementType ours;
  ov::element::Type_t theirs;
};
constexpr std::array<TypePair, 14> kTypes = {{
    {ElementType::kBool, ov::element::Type_t::boolean},
    {ElementType::kUint8, ov::element::Type_t::u8},
    {ElementType::kUint16, ov::element::Type_t::u16},
    {ElementType::kUint32, ov::element::Type_t::u32},
    {ElementType::kUint64, ov::element::Type_t::u64},
    {ElementType::kInt8, ov::element::Type_t::i8},
    {ElementType::kInt16, ov::element::Type_t::i16},
    {ElementType::kInt32, ov::element::Type_t::i32},
    {ElementType::kInt64, ov::element::Type_t::i64},
    {ElementType::kFp16, ov::element::Type_t::f16},
    {ElementType::kBf16, ov::element::Type_t::bf16},
    {ElementType::kFp32, ov::element::Type_t::f32},
    {ElementType::kFp64, ov::element::Type_t::f64},
    {ElementType::kBytes, ov::element::Type_t::string},
}};

std::optional<ElementType> our_type(const ov::element::Type& type) noexcept {
  const auto found =
      std::ranges::find(kTypes, static_cast<ov::element::Type_t>(type), &TypePair::theirs);
  return found == kTypes.end() ? std::nullopt : std::optional(found->ours);
}

ov::element::Type their_type(ElementType type) noexcept {
  return std::ranges::find(kTypes, type, &TypePair::ours)->theirs;
}

ov::Shape their_shape(const Shape& shape) {
  ov::Shape result;
  for (const int64_t dimension : shape.dimensions()) {
    result.push_back(static_cast<size_t>(dimension));
  }
  return result;
}

std::optional<Shape> our_shape(const ov::PartialShape& shape) {
  Shape result;
  if (shape.rank().is_dynamic()) return std::nullopt;
  for (const ov::Dimension& dimension : shape) {
    if (!result.append(dimension.is_static() ? dimension.get_length() : Shape::kDynamic)) {
      return std::nullopt;
    }
  }
  return result;
}

// What an exception says, on one line: OpenVINO's texts begin with "Exception from FILE:LINE:" and
// "Check ... failed at ...", the reason stands last.
Status failed(Code code, const char* doing, const std::string& model, const char* what) noexcept {
  char text[Status::kMaxMessage];
  size_t size = 0;
  for (const char* c = what; *c != '\0' && size + 1 < sizeof(text); ++c) {
    const bool space = *c == '\n' || *c == '\r' || *c == '\t' || *c == ' ';
    if (space && (size == 0 || text[size - 1] == ' ')) continue;
    text[size++] = space ? ' ' : *c;
  }
  while (size > 0 && text[size - 1] == ' ') --size;
  text[size] = '\0';
  return Status::error(code, "%s model '%s': %s", doing, model.c_str(), text);
}

// What a model's port is to us. `shape` holds -1 for a free axis; `bounds` is kept only where an
// axis is free within limits, which metadata can't say.
struct Port {
  TensorSpec spec;
  std::optional<ov::PartialShape> bounds;
};

std::string port_name(const ov::Output<ov::Node>& port, const char* kind, size_t index,
                      const std::vector<Port>& before) {
  // A port may have several names or none. The first in byte order does not change with the order
  // in which a frontend met them; without any, kind and position do.
  std::string name = std::string(kind) + "_" + std::to_string(index);
  const auto& names = port.get_names();
  if (!names.empty()) name = *std::ranges::min_element(names);
  const auto taken = [&before](const std::string& candidate) {
    return std::ranges::any_of(before, [&](const Port& p) { return p.spec.name == candidate; });
  };
  while (taken(name)) name += "_";
  return name;
}

Result<std::vector<Port>> describe_ports(const std::string& model,
                                         const std::vector<ov::Output<ov::Node>>& ports,
                                         const char* kind) {
  std::vector<Port> described;
  for (size_t i = 0; i < ports.size(); ++i) {
    Port port;
    port.spec.name = port_name(ports[i], kind, i, described);
    const std::optional<ElementType> type = our_type(ports[i].get_element_type());
    const ov::PartialShape& partial = ports[i].get_partial_shape();
    const std::optional<Shape> shape = our_shape(partial);
    if (!type || !shape) {
      return Status::error(
          Code::kUnsupported,
          "model '%s': %s '%s' is %s %s; wanted a datatype of the protocol and a rank of at most %zu",
          model.c_str(), kind, port.spec.name.c_str(),
          ports[i].get_element_type().get_type_name().c_str(), partial.to_string().c_str(),
          limits::kMaxRank);
    }
    port.spec.type = *type;
    port.spec.shape = *shape;
    const bool bounded = std::ranges::any_of(partial, [](const ov::Dimension& d) {
      return d.is_dynamic() && (d.get_min_length() > 0 || d.get_max_length() >= 0);
    });
    if (bounded) port.bounds = partial;
    described.push_back(std::move(port));
  }
  return described;
}

// OpenVINO 2026.4 frees the strings of an output twice where it is an input passed on (its own Python
// API crashes on ONNX Identity of strings). Unpacked and packed again they have memory of their own.
void give_strings_their_own_memory(const ov::Model& model) {
  for (const std::shared_ptr<ov::op::v0::Result>& result : model.get_results()) {
    const ov::Output<ov::Node> source = result->input_value(0);
    if (source.get_element_type() != ov::element::string) continue;
    const auto parts = std::make_shared<ov::op::v15::StringTensorUnpack>(source);
    const auto packed = std::make_shared<ov::op::v15::StringTensorPack>(
        parts->output(0), parts->output(1), parts->output(2));
    result->input(0).replace_source_output(packed->output(0));
  }
}

Status no_room(const std::string& output, size_t bytes) noexcept {
  return Status::error(Code::kTooLarge,
                       "output '%s' needs %zu bytes, more than the request's memory has left",
                       output.c_str(), bytes);
}

// One compiled shape of a model with its infer request.
class Plan {
 public:
  Plan(ov::CompiledModel compiled, const std::vector<Port>& inputs,
       const std::vector<Port>& outputs)
      : inputs_(inputs), outputs_(outputs), compiled_(std::move(compiled)),
        request_(compiled_.create_infer_request()) {}
  virtual ~Plan() = default;

  // Inputs bound or copied, room for the outputs. May throw what OpenVINO throws.
  virtual Status bind(InferRequest& request, std::span<TensorView> outputs) = 0;
  // After the model ran.
  virtual Status collect(InferRequest& request, std::span<TensorView> outputs) = 0;
  virtual const void* bound_input(size_t index) const noexcept = 0;

  void infer() { request_.infer(); }

 protected:
  static size_t output_index(const InferRequest& request, size_t position) noexcept {
    return request.outputs_wanted.empty() ? position : request.outputs_wanted[position];
  }

  const std::vector<Port>& inputs_;
  const std::vector<Port>& outputs_;
  ov::CompiledModel compiled_;
  ov::InferRequest request_;
};

// All shapes known at compile time: buffers of their own for small tensors, large ones bound where
// the request has them.
class StaticPlan final : public Plan {
 public:
  StaticPlan(ov::CompiledModel compiled, const std::vector<Port>& inputs,
             const std::vector<Port>& outputs)
      : Plan(std::move(compiled), inputs, outputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      slots_in_.push_back(make_slot(compiled_.input(i)));
      request_.set_input_tensor(i, slots_in_.back().own);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      slots_out_.push_back(make_slot(compiled_.output(i)));
      request_.set_output_tensor(i, slots_out_.back().own);
    }
  }

  Status bind(InferRequest& request, std::span<TensorView> outputs) override {
    for (size_t i = 0; i < slots_in_.size(); ++i) {
      Slot& slot = slots_in_[i];
      const TensorView& input = request.inputs[i];
      if (slot.bytes <= kMaxCopiedBytes) {
        std::memcpy(slot.bound, input.data, slot.bytes);
      } else if (is_aligned(input)) {
        if (input.data != slot.bound) {
          request_.set_input_tensor(i, ov::Tensor(slot.type, slot.shape, input.data));
          slot.bound = input.data;
        }
      } else {
        if (slot.bound != slot.own.data()) {
          request_.set_input_tensor(i, slot.own);
          slot.bound = slot.own.data();
        }
        std::memcpy(slot.bound, input.data, slot.bytes);
      }
    }
    return bind_outputs(request, outputs);
  }

  Status collect(InferRequest& request, std::span<TensorView> outputs) override {
    for (size_t position = 0; position < outputs.size(); ++position) {
      const size_t index = output_index(request, position);
      const Slot& slot = slots_out_[index];
      if (slot.bytes > kMaxCopiedBytes) continue;  // the model wrote it where it belongs
      void* memory = request.memory->allocate(slot.bytes, kTensorAlignment);
      if (memory == nullptr) return no_room(outputs_[index].spec.name, slot.bytes);
      std::memcpy(memory, slot.bound, slot.bytes);
      outputs[position] = view(slot, static_cast<std::byte*>(memory));
    }
    return {};
  }

  const void* bound_input(size_t index) const noexcept override { return slots_in_[index].bound; }

 private:
  struct Slot {
    ov::element::Type type;
    ov::Shape shape;
    ElementType our_type;
    Shape our_shape;
    size_t bytes;
    ov::Tensor own;
    void* bound;
  };
  static constexpr size_t kTensorAlignment = 64;

  static Slot make_slot(const ov::Output<const ov::Node>& port) {
    ov::Tensor own(port.get_element_type(), port.get_shape());
    std::memset(own.data(), 0, own.get_byte_size());
    return {port.get_element_type(), port.get_shape(), *engine::our_type(port.get_element_type()),
            *engine::our_shape(port.get_partial_shape()), own.get_byte_size(), own, own.data()};
  }
  static bool is_aligned(const TensorView& view) noexcept {
    return reinterpret_cast<uintptr_t>(view.data) % std::max<size_t>(element_size(view.type), 1) ==
           0;
  }
  static TensorView view(const Slot& slot, std::byte* data) noexcept {
    return {.type = slot.our_type, .shape = slot.our_shape, .data = data, .byte_size = slot.bytes};
  }

  // Invariant at every infer(): a large output is bound either to this request's memory or to the
  // slot's own; never to that of a request before, which may be someone else's by now.
  Status bind_outputs(InferRequest& request, std::span<TensorView> outputs) {
    for (size_t index = 0; index < slots_out_.size(); ++index) {
      Slot& slot = slots_out_[index];
      if (slot.bytes <= kMaxCopiedBytes) continue;
      void* target = slot.own.data();
      for (size_t position = 0; position < outputs.size(); ++position) {
        if (output_index(request, position) != index) continue;
        if (target == slot.own.data()) {
          target = request.memory->allocate(slot.bytes, kTensorAlignment);
          if (target == nullptr) return no_room(outputs_[index].spec.name, slot.bytes);
        }
        outputs[position] = view(slot, static_cast<std::byte*>(target));
      }
      if (target == slot.bound) continue;
      request_.set_output_tensor(index, ov::Tensor(slot.type, slot.shape, target));
      slot.bound = target;
    }
    return {};
  }

  std::vector<Slot> slots_in_;
  std::vector<Slot> slots_out_;
};

// Shapes that differ from call to call, and strings. Outputs are copied: their size is known only
// after the run.
class DynamicPlan final : public Plan {
 public:
  DynamicPlan(ov::CompiledModel compiled, const std::vector<Port>& inputs,
              const std::vector<Port>& outputs)
      : Plan(std::move(compiled), inputs, outputs), slots_(inputs.size()) {
    for (Slot& slot : slots_) {
      slot.small = ov::Tensor(ov::element::u8, ov::Shape{kMaxCopiedBytes});
    }
  }

  Status bind(InferRequest& request, std::span<TensorView>) override {
    for (size_t i = 0; i < slots_.size(); ++i) {
      const TensorView& input = request.inputs[i];
      const Port& port = inputs_[i];
      if (port.bounds && !port.bounds->compatible(their_shape(input.shape))) {
        return Status::error(Code::kInvalidArgument, "input '%s': the model takes shapes %s only",
                             port.spec.name.c_str(), port.bounds->to_string().c_str());
      }
      if (input.type == ElementType::kBytes) {
        LUMEN_RETURN_IF_ERROR(bind_strings(i, input));
      } else {
        bind_numbers(i, input);
      }
    }
    return {};
  }

  Status collect(InferRequest& request, std::span<TensorView> outputs) override {
    for (size_t position = 0; position < outputs.size(); ++position) {
      const size_t index = output_index(request, position);
      const std::string& name = outputs_[index].spec.name;
      const ov::Tensor tensor = request_.get_output_tensor(index);
      TensorView& output = outputs[position];
      output.type = outputs_[index].spec.type;
      output.shape = *our_shape(tensor.get_shape());
      const bool strings = output.type == ElementType::kBytes;
      const std::span<const std::string> texts =
          strings ? std::span(tensor.data<const std::string>(), tensor.get_size())
                  : std::span<const std::string>();
      output.byte_size = strings ? bytes_tensor_size(texts) : tensor.get_byte_size();
      output.data = static_cast<std::byte*>(
          request.memory->allocate(output.byte_size, alignof(std::max_align_t)));
      if (output.data == nullptr) return no_room(name, output.byte_size);
      if (strings) {
        write_bytes_tensor(texts, output.data);
      } else if (output.byte_size > 0) {
        std::memcpy(output.data, tensor.data(), output.byte_size);
      }
    }
    return {};
  }

  const void* bound_input(size_t index) const noexcept override { return slots_[index].bound; }

 private:
  struct Slot {
    ov::Tensor small;    // bytes that small inputs are copied to
    ov::Tensor strings;
    Shape shape;         // of what is bound
    const void* bound = nullptr;
  };

  void bind_numbers(size_t index, const TensorView& input) {
    Slot& slot = slots_[index];
    std::byte* data = input.data;
    const bool aligned =
        reinterpret_cast<uintptr_t>(data) % std::max<size_t>(element_size(input.type), 1) == 0;
    if (input.byte_size <= kMaxCopiedBytes) {
      data = static_cast<std::byte*>(slot.small.data());
      std::memcpy(data, input.data, input.byte_size);
    } else if (!aligned) {
      ov::Tensor copy(their_type(input.type), their_shape(input.shape));
      std::memcpy(copy.data(), input.data, input.byte_size);
      slot.bound = nullptr;
      return request_.set_input_tensor(index, copy);
    }
    if (slot.bound == data && slot.shape == input.shape) return;
    request_.set_input_tensor(
        index, ov::Tensor(their_type(input.type), their_shape(input.shape), data));
    slot.bound = data;
    slot.shape = input.shape;
  }

  Status bind_strings(size_t index, const TensorView& input) {
    Slot& slot = slots_[index];
    if (slot.bound == nullptr || !(slot.shape == input.shape)) {
      slot.strings = ov::Tensor(ov::element::string, their_shape(input.shape));
      request_.set_input_tensor(index, slot.strings);
      slot.bound = slot.strings.data();
      slot.shape = input.shape;
    }
    const std::span<std::string> texts(slot.strings.data<std::string>(), slot.strings.get_size());
    return read_bytes_tensor(inputs_[index].spec.name, input.bytes(), texts);
  }

  std::vector<Slot> slots_;
};

class OpenVinoInstance final : public Instance {
 public:
  OpenVinoInstance(const std::string& model, const std::vector<Port>& inputs,
                   const std::vector<Port>& outputs)
      : model_(model), inputs_(inputs), outputs_(outputs) {}

  // `rows` 0: the model's only shape.
  void add_static(uint32_t rows, ov::CompiledModel compiled) {
    fixed_.push_back(
        {rows, std::make_unique<StaticPlan>(std::move(compiled), inputs_, outputs_)});
  }
  void add_dynamic(ov::CompiledModel compiled) {
    dynamic_.emplace(std::move(compiled), inputs_, outputs_);
  }

  // First calls allocate what later ones use again. Throws what the model throws: one that fails
  // on zeros of its own shape is broken. Free shapes are not guessed.
  void warm_up() {
    for (Fixed& fixed : fixed_) {
      for (int i = 0; i < kWarmupRuns; ++i) fixed.plan->infer();
    }
  }

  StartOutcome start(InferRequest& request,
                     void (*)(InferRequest&) noexcept) noexcept override {
    request.status = guarded([&] { return run(request); });
    return StartOutcome::kDone;
  }

  const void* last_bound_input(size_t index) const noexcept override {
    return last_ == nullptr ? nullptr : last_->bound_input(index);
  }

 private:
  struct Fixed {
    uint32_t rows;
    std::unique_ptr<StaticPlan> plan;
  };

  template <typename Body>
  Status guarded(Body body) noexcept {
    try {
      return body();
    } catch (const std::exception& error) {
      return failed(Code::kInternal, "running", model_, error.what());
    } catch (...) {
      return Status::error(Code::kInternal, "running model '%s': unknown exception",
                           model_.c_str());
    }
  }

  Status run(InferRequest& request) {
    const size_t wanted = request.outputs_wanted.empty() ? outputs_.size()
                                                         : request.outputs_wanted.size();
    const std::span<TensorView> outputs = request.memory->allocate_array<TensorView>(wanted);
    if (outputs.size() != wanted) return no_room("(list)", wanted * sizeof(TensorView));
    Plan& plan = choose(request);
    last_ = &plan;
    LUMEN_RETURN_IF_ERROR(plan.bind(request, outputs));
    request.trace.preprocessed_ns = now_ns();
    plan.infer();
    request.trace.inferred_ns = now_ns();
    LUMEN_RETURN_IF_ERROR(plan.collect(request, outputs));
    request.outputs = outputs;
    request.trace.postprocessed_ns = now_ns();
    return {};
  }

  Plan& choose(const InferRequest& request) noexcept {
    for (const auto& [rows, plan] : fixed_) {
      const auto has_rows = [rows = int64_t{rows}](const TensorView& input) {
        return input.shape[0] == rows;
      };
      if (rows == 0 || std::ranges::all_of(request.inputs, has_rows)) return *plan;
    }
    return *dynamic_;
  }

  const std::string& model_;
  const std::vector<Port>& inputs_;
  const std::vector<Port>& outputs_;
  std::vector<Fixed> fixed_;
  std::optional<DynamicPlan> dynamic_;
  const Plan* last_ = nullptr;
};

class OpenVinoModel final : public LoadedModel {
 public:
  OpenVinoModel(ov::Core& core, std::shared_ptr<ov::Model> model, const ModelSource& source,
                std::vector<Port> inputs, std::vector<Port> outputs)
      : core_(core), model_(std::move(model)), options_(source.options),
        inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
    metadata_.name = source.name;
    metadata_.version = source.version;
    metadata_.platform = "openvino";
    for (const Port& port : inputs_) metadata_.inputs.push_back(port.spec);
    for (const Port& port : outputs_) metadata_.outputs.push_back(port.spec);
  }

  const ModelMetadata& metadata() const noexcept override { return metadata_; }

  Result<std::unique_ptr<Instance>> create_instance() override {
    try {
      auto instance = std::make_unique<OpenVinoInstance>(metadata_.name, inputs_, outputs_);
      compile_into(*instance);
      instance->warm_up();
      return std::unique_ptr<Instance>(std::move(instance));
    } catch (const std::exception& error) {
      return failed(Code::kInternal, "compiling", metadata_.name, error.what());
    } catch (...) {
      return Status::error(Code::kInternal, "compiling model '%s': unknown exception",
                           metadata_.name.c_str());
    }
  }

 private:
  void compile_into(OpenVinoInstance& instance) {
    const auto is_string = [](const Port& port) { return port.spec.type == ElementType::kBytes; };
    const bool strings =
        std::ranges::any_of(inputs_, is_string) || std::ranges::any_of(outputs_, is_string);
    if (!strings && !model_->is_dynamic()) {
      instance.add_static(0, compile(model_));
      return;
    }
    if (!strings && only_rows_are_free()) {
      for (const uint32_t rows : options_.batch_sizes) {
        if (auto compiled = compile_rows(rows)) instance.add_static(rows, std::move(*compiled));
      }
    }
    instance.add_dynamic(compile(model_));
  }

  bool only_rows_are_free() const noexcept {
    return std::ranges::all_of(inputs_, [](const Port& port) {
      const Shape& shape = port.spec.shape;
      const auto rest = shape.dimensions().subspan(std::min<size_t>(shape.rank(), 1));
      return shape.rank() > 0 && shape[0] == Shape::kDynamic &&
             std::ranges::none_of(rest, [](int64_t d) { return d < 0; });
    });
  }

  // nullopt: the model can't have that many rows (its first axis is no batch after all, or the
  // outputs stay dynamic); the dynamic compile then runs them.
  std::optional<ov::CompiledModel> compile_rows(uint32_t rows) {
    try {
      const std::shared_ptr<ov::Model> fixed = model_->clone();
      std::map<size_t, ov::PartialShape> shapes;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        ov::PartialShape shape = model_->input(i).get_partial_shape();
        shape[0] = rows;
        shapes[i] = shape;
      }
      fixed->reshape(shapes);
      if (fixed->is_dynamic()) return std::nullopt;
      return compile(fixed);
    } catch (const ov::Exception&) {
      return std::nullopt;
    }
  }

  ov::CompiledModel compile(const std::shared_ptr<ov::Model>& model) {
    ov::AnyMap properties = {
        ov::inference_num_threads(1),
        ov::num_streams(1),
        ov::hint::performance_mode(ov::hint::PerformanceMode::LATENCY),
        // Without its own stream executor OpenVINO runs the model on the calling thread as it is.
        // With it each infer() enters a TBB arena that moves the thread to another CPU and back by
        // two sched_setaffinity calls (2026.4, whatever enable_cpu_pinning says): 5.2 us a call of
        // a small MLP instead of 1.6, and the worker's pinning is gone.
        {"EXCLUSIVE_ASYNC_REQUESTS", true},
    };
    if (options_.precision == Precision::kF32) {
      properties.insert(ov::hint::inference_precision(ov::element::f32));
    } else if (options_.precision == Precision::kBf16) {
      properties.insert(ov::hint::inference_precision(ov::element::bf16));
    }
    return core_.compile_model(model, "CPU", properties);
  }

  ov::Core& core_;
  std::shared_ptr<ov::Model> model_;
  ModelOptions options_;
  std::vector<Port> inputs_;
  std::vector<Port> outputs_;
  ModelMetadata metadata_;
};

class OpenVinoBackend final : public Backend {
 public:
  std::string description() const override {
    const std::string_view build = ov::get_openvino_version().buildNumber;
    return "OpenVINO " + std::string(build.substr(0, build.find('-')));
  }

  Result<std::unique_ptr<LoadedModel>> load(const ModelSource& source) override {
    try {
      open_core();
      std::shared_ptr<ov::Model> model = read_model(source.file);
      auto inputs = describe_ports(source.name, model->inputs(), "input");
      if (!inputs.ok()) return inputs.status();
      auto outputs = describe_ports(source.name, model->outputs(), "output");
      if (!outputs.ok()) return outputs.status();
      give_strings_their_own_memory(*model);
      return std::unique_ptr<LoadedModel>(std::make_unique<OpenVinoModel>(
          *core_, std::move(model), source, std::move(*inputs), std::move(*outputs)));
    } catch (const std::exception& error) {
      return failed(Code::kUnavailable, "loading", source.name, error.what());
    } catch (...) {
      return Status::error(Code::kUnavailable, "loading model '%s': unknown exception",
                           source.name.c_str());
    }
  }

 private:
  // By the file's ending and not, as ov::Core does, by trying every frontend: that would take a
  // broken ONNX file for a TensorFlow text and say so.
  std::shared_ptr<ov::Model> read_model(const std::filesystem::path& file) {
    const auto frontend =
        frontends_.load_by_framework(file.extension() == ".onnx" ? "onnx" : "ir");
    const auto input = frontend->load(file.string());
    if (input == nullptr) throw std::runtime_error("not a model of the kind its name says");
    return frontend->convert(input);
  }

  // Loads the CPU plugin while this thread may use one CPU only. TBB sizes its default arena by the
  // affinity of the thread that touches it first, and a model run on the calling thread splits its
  // work over that arena: so each inference stays on its own worker. (With the arena's usual size
  // SqueezeNet took both CPUs of a two-core machine for one request.) Not on a thread made for it:
  // the plugin gives the loading thread a signal stack and unmaps it at its own end, long after.
  void open_core() {
    if (core_) return;
    const std::vector<uint32_t> cpus = usable_cpus();
    (void)pin_this_thread(cpus.back());
    std::exception_ptr failure;
    try {
      core_.emplace();
      (void)core_->get_property("CPU", ov::device::full_name);
    } catch (...) {
      failure = std::current_exception();
    }
    (void)restrict_this_thread(cpus);
    if (!failure) return;
    core_.reset();
    std::rethrow_exception(failure);
  }

  std::optional<ov::Core> core_;
  ov::frontend::FrontEndManager frontends_;
};

}  // namespace

std::unique_ptr<Backend> make_openvino_backend() { return std::make_unique<OpenVinoBackend>(); }

}  // namespace lumen::engine
