// The OpenVINO backend, and the only translation unit that includes OpenVINO (its headers are slow
// to compile). Threads: load() and create_instance() by several; an Instance belongs to one worker,
// and the model runs on that very thread. Memory: OpenVINO allocates 4 times a call of a small
// model, more when tensors are bound anew. Errors: every exception ends here and becomes a Status.
#include <lumen/backends/openvino.h>

#include <lumen/base/clock.h>
#include <lumen/base/limits.h>
#include <lumen/models/compiled_cache.h>
#include <lumen/models/validate.h>
#include <lumen/onnx/model_file.h>

#include "backends/openvino/compiler.h"
#include "backends/openvino/memory_policy.h"
#include "backends/openvino/operators.h"
#include "backends/openvino/pictures.h"
#include "backends/openvino/plan.h"
#include "backends/openvino/shapes.h"

#include <openvino/frontend/manager.hpp>
#include <openvino/op/result.hpp>
#include <openvino/op/string_tensor_pack.hpp>
#include <openvino/op/string_tensor_unpack.hpp>
#include <openvino/openvino.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lumen::backends::openvino {
namespace {

constexpr int kWarmupRuns = 3;
// In the identities of compiled models. Raised where a model is changed before it is compiled, or
// compiled by other properties: the files of earlier versions are not read then.
constexpr const char* kForm = " form 1";
// For the shapes that no other form takes.
constexpr const char* kAnyShape = "any shape";

// OpenVINO 2026.4 frees the strings of an output twice where it is an input passed on (its own
// Python API crashes on ONNX Identity of strings). Unpacked and packed again they have memory of
// their own.
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

class OpenVinoInstance final : public Instance {
 public:
  // Compiles the model for so many rows once more (0: as it is); may throw.
  using CompileAgain = std::function<ov::CompiledModel(uint32_t rows)>;

  OpenVinoInstance(const ModelMetadata& metadata, const std::vector<Port>& inputs,
                   const std::vector<Port>& outputs, CompileAgain compile_again)
      : metadata_(metadata),
        inputs_(inputs),
        outputs_(outputs),
        compile_again_(std::move(compile_again)) {}

  // `rows` 0: the model's only shape.
  void add_static(uint32_t rows, ov::CompiledModel compiled) {
    variants_.push_back({.rows = rows, .is_dynamic = false, .plan = nullptr});
    make_plan(variants_.back(), std::move(compiled));
  }
  // Last: it takes the shapes that no other does. `model` is the model that was compiled.
  void add_dynamic(ov::CompiledModel compiled, const ov::Model& model) {
    shapes_.emplace(model);
    variants_.push_back({.rows = 0, .is_dynamic = true, .plan = nullptr});
    make_plan(variants_.back(), std::move(compiled));
  }

  // Throws the model's exceptions: one that fails on zeros of its own shape is broken. Free shapes
  // are not guessed.
  void warm_up() {
    for (Variant& variant : variants_) warm_up(variant);
  }

  StartOutcome start(InferRequest& request, void (*)(InferRequest&) noexcept) noexcept override {
    running_ = nullptr;
    try {
      request.status = run(request);
    } catch (const std::exception& error) {
      request.status = after_failure(request, error.what());
    } catch (...) {
      request.status = after_failure(request, "unknown exception");
    }
    return StartOutcome::kDone;
  }

  const void* last_bound_input(size_t index) const noexcept override {
    return last_ == nullptr ? nullptr : last_->bound_input(index);
  }
  uint64_t times_rebuilt() const noexcept override { return times_rebuilt_; }

 private:
  // The model as compiled for some shapes.
  struct Variant {
    uint32_t rows;  // 0: any, or the model's only shape
    bool is_dynamic;
    std::unique_ptr<Plan> plan;
    bool has_failed = false;  // a run of it threw: it is made anew before the next
  };

  void make_plan(Variant& variant, ov::CompiledModel compiled) {
    if (variant.is_dynamic) {
      variant.plan = std::make_unique<DynamicPlan>(std::move(compiled), inputs_, outputs_);
    } else {
      variant.plan = std::make_unique<StaticPlan>(std::move(compiled), inputs_, outputs_);
    }
  }

  // First calls allocate memory that later ones use again.
  static void warm_up(Variant& variant) {
    variant.plan->warm_up();
    for (int i = 0; !variant.is_dynamic && i < kWarmupRuns; ++i) variant.plan->infer();
  }

  Status run(InferRequest& request) {
    const size_t wanted =
        request.outputs_wanted.empty() ? outputs_.size() : request.outputs_wanted.size();
    const std::span<TensorView> outputs = request.list_memory().allocate_array<TensorView>(wanted);
    if (outputs.size() != wanted) return no_room("(list)", wanted * sizeof(TensorView));
    LUMEN_RETURN_IF_ERROR(check_bounds(inputs_, request.inputs));
    Variant& variant = choose(request);
    if (variant.is_dynamic && !shapes_->accepts(request.inputs)) {
      return shapes_refused(metadata_, request.inputs, false);
    }
    if (variant.has_failed) rebuild(variant);
    running_ = &variant;
    last_ = variant.plan.get();
    Plan& plan = *variant.plan;
    LUMEN_RETURN_IF_ERROR(plan.bind(request, outputs));
    request.times.preprocessed_ns = now_ns();
    plan.infer();
    request.times.inferred_ns = now_ns();
    LUMEN_RETURN_IF_ERROR(plan.collect(request, outputs));
    request.outputs = outputs;
    request.times.postprocessed_ns = now_ns();
    return {};
  }

  // See ShapeCheck for the state that a failed run leaves behind. A new infer request would not
  // help: the state is in the compiled model. The old one goes first, so that no two are in memory
  // at once.
  void rebuild(Variant& variant) {
    last_ = nullptr;
    variant.plan.reset();
    make_plan(variant, compile_again_(variant.rows));
    warm_up(variant);
    release_bound_mappings();  // as after each compile: failures must not add up to mappings
    variant.has_failed = false;
    ++times_rebuilt_;
  }

  // Marks the variant that ran, to be made anew by the next request that needs it: so the sender of
  // this one is answered first, and other models' requests go before. Tells a refusal that hangs on
  // the numbers in an input (a shape to reshape to), which is the client's, from a fault of the
  // run.
  Status after_failure(const InferRequest& request, const char* what) noexcept {
    if (running_ == nullptr) {
      return failed(Code::kInternal, "compiling", metadata_.name, what);
    }
    running_->has_failed = true;
    last_ = nullptr;
    if (running_->is_dynamic && refuses_values(request)) {
      return shapes_refused(metadata_, request.inputs, true);
    }
    return failed(Code::kInternal, "running", metadata_.name, what);
  }
  bool refuses_values(const InferRequest& request) noexcept {
    try {
      return !shapes_->accepts_values(request.inputs);
    } catch (const std::exception&) {
      return false;  // no memory for the question: it stays a fault
    }
  }

  Variant& choose(const InferRequest& request) noexcept {
    for (Variant& variant : variants_) {
      const auto has_rows = [rows = int64_t{variant.rows}](const TensorView& input) {
        return input.shape[0] == rows;
      };
      if (variant.rows == 0 || std::ranges::all_of(request.inputs, has_rows)) return variant;
    }
    return variants_.back();
  }

  const ModelMetadata& metadata_;
  const std::vector<Port>& inputs_;
  const std::vector<Port>& outputs_;
  const CompileAgain compile_again_;
  std::vector<Variant> variants_;
  std::optional<ShapeCheck> shapes_;  // with a dynamic variant
  Variant* running_ = nullptr;        // by the last start()
  const Plan* last_ = nullptr;
  uint64_t times_rebuilt_ = 0;
};

class OpenVinoModel final : public LoadedModel {
 public:
  OpenVinoModel(Compiler& compiler, std::shared_ptr<ov::Model> model, const ModelSource& source,
                std::vector<Port> inputs, std::vector<Port> outputs)
      : compiler_(compiler),
        model_(std::move(model)),
        options_(source.options),
        compiled_(is_as_named(source) ? source.compiled : nullptr),
        identity_(identity_of(source)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)) {
    metadata_.name = source.name;
    metadata_.version = source.version;
    metadata_.platform = "openvino";
    for (const Port& port : inputs_) metadata_.inputs.push_back(port.spec);
    for (const Port& port : outputs_) metadata_.outputs.push_back(port.spec);
    metadata_.ties = find_ties(*model_);
  }

  const ModelMetadata& metadata() const noexcept override { return metadata_; }

  Result<std::unique_ptr<Instance>> create_instance(
      std::span<const uint32_t> batch_sizes) override {
    return or_failed(
        Code::kInternal, "compiling", metadata_.name, [&]() -> Result<std::unique_ptr<Instance>> {
          auto instance = std::make_unique<OpenVinoInstance>(
              metadata_, inputs_, outputs_, [this](uint32_t rows) { return compile_again(rows); });
          compile_into(*instance, clone(), batch_sizes);
          instance->warm_up();
          release_bound_mappings();
          return std::unique_ptr<Instance>(std::move(instance));
        });
  }

 private:
  // Cloning may fill in parts that the original computes late (names), so it is done one at a time;
  // the weights are shared.
  std::shared_ptr<ov::Model> clone() {
    const std::lock_guard lock(cloning_);
    return model_->clone();
  }

  void compile_into(OpenVinoInstance& instance, const std::shared_ptr<ov::Model>& model,
                    std::span<const uint32_t> batch_sizes) {
    const auto is_string = [](const Port& port) { return port.spec.type == ElementType::kBytes; };
    const bool strings =
        std::ranges::any_of(inputs_, is_string) || std::ranges::any_of(outputs_, is_string);
    if (!strings && !model->is_dynamic()) {
      instance.add_static(0, compile_or_read("static", [&] { return compile(model); }));
      return;
    }
    if (!strings && only_rows_are_free()) {
      std::set<uint32_t> sizes(options_.batch_sizes.begin(), options_.batch_sizes.end());
      sizes.insert(batch_sizes.begin(), batch_sizes.end());
      for (const uint32_t rows : sizes) {
        if (auto compiled = compile_or_read_rows(*model, rows))
          instance.add_static(rows, std::move(*compiled));
      }
    }
    instance.add_dynamic(compile_or_read(kAnyShape, [&] { return compile(model); }), *model);
  }

  // For an instance whose run failed, on its worker's thread, perhaps on several at once.
  ov::CompiledModel compile_again(uint32_t rows) {
    const std::shared_ptr<ov::Model> model = clone();
    if (rows == 0) return compile(model);
    std::optional<ov::CompiledModel> compiled = compile_rows(*model, rows);
    if (!compiled) throw std::runtime_error("it was compiled for these rows before");
    return std::move(*compiled);
  }

  bool only_rows_are_free() const noexcept {
    return std::ranges::all_of(inputs_, [](const Port& port) {
      const Shape& shape = port.spec.shape;
      const auto rest = shape.dimensions().subspan(std::min<size_t>(shape.rank(), 1));
      return shape.rank() > 0 && shape[0] == Shape::kDynamic &&
             std::ranges::none_of(rest, [](int64_t d) { return d < 0; });
    });
  }

  // The file has been read by now. One that was replaced meanwhile would be kept under the name of
  // the other content, and answer for it once that is back.
  static bool is_as_named(const ModelSource& source) {
    return source.compiled != nullptr && models::content_of_model(source.file) == source.content;
  }

  static std::string identity_of(const ModelSource& source) {
    std::string identity = source.compiled_identity;
    identity += kForm;
    identity += ' ';
    identity += ov::get_openvino_version().buildNumber;
    identity += " precision " + std::to_string(static_cast<int>(source.options.precision));
    identity += " shape_cache " + std::to_string(source.options.shape_cache);
    identity += models::identity_of(source.options.pictures);
    return identity;
  }

  // `shape`: the part of the identity that differs between the compiled forms of the model.
  template <typename Compile>
  ov::CompiledModel compile_or_read(const std::string& shape, Compile&& compile_now) {
    if (compiled_ == nullptr) return compile_now();
    const std::string identity = identity_ + " " + shape;
    const bool is_dynamic = shape == kAnyShape && model_->is_dynamic();
    if (auto found = read_compiled(identity, is_dynamic)) return *found;
    ov::CompiledModel compiled = compile_now();
    std::ostringstream stream;
    try {
      compiled.export_model(stream);
    } catch (const ov::Exception&) {
      return compiled;  // of a kind that OpenVINO can't write
    }
    compiled_->put(identity, stream.view());
    return compiled;
  }

  std::optional<ov::CompiledModel> compile_or_read_rows(const ov::Model& model, uint32_t rows) {
    if (compiled_ == nullptr) return compile_rows(model, rows);
    try {
      return compile_or_read("rows " + std::to_string(rows), [&] {
        std::optional<ov::CompiledModel> compiled = compile_rows(model, rows);
        if (!compiled) throw NoSuchRows();
        return *compiled;
      });
    } catch (const NoSuchRows&) {
      return std::nullopt;
    }
  }
  struct NoSuchRows {};

  std::optional<ov::CompiledModel> read_compiled(const std::string& identity, bool is_dynamic) {
    std::optional<std::string> bytes = compiled_->find(identity);
    if (!bytes) return std::nullopt;
    try {
      std::istringstream stream(std::move(*bytes));
      return compiler_.import(stream, is_dynamic ? dynamic_properties() : properties());
    } catch (const std::exception&) {
      compiled_->remove(identity);
      return std::nullopt;
    }
  }

  // nullopt: the model can't have that many rows (its first axis is no batch after all, or the
  // outputs stay dynamic); the dynamic compile then runs them.
  std::optional<ov::CompiledModel> compile_rows(const ov::Model& model, uint32_t rows) {
    try {
      const std::shared_ptr<ov::Model> fixed = model.clone();
      std::map<size_t, ov::PartialShape> shapes;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        ov::PartialShape shape = model.input(i).get_partial_shape();
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

  // Of all compiled forms.
  ov::AnyMap properties() const {
    ov::AnyMap properties = {
        ov::inference_num_threads(1),
        ov::num_streams(1),
        // Not LATENCY: with it OpenVINO binds the weights' pages to node 0 (mbind), wherever the
        // instance's worker sits, and leaves those pages as mappings of their own.
        ov::hint::performance_mode(ov::hint::PerformanceMode::THROUGHPUT),
        // Without its own stream executor OpenVINO runs the model on the calling thread as it is.
        // With it each infer() enters a TBB arena that moves the thread to another CPU and back by
        // two sched_setaffinity calls (2026.4, for any enable_cpu_pinning): 5.2 us a call of a
        // small MLP instead of 1.6, and the worker's pinning is gone.
        {"EXCLUSIVE_ASYNC_REQUESTS", true},
    };
    if (options_.precision == Precision::kF32) {
      properties.insert(ov::hint::inference_precision(ov::element::f32));
    } else if (options_.precision == Precision::kBf16) {
      properties.insert(ov::hint::inference_precision(ov::element::bf16));
    }
    return properties;
  }

  // Of each kind of operation, the kernels that OpenVINO keeps for shapes seen before; 5,000 by
  // default. If no shape is free it keeps only those that the model needs.
  ov::AnyMap dynamic_properties() const {
    ov::AnyMap all = properties();
    all.emplace("CPU_RUNTIME_CACHE_CAPACITY", std::to_string(options_.shape_cache));
    return all;
  }

  ov::CompiledModel compile(const std::shared_ptr<ov::Model>& model) {
    return compiler_.compile(model, model->is_dynamic() ? dynamic_properties() : properties());
  }

  Compiler& compiler_;
  std::shared_ptr<ov::Model> model_;
  std::mutex cloning_;
  ModelOptions options_;
  const std::shared_ptr<models::CompiledCache> compiled_;  // nullptr: none are kept
  const std::string identity_;                             // but for the rows
  std::vector<Port> inputs_;
  std::vector<Port> outputs_;
  ModelMetadata metadata_;
};

struct PortNames {
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
};

// As the file has them; none, where it is no ONNX graph.
PortNames port_names(const ModelSource& source) {
  if (source.graph == nullptr || !source.graph->model().ok()) return {};
  const onnx::Graph& graph = source.graph->model()->graph;
  PortNames names{.inputs = onnx::required_inputs(graph), .outputs = {}};
  for (const onnx::Value& output : graph.outputs) names.outputs.push_back(output.name);
  return names;
}

class OpenVinoBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "openvino"; }
  std::string description() const override {
    const std::string_view build = ov::get_openvino_version().buildNumber;
    return "OpenVINO " + std::string(build.substr(0, build.find('-')));
  }

  // Each instance compiles a clone of its own; OpenVINO's AUTO device does the same.
  BackendTraits traits() const noexcept override {
    return {.has_lasting_costs = true,
            .loads_in_parallel = true,
            .prepares_pictures = true,
            .operators = &kOperators};
  }

  Result<std::unique_ptr<LoadedModel>> load(const ModelSource& source) override {
    return or_failed(
        Code::kUnavailable, "loading", source.name, [&]() -> Result<std::unique_ptr<LoadedModel>> {
          compiler_.open();
          std::shared_ptr<ov::Model> model = read_model(source.file);
          const PortNames names = port_names(source);
          auto inputs = describe_ports(source.name, model->inputs(), "input", names.inputs);
          if (!inputs.ok()) return inputs.status();
          if (!source.options.pictures.empty()) {
            LUMEN_RETURN_IF_ERROR(take_pixels(model, source.options.pictures, *inputs));
            inputs = describe_ports(source.name, model->inputs(), "input", names.inputs);
            if (!inputs.ok()) return inputs.status();
          }
          auto outputs = describe_ports(source.name, model->outputs(), "output", names.outputs);
          if (!outputs.ok()) return outputs.status();
          give_strings_their_own_memory(*model);
          return std::unique_ptr<LoadedModel>(std::make_unique<OpenVinoModel>(
              compiler_, std::move(model), source, std::move(*inputs), std::move(*outputs)));
        });
  }

 private:
  // By the file's ending and not, as ov::Core does, by trying every frontend: that would take a
  // broken ONNX file for a TensorFlow text and say so.
  std::shared_ptr<ov::Model> read_model(const std::filesystem::path& file) {
    const auto frontend = frontends_.load_by_framework(file.extension() == ".onnx" ? "onnx" : "ir");
    const auto input = frontend->load(file.string());
    if (input == nullptr) throw std::runtime_error("not a model of the kind its name says");
    return frontend->convert(input);
  }

  Compiler compiler_;
  ov::frontend::FrontEndManager frontends_;
};

}  // namespace

}  // namespace lumen::backends::openvino

namespace lumen::backends {

std::unique_ptr<models::Backend> make_openvino() {
  return std::make_unique<openvino::OpenVinoBackend>();
}

}  // namespace lumen::backends
