// See the header.
#include "models/ensemble_config.h"

#include <lumen/base/limits.h>

#include <nlohmann/json.hpp>

#include "models/json_text.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace lumen::models {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kEnsembleExample =
    R"({"steps": [{"model": "a", "inputs": {"x": "pixels"}, "outputs": {"y": "label"}}]})";
constexpr std::array<std::string_view, 2> kEnsembleKeys = {"steps", "outputs"};
constexpr std::array<std::string_view, 4> kStepKeys = {"model", "version", "inputs", "outputs"};
constexpr std::array<std::string_view, 5> kTritonStepKeys = {
    "model_name", "model_version", "input_map", "output_map", "model_namespace"};
// Keys that say something about an ensemble itself.
constexpr std::array<std::string_view, 15> kKeysOfEnsemble = {"ensemble",
                                                              "ensemble_scheduling",
                                                              "response_cache",
                                                              "versions",
                                                              "labels",
                                                              "name",
                                                              "platform",
                                                              "backend",
                                                              "version_policy",
                                                              "max_batch_size",
                                                              "input",
                                                              "output",
                                                              "model_transaction_policy",
                                                              "parameters",
                                                              "dynamic_batching"};

bool is_name(const Json& value) {
  const auto* const text = value.get_ptr<const std::string*>();
  return text != nullptr && !text->empty() && text->size() <= limits::kMaxNameBytes;
}

std::string read_map(const std::string& path, const Json& value, StatedStep::Map& map) {
  if (!value.is_object() || value.size() > limits::kMaxTensors ||
      !std::ranges::all_of(value, is_name)) {
    return got_wanted(path, value,
                      "names of tensors of the model, each with the ensemble's name of it, as "
                      "{\"x\": \"pixels\"}");
  }
  map = value.get<StatedStep::Map>();
  return {};
}

// Of JSON, or as protobuf writes 64-bit integers; empty: the highest. nullopt: it is none.
std::optional<std::string> version_of(const Json& value) {
  if (value.is_null()) return "";
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text == "-1" || text == "0") return "";
  const bool is_number = !text.empty() && text.size() <= 18 && text.front() != '0' &&
                         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  return is_number ? std::optional(text) : std::nullopt;
}

// The names of a step's keys in one of the two forms.
struct StepForm {
  std::span<const std::string_view> keys;  // model, version, inputs, outputs, others
  bool has_all_outputs;
};

std::string read_step(const std::string& path, const Json& value, const StepForm& form,
                      StatedStep& step) {
  if (!value.is_object()) return got_wanted(path, value, "an object, as {\"model\": \"a\"}");
  const auto path_of = [&](std::string_view key) {
    std::string whole = path;
    return whole.append(1, '.').append(key);
  };
  for (const auto& [key, one] : value.items()) {
    const auto found = std::ranges::find(form.keys, std::string_view(key));
    const auto number = found - form.keys.begin();
    std::string problem;
    if (number == 0) {
      if (!is_name(one)) return got_wanted(path_of(key), one, "the name of a model");
      step.model = one.get<std::string>();
    } else if (number == 1) {
      const auto version = version_of(one);
      if (!version) return got_wanted(path_of(key), one, "a version's number, or -1: the highest");
      step.version = *version;
    } else if (number == 2) {
      problem = read_map(path_of(key), one, step.inputs);
    } else if (number == 3) {
      problem = read_map(path_of(key), one, step.outputs);
    } else if (found == form.keys.end()) {
      problem = unknown_key(path, key, form.keys);
    } else if (!is_default(one)) {
      problem = got_wanted(path_of(key), one, "none: models have no namespaces here");
    }
    if (!problem.empty()) return problem;
  }
  if (step.model.empty()) {
    return got_wanted(path_of(form.keys[0]), Json(), "the name of a model");
  }
  step.has_all_outputs = form.has_all_outputs && !value.contains(form.keys[3]);
  return {};
}

std::string read_steps(const std::string& path, const Json& value, const StepForm& form,
                       StatedEnsemble& ensemble) {
  if (!value.is_array() || value.empty() || value.size() > EnsemblePlan::kMostSteps) {
    return got_wanted(path, value,
                      "a list of 1 to " + std::to_string(EnsemblePlan::kMostSteps) + " steps");
  }
  for (const Json& one : value) {
    std::string at = path;
    at.append("[").append(std::to_string(ensemble.steps.size())).append("]");
    std::string problem = read_step(at, one, form, ensemble.steps.emplace_back());
    if (!problem.empty()) return problem;
  }
  return {};
}

}  // namespace

std::string read_ensemble(const Json& value, StatedEnsemble& ensemble) {
  if (!value.is_object() || !value.contains("steps")) {
    return got_wanted("ensemble", value, "an object, as " + std::string(kEnsembleExample));
  }
  for (const auto& [key, one] : value.items()) {
    if (key == kEnsembleKeys[0]) {
      std::string problem = read_steps("ensemble.steps", one, {kStepKeys, true}, ensemble);
      if (!problem.empty()) return problem;
    } else if (key == kEnsembleKeys[1]) {
      if (!one.is_array() || one.empty() || one.size() > limits::kMaxTensors ||
          !std::ranges::all_of(one, is_name)) {
        return got_wanted("ensemble.outputs", one, "a list of names of tensors, as [\"label\"]");
      }
      ensemble.outputs = one.get<std::vector<std::string>>();
    } else {
      return unknown_key("ensemble", key, kEnsembleKeys);
    }
  }
  return {};
}

std::string read_ensemble_scheduling(const Json& value, StatedEnsemble& ensemble) {
  if (!value.is_object() || !value.contains("step") || value.size() != 1) {
    return got_wanted("ensemble_scheduling", value,
                      R"(an object, as {"step": [{"model_name": "a", "model_version": -1, )"
                      R"("input_map": {"x": "pixels"}, "output_map": {"y": "label"}}]})");
  }
  return read_steps("ensemble_scheduling.step", value["step"], {kTritonStepKeys, false}, ensemble);
}

std::string check_keys_of_ensemble(const Json& document) {
  if (document.contains("ensemble") && document.contains("ensemble_scheduling")) {
    return "keys \"ensemble\" and \"ensemble_scheduling\" are both given; keep one";
  }
  for (const auto& [key, value] : document.items()) {
    const bool is_known = std::ranges::find(kKeysOfEnsemble, key) != kKeysOfEnsemble.end();
    if (is_known || is_default(value)) continue;
    return "key \"" + key + "\": an ensemble runs other models and has none of it; give it to " +
           "the models of its steps";
  }
  return {};
}

}  // namespace lumen::models
