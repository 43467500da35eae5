// See lumen/backends/python.h. A model's tensors are those that its config.json states.
#include <lumen/backends/python.h>
#include <lumen/base/limits.h>
#include <lumen/models/backend_choice.h>

#include "backends/failure.h"
#include "backends/python/step_link.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

namespace lumen::backends {
namespace python {
namespace {

using models::InferRequest;
using models::Instance;
using models::LoadedModel;
using models::ModelMetadata;
using models::ModelSource;
using models::StartOutcome;
using models::StatedTensor;
using models::TensorSpec;

// A ring that small messages go round in a cache; and the largest that the bus has.
constexpr uint64_t kLeastRingBytes = uint64_t{1} << 20;
constexpr uint64_t kMostRingBytes = uint64_t{1} << 30;
// Where a tensor's size is not known before.
constexpr uint64_t kFreeRingBytes = uint64_t{64} << 20;
// So many of the largest messages are in a ring at once.
constexpr uint64_t kMessagesInARing = 8;
// Handed over by one worker. The process takes one after the other: with a few it does not wait for
// the worker, and the others keep their order by priority in the server's queue.
constexpr uint32_t kMostInFlight = 4;

class StepInstance final : public Instance {
 public:
  explicit StepInstance(std::shared_ptr<StepLink> link) : link_(std::move(link)) {}

  StartOutcome start(InferRequest& request,
                     void (*done)(InferRequest&) noexcept) noexcept override {
    return link_->start(request, done);
  }
  uint32_t max_in_flight() const noexcept override { return kMostInFlight; }
  uint64_t memory_number() const noexcept override { return link_->restarts(); }

 private:
  std::shared_ptr<StepLink> link_;
};

class StepModel final : public LoadedModel {
 public:
  explicit StepModel(std::unique_ptr<StepLink> link) : link_(std::move(link)) {}

  const ModelMetadata& metadata() const noexcept override { return link_->metadata(); }
  Result<std::unique_ptr<Instance>> create_instance(std::span<const uint32_t>) override {
    return std::unique_ptr<Instance>(std::make_unique<StepInstance>(link_));
  }

 private:
  std::shared_ptr<StepLink> link_;
};

std::vector<TensorSpec> specs_of(const std::vector<StatedTensor>& stated, bool has_rows) {
  std::vector<TensorSpec> specs;
  for (const StatedTensor& one : stated) {
    TensorSpec& spec =
        specs.emplace_back(TensorSpec{.name = one.name, .type = one.type, .shape = {}});
    // The configuration's own check leaves room for the axis of rows.
    if (has_rows) (void)spec.shape.append(Shape::kDynamic);
    for (size_t axis = 0; axis < one.dims.rank(); ++axis) (void)spec.shape.append(one.dims[axis]);
  }
  return specs;
}

// Triton's configurations name the tensors of sequences in "sequence_batching" alone.
void add_tensors_of_sequences(const models::SequenceOptions& sequences, bool has_rows,
                              ModelMetadata& metadata) {
  Shape one;
  if (has_rows) (void)one.append(Shape::kDynamic);
  (void)one.append(1);
  const auto add = [](std::vector<TensorSpec>& specs, const std::string& name, ElementType type,
                      const Shape& shape) {
    if (std::ranges::find(specs, name, &TensorSpec::name) != specs.end()) return;
    specs.push_back({.name = name, .type = type, .shape = shape});
  };
  for (const models::ControlOptions& control : sequences.controls) {
    if (control.type) add(metadata.inputs, control.input, *control.type, one);
  }
  for (const models::StateOptions& state : sequences.states) {
    if (!state.type || !state.dims) continue;
    Shape shape;
    if (has_rows) (void)shape.append(Shape::kDynamic);
    for (const int64_t size : state.dims->dimensions()) (void)shape.append(size);
    add(metadata.inputs, state.input, *state.type, shape);
    add(metadata.outputs, state.output, *state.type, shape);
  }
}

// Of a ring for messages with these tensors.
uint64_t ring_bytes_for(const ModelMetadata& metadata, uint32_t most_rows) {
  uint64_t most = 0;
  for (const std::vector<TensorSpec>* side : {&metadata.inputs, &metadata.outputs}) {
    uint64_t bytes = 0;
    for (const TensorSpec& spec : *side) {
      uint64_t size = std::max<size_t>(1, element_size(spec.type));
      for (size_t axis = 0; axis < spec.shape.rank(); ++axis) {
        const bool is_rows = axis == 0 && most_rows > 0;
        if (spec.shape[axis] < 0 && !is_rows) return kFreeRingBytes;
        const uint64_t axis_size = is_rows ? most_rows : static_cast<uint64_t>(spec.shape[axis]);
        if (axis_size > 0 && size > kMostRingBytes / axis_size) return kMostRingBytes;
        size *= axis_size;
      }
      if (spec.type == ElementType::kBytes) return kFreeRingBytes;
      bytes += size;
    }
    most = std::max(most, bytes);
  }
  return std::bit_ceil(std::clamp(most * kMessagesInARing, kLeastRingBytes, kMostRingBytes));
}

class PythonBackend final : public models::Backend {
 public:
  explicit PythonBackend(PythonOptions options) : options_(std::move(options)) {}

  std::string_view name() const noexcept override { return models::kPythonBackend; }
  std::string description() const override {
    return "Python (" + (options_.interpreter.empty() ? "off" : options_.interpreter) + ")";
  }
  Status availability() const override {
    if (!options_.interpreter.empty()) return {};
    return Status::error(Code::kUnsupported,
                         "model.py is a program, which this server does not run: start it with "
                         "--python on, or --python PATH for another interpreter");
  }
  models::BackendTraits traits() const noexcept override {
    return {.shares_instances = true,
            .loads_in_parallel = true,
            .batches_in_flight = true,
            .runs_programs = true,
            .reads_graphs = false};
  }

  Result<std::unique_ptr<LoadedModel>> load(const ModelSource& source) override {
    return or_failed(Code::kUnavailable, "loading", source.name,
                     [&]() -> Result<std::unique_ptr<LoadedModel>> { return open(source); });
  }

 private:
  Result<std::unique_ptr<LoadedModel>> open(const ModelSource& source) {
    if (Status status = availability(); !status.ok()) {
      return Status::error(status.code(), "model '%s': %s", source.name.c_str(),
                           status.c_message());
    }
    const models::StatedForm& stated = source.options.stated;
    if (source.file.extension() != ".py" || stated.inputs.empty() || stated.outputs.empty()) {
      return Status::error(
          Code::kUnavailable,
          "model '%s': the backend python serves a model.py whose config.json names "
          "its tensors; wanted \"input\" and \"output\", as "
          R"("input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}])",
          source.name.c_str());
    }
    const uint32_t most_rows = stated.max_batch_size.value_or(0);
    StepSource step{.python = options_, .file = source.file, .metadata = {}, .ring_bytes = 0};
    step.metadata.name = source.name;
    step.metadata.version = source.version;
    step.metadata.platform = "python";
    step.metadata.takes_empty_tensors = true;
    step.metadata.inputs = specs_of(stated.inputs, most_rows > 0);
    step.metadata.outputs = specs_of(stated.outputs, most_rows > 0);
    add_tensors_of_sequences(source.options.sequences, most_rows > 0, step.metadata);
    step.ring_bytes = ring_bytes_for(step.metadata, most_rows);
    Result<std::unique_ptr<StepLink>> link = StepLink::open(std::move(step));
    if (!link.ok()) return link.status();
    return std::unique_ptr<LoadedModel>(std::make_unique<StepModel>(std::move(*link)));
  }

  const PythonOptions options_;
};

}  // namespace
}  // namespace python

std::unique_ptr<models::Backend> make_python(PythonOptions options) {
  return std::make_unique<python::PythonBackend>(std::move(options));
}

}  // namespace lumen::backends
