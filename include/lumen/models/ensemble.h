// Ensembles: models whose requests run other models, each on the tensors that those before it have
// made. StatedEnsemble is the text of a configuration; EnsemblePlan is that text with the models
// found, checked and put in order.
//
//   {"ensemble": {"steps": [
//      {"model": "scale",    "inputs": {"x": "pixels"}, "outputs": {"y": "scaled"}},
//      {"model": "classify", "inputs": {"data": "scaled"}}]}}
//
// A step's keys are names of its model's tensors, and their values are names of the ensemble's.
// Threads: any, once made. Memory: the heap, at load. Errors: a Status that names the step, the
// tensor, both sides and the fix.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/metadata.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::models {

class Model;

struct StatedStep {
  // Names of tensors of the step's model, and the ensemble's name of each.
  using Map = std::map<std::string, std::string, std::less<>>;

  std::string model;
  std::string version;  // empty: the highest that is ready
  Map inputs;           // a name that is missing here stands for itself
  Map outputs;
  bool has_all_outputs = false;  // those that are missing in `outputs` stand for themselves, too
};

struct StatedEnsemble {
  std::vector<StatedStep> steps;  // empty: the model is no ensemble
  // Names of the ensemble's outputs, in order; empty: all tensors that steps make and none reads.
  std::vector<std::string> outputs;
  // The same of inputs; empty: all tensors that steps read and none makes.
  std::vector<std::string> inputs;

  [[nodiscard]] bool has_step_of(std::string_view model) const noexcept {
    return std::ranges::find(steps, model, &StatedStep::model) != steps.end();
  }
};

struct EnsemblePlan {
  // A request keeps the steps that are done as bits of a word.
  static constexpr size_t kMostSteps = 64;

  struct Step {
    std::shared_ptr<Model> model;
    std::string version;                   // as the configuration has it; empty: the highest
    std::vector<uint16_t> inputs;          // tensors, in the order of the model's inputs
    std::vector<uint16_t> outputs_wanted;  // indices into the model's outputs
    std::vector<uint16_t> outputs;         // tensors, in the order of outputs_wanted
    uint64_t waits_for = 0;                // bits of steps that make its inputs
    bool is_last = false;                  // its outputs are the ensemble's, and no step reads them
    // The sizes of its outputs are known from its inputs: they are fixed, or have as many rows.
    bool has_known_sizes = false;
  };

  std::vector<Step> steps;           // each after those that it waits for
  std::vector<std::string> tensors;  // names; the ensemble's inputs come first, in their order
  std::vector<uint16_t> outputs;     // tensors, in the order of the ensemble's outputs
  std::vector<uint64_t> needs;       // bits of the steps that each output needs, its own among them
};

// nullptr: no such model. `version` empty: the highest that is ready, or the highest.
using FindModel =
    std::function<std::shared_ptr<Model>(std::string_view name, std::string_view version)>;

// Among `models`, which outlive it: sorted by name, then by version.
[[nodiscard]] FindModel find_among(std::span<const std::shared_ptr<Model>> models);

struct PlannedEnsemble {
  EnsemblePlan plan;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
};

// Errors: a step's model is not served, or is an ensemble; a tensor that no step makes, or two do;
// a circle; types or shapes that do not fit.
[[nodiscard]] Result<PlannedEnsemble> plan_ensemble(const StatedEnsemble& stated,
                                                    const FindModel& find);

}  // namespace lumen::models
