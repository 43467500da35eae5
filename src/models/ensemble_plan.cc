// See the header. Control plane.
#include <lumen/models/ensemble.h>

#include <lumen/base/limits.h>
#include <lumen/models/model_repository.h>
#include <lumen/tensor/type_text.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace lumen::models {
namespace {

Status fault(const std::string& text) {
  return Status::error(Code::kUnavailable, "%s", text.c_str());
}

std::string name_of(const StatedStep& step, size_t number) {
  return "step " + std::to_string(number) + " (model '" + step.model + "')";
}

std::string text_of(const TensorSpec& spec) {
  return spec.has_rank ? type_text(spec.type, spec.shape)
                       : std::string(element_type_name(spec.type)) + " of any shape";
}

std::string names_of(const std::vector<TensorSpec>& specs) {
  std::string names;
  for (const TensorSpec& spec : specs) names.append(names.empty() ? "" : ", ").append(spec.name);
  return names;
}

// A shape that both accept; nullopt: there is none.
std::optional<Shape> meet(const Shape& one, const Shape& other) {
  if (one.rank() != other.rank()) return std::nullopt;
  Shape both;
  for (size_t axis = 0; axis < one.rank(); ++axis) {
    const bool is_free = one[axis] == Shape::kDynamic;
    if (!is_free && other[axis] != Shape::kDynamic && one[axis] != other[axis]) return std::nullopt;
    if (!both.append(is_free ? other[axis] : one[axis])) return std::nullopt;
  }
  return both;
}

// Tensors are numbered in 16 bits.
constexpr size_t kMostTensors = UINT16_MAX;

// A tensor of the ensemble while it is planned.
struct Tensor {
  static constexpr size_t kNoStep = SIZE_MAX;
  size_t made_by = kNoStep;
  TensorSpec spec{};                 // as it is made; of an input as all its readers take it
  std::vector<size_t> read_by = {};  // steps
  bool is_stated = false;            // an input that the configuration names
  uint16_t number = 0;               // in the plan
};

class Planner {
 public:
  Planner(const StatedEnsemble& stated, const FindModel& find) : stated_(stated), find_(find) {}

  Result<PlannedEnsemble> plan() {
    LUMEN_RETURN_IF_ERROR(find_models());
    LUMEN_RETURN_IF_ERROR(add_outputs_of_steps());
    LUMEN_RETURN_IF_ERROR(add_inputs_of_steps());
    if (tensors_.size() > kMostTensors) {
      return fault("its steps have " + std::to_string(tensors_.size()) +
                   " tensors together; at most " + std::to_string(kMostTensors) +
                   "; name the outputs that are of use in \"outputs\"");
    }
    LUMEN_RETURN_IF_ERROR(choose_inputs());
    LUMEN_RETURN_IF_ERROR(choose_outputs());
    LUMEN_RETURN_IF_ERROR(put_in_order());
    make_steps();
    return std::move(made_);
  }

 private:
  Status find_models() {
    for (size_t i = 0; i < stated_.steps.size(); ++i) {
      const StatedStep& step = stated_.steps[i];
      std::shared_ptr<Model> model = find_(step.model, step.version);
      const std::string version = step.version.empty() ? "" : " version '" + step.version + "'";
      if (model == nullptr) {
        return fault(name_of(step, i) + ": no model of that name" +
                     (version.empty() ? "" : " has" + version + " and") +
                     " is served; load it, or correct the name");
      }
      if (model->state() != ModelState::kReady) {
        return fault(name_of(step, i) + " is unavailable: " + model->reason());
      }
      if (model->ensemble() != nullptr) {
        return fault(name_of(step, i) + " is an ensemble itself; put its steps here in its place");
      }
      if (model->metadata().sequences.state_bytes > 0) {
        return fault(name_of(step, i) +
                     " keeps states of sequences (\"sequences\" in its config.json), which a step "
                     "of an ensemble can't do; have clients call it, or take the key out");
      }
      models_.push_back(std::move(model));
    }
    return {};
  }

  // A name in a step's map that its model does not have.
  static Status check_names(const StatedStep& step, size_t number, std::string_view side,
                            const StatedStep::Map& map, const std::vector<TensorSpec>& specs) {
    for (const auto& [name, tensor] : map) {
      if (std::ranges::find(specs, name, &TensorSpec::name) != specs.end()) continue;
      return fault(name_of(step, number) + " names " + std::string(side) + " '" + name +
                   "', which the model does not have; it has: " + names_of(specs));
    }
    return {};
  }

  Status add_outputs_of_steps() {
    for (size_t i = 0; i < models_.size(); ++i) {
      const StatedStep& step = stated_.steps[i];
      const std::vector<TensorSpec>& specs = models_[i]->metadata().outputs;
      LUMEN_RETURN_IF_ERROR(check_names(step, i, "output", step.outputs, specs));
      for (const TensorSpec& spec : specs) {
        const auto mapped = step.outputs.find(spec.name);
        if (mapped == step.outputs.end() && !step.has_all_outputs) continue;
        const std::string& name = mapped == step.outputs.end() ? spec.name : mapped->second;
        Tensor& tensor = tensors_[name];
        if (tensor.made_by != Tensor::kNoStep) {
          return fault("tensor '" + name + "' is made by " +
                       name_of(stated_.steps[tensor.made_by], tensor.made_by) + " and by " +
                       name_of(step, i) + "; give one of them another name in \"outputs\"");
        }
        tensor.made_by = i;
        tensor.spec = spec;
        tensor.spec.name = name;
      }
    }
    return {};
  }

  Status add_inputs_of_steps() {
    for (size_t i = 0; i < models_.size(); ++i) {
      const StatedStep& step = stated_.steps[i];
      const std::vector<TensorSpec>& specs = models_[i]->metadata().inputs;
      LUMEN_RETURN_IF_ERROR(check_names(step, i, "input", step.inputs, specs));
      for (const TensorSpec& spec : specs) {
        const auto mapped = step.inputs.find(spec.name);
        const std::string& name = mapped == step.inputs.end() ? spec.name : mapped->second;
        LUMEN_RETURN_IF_ERROR(add_reader(name, i, spec));
      }
    }
    return {};
  }

  Status add_reader(const std::string& name, size_t step, const TensorSpec& spec) {
    Tensor& tensor = tensors_[name];
    const bool is_input = tensor.made_by == Tensor::kNoStep;
    if (is_input && tensor.read_by.empty()) {
      tensor.spec = spec;
      tensor.spec.name = name;
      inputs_.push_back(name);
    }
    const std::optional<Shape> both =
        tensor.spec.has_rank ? meet(tensor.spec.shape, spec.shape) : spec.shape;
    if (tensor.spec.type != spec.type || !both) {
      const std::string from =
          is_input ? "as the step before takes it"
                   : "as " + name_of(stated_.steps[tensor.made_by], tensor.made_by) + " makes it";
      return fault(name_of(stated_.steps[step], step) + ": input '" + spec.name + "' is " +
                   text_of(spec) + ", and tensor '" + name + "' is " + text_of(tensor.spec) + ", " +
                   from + "; no tensor is both");
    }
    if (is_input) tensor.spec.shape = *both;
    tensor.read_by.push_back(step);
    return {};
  }

  Status choose_inputs() {
    for (const std::string& name : stated_.inputs) {
      const auto found = tensors_.find(name);
      if (found == tensors_.end() || found->second.read_by.empty()) {
        return fault("input '" + name + "' is read by no step; take it out, or name it in a step");
      }
      if (found->second.made_by != Tensor::kNoStep) {
        return fault("input '" + name + "' is made by " +
                     name_of(stated_.steps[found->second.made_by], found->second.made_by) +
                     ", too; give one of them another name");
      }
      found->second.is_stated = true;
    }
    for (const std::string& name : inputs_) {
      const Tensor& tensor = tensors_.at(name);
      if (stated_.inputs.empty() || tensor.is_stated) continue;
      return fault("tensor '" + name + "' is read by " +
                   name_of(stated_.steps[tensor.read_by.front()], tensor.read_by.front()) +
                   ", but no step makes it, and \"input\" does not name it");
    }
    for (const std::string& name : stated_.inputs.empty() ? inputs_ : stated_.inputs) {
      add_to_plan(name);
      made_.inputs.push_back(tensors_.at(name).spec);
    }
    if (!made_.inputs.empty()) return {};
    return fault("each tensor that a step reads is made by a step; an ensemble has an input");
  }

  Status choose_outputs() {
    std::vector<std::string> names = stated_.outputs;
    if (names.empty()) {
      for (size_t i = 0; i < models_.size(); ++i) {
        for (const auto& [name, tensor] : tensors_) {
          if (tensor.made_by == i && tensor.read_by.empty()) names.push_back(name);
        }
      }
    }
    if (names.empty()) {
      return fault(
          "each tensor that a step makes is read by a step: name the ensemble's outputs "
          "in \"outputs\"");
    }
    for (const std::string& name : names) {
      const auto found = tensors_.find(name);
      if (found == tensors_.end() || found->second.made_by == Tensor::kNoStep) {
        return fault("output '" + name + "' is made by no step; correct the name");
      }
      if (std::ranges::count(names, name) > 1) return fault("output '" + name + "' is named twice");
      made_.outputs.push_back(found->second.spec);
    }
    outputs_ = std::move(names);
    return {};
  }

  // Kahn's algorithm, by the steps' numbers.
  Status put_in_order() {
    std::vector<bool> is_done(models_.size());
    while (order_.size() < models_.size()) {
      const size_t before = order_.size();
      for (size_t i = 0; i < models_.size(); ++i) {
        const bool is_ready = !is_done[i] && std::ranges::all_of(makers_of(i), [&](size_t maker) {
          return bool{is_done[maker]};
        });
        if (!is_ready) continue;
        is_done[i] = true;
        order_.push_back(i);
      }
      if (order_.size() > before) continue;
      std::string circle;
      for (size_t i = 0; i < models_.size(); ++i) {
        if (is_done[i]) continue;
        circle.append(circle.empty() ? "" : ", ").append(name_of(stated_.steps[i], i));
      }
      return fault("a circle: each of these steps waits for another of them: " + circle);
    }
    return {};
  }

  // Steps that make its inputs; one may stand there twice.
  [[nodiscard]] std::vector<size_t> makers_of(size_t step) const {
    std::vector<size_t> makers;
    for (const auto& [name, tensor] : tensors_) {
      const bool is_read = std::ranges::find(tensor.read_by, step) != tensor.read_by.end();
      if (is_read && tensor.made_by != Tensor::kNoStep) makers.push_back(tensor.made_by);
    }
    return makers;
  }

  void add_to_plan(const std::string& name) {
    tensors_.at(name).number = static_cast<uint16_t>(made_.plan.tensors.size());
    made_.plan.tensors.push_back(name);
  }

  void make_steps() {
    EnsemblePlan& plan = made_.plan;
    for (auto& [name, tensor] : tensors_) {
      if (tensor.made_by != Tensor::kNoStep) add_to_plan(name);
    }
    std::vector<uint64_t> bits(models_.size());   // by the number in the configuration
    std::vector<uint64_t> needs(models_.size());  // the step itself, and all before it
    for (const size_t number : order_) {
      bits[number] = uint64_t{1} << plan.steps.size();
      EnsemblePlan::Step& step = plan.steps.emplace_back(make_step(number));
      needs[number] = bits[number];
      for (const size_t maker : makers_of(number)) {
        step.waits_for |= bits[maker];
        needs[number] |= needs[maker];
      }
    }
    for (const std::string& name : outputs_) {
      const Tensor& tensor = tensors_.at(name);
      plan.outputs.push_back(tensor.number);
      plan.needs.push_back(needs[tensor.made_by]);
    }
  }

  [[nodiscard]] EnsemblePlan::Step make_step(size_t number) const {
    const StatedStep& stated = stated_.steps[number];
    const ModelMetadata& metadata = models_[number]->metadata();
    EnsemblePlan::Step step;
    step.model = models_[number];
    step.version = stated.version;
    const auto tensor_of = [&](const StatedStep::Map& map, const std::string& name) {
      const auto mapped = map.find(name);
      return tensors_.find(mapped == map.end() ? name : mapped->second);
    };
    for (const TensorSpec& spec : metadata.inputs) {
      step.inputs.push_back(tensor_of(stated.inputs, spec.name)->second.number);
    }
    step.is_last = true;
    step.has_known_sizes = true;
    const bool has_rows = has_batch_axis(metadata) && models_[number]->why_not_packed().empty();
    for (size_t i = 0; i < metadata.outputs.size(); ++i) {
      const TensorSpec& spec = metadata.outputs[i];
      if (!stated.has_all_outputs && !stated.outputs.contains(spec.name)) continue;
      const auto found = tensor_of(stated.outputs, spec.name);
      const bool is_output = std::ranges::find(outputs_, found->first) != outputs_.end();
      const bool is_read = !found->second.read_by.empty();
      if (!is_output && !is_read) continue;
      step.outputs_wanted.push_back(static_cast<uint16_t>(i));
      step.outputs.push_back(found->second.number);
      if (is_read) step.is_last = false;
      Shape row = spec.shape;
      if (has_rows) row[0] = 1;
      const bool is_known = spec.has_rank && element_size(spec.type) != 0 && row.is_static();
      if (!is_known) step.has_known_sizes = false;
    }
    return step;
  }

  const StatedEnsemble& stated_;
  const FindModel& find_;
  std::vector<std::shared_ptr<Model>> models_;  // of the steps
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::vector<std::string> inputs_;   // tensors that no step makes, in the order of the steps
  std::vector<std::string> outputs_;  // of the ensemble
  std::vector<size_t> order_;
  PlannedEnsemble made_;
};

}  // namespace

Result<PlannedEnsemble> plan_ensemble(const StatedEnsemble& stated, const FindModel& find) {
  return Planner(stated, find).plan();
}

}  // namespace lumen::models
