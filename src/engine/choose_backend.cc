// See the header.
#include "engine/choose_backend.h"

#include <lumen/base/clock.h>
#include <lumen/engine/engine_config.h>
#include <lumen/engine/load_trials.h>
#include <lumen/memory/request_memory.h>
#include <lumen/onnx/model_file.h>

#include "engine/answer_gap.h"
#include "engine/batch.h"
#include "engine/choice_cache.h"
#include "engine/format_text.h"
#include "engine/operator_check.h"
#include "engine/trial_run.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lumen::engine {
namespace {

// Sizes that calls are measured with: one row, and what batched and inline pack by default.
constexpr uint32_t kPackedRows = limits::kDefaultBatchSize;
constexpr uint32_t kMeasuredRows[] = {1, kPackedRows};
constexpr int kMostRounds = 40;
constexpr int kLeastRounds = 3;
// Rows of the calls that are compared first. A backend may run one row and several by different code:
// OpenVINO 2026.4 answers for one row of some quantised models what is far off, and not for two.
constexpr uint32_t kComparedRows[] = {1, 1, 2};
// Of the output's largest number. Kernels add up in different orders: some 1e-6 for f32; a wrong operator
// is off by orders of magnitude. "auto" precision may compute in bf16, which keeps three digits.
constexpr double kTolerance = 1e-3;
constexpr double kHalfPrecisionTolerance = 5e-2;
// Inputs and outputs. OpenVINO compiles in a time that grows with the square of their number, once for each size of a
// call: minutes for limits::kMaxTensors.
constexpr size_t kMostTensorsCompared = 1024;
constexpr size_t kTrialBytes = size_t{256} << 20;  // virtual until touched

// A backend that has loaded the model.
struct Candidate {
  Backends::Entry* entry;
  std::unique_ptr<LoadedModel> loaded;
  std::unique_ptr<Instance> instance;
  RequestMemory memory;
  TriedBackend* report;  // its entry in the choice
};

std::string microseconds(uint64_t ns) {
  return format_text("%.1f us", static_cast<double>(ns) / 1e3);
}

bool same_interface(const std::vector<TensorSpec>& one, const std::vector<TensorSpec>& other) {
  return std::ranges::equal(one, other, [](const TensorSpec& a, const TensorSpec& b) {
    return a.name == b.name && a.type == b.type && a.shape.rank() == b.shape.rank();
  });
}

bool run(Candidate& on, TrialRun& trial, uint32_t first, uint32_t rows) {
  on.memory.reset(kTrialBytes);
  return trial.run(*on.instance, first, rows, TrialRun::kUsualFreeSize);
}

TrialRun trial_of(Candidate& on) { return {on.loaded->metadata(), nullptr, on.memory}; }

bool have_same_interface(const Candidate& one, const Candidate& other) {
  const ModelMetadata& left = one.loaded->metadata();
  const ModelMetadata& right = other.loaded->metadata();
  return same_interface(left.inputs, right.inputs) && same_interface(left.outputs, right.outputs);
}

// Why one of two backends can't stand for the other; empty: it can.
struct Disagreement {
  std::string text;
  bool is_of_answers = false;  // and not that they could not be compared
};

Disagreement disagreement(Candidate& one, Candidate& other, Precision precision, uint32_t first,
                          uint32_t rows) {
  if (!have_same_interface(one, other)) return {"they name or type its tensors differently"};
  TrialRun left = trial_of(one);
  TrialRun right = trial_of(other);
  const bool left_ran = run(one, left, first, rows);
  const bool right_ran = run(other, right, first, rows);
  if (!left_ran && !right_ran && rows > 1) return {};  // the model takes no such number
  if (!left_ran || !right_ran) return {"no input could be made up that both take"};
  const double tolerance = precision == Precision::kF32 ? kTolerance : kHalfPrecisionTolerance;
  for (size_t i = 0; i < left.outputs().size(); ++i) {
    const Gap gap = gap_between(left.outputs()[i], right.outputs()[i]);
    if (gap.share <= tolerance) continue;
    return {format_text(
                "their answers differ: output '%.100s'%s by %s and %s, %.2g of its largest number",
                one.loaded->metadata().outputs[i].name.c_str(), gap.where.c_str(),
                one.report->name.c_str(), other.report->name.c_str(), gap.share),
            true};
  }
  return {};
}

// One call of each is compared with the reference's; false: it is to serve, and `choice` says why.
bool all_agree(std::vector<Candidate>& candidates, size_t reference, Precision precision,
               uint32_t first, uint32_t rows, BackendChoice& choice) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i == reference) continue;
    const Disagreement found =
        disagreement(candidates[reference], candidates[i], precision, first, rows);
    if (found.text.empty()) continue;
    choice.answers_differ = found.is_of_answers;
    choice.why = "computes as ONNX defines it; " + candidates[i].report->name +
                 " was left out: " + found.text;
    return false;
  }
  return true;
}

// Adds what the fastest call with `rows` rows took to each; false: one of them failed.
bool measure(std::vector<Candidate>& candidates, uint32_t rows, uint64_t until_ns,
             const LoadOptions& options) {
  std::vector<uint64_t> fastest(candidates.size(), UINT64_MAX);
  for (int round = 0; round < kMostRounds; ++round) {
    if (options.is_stopped()) return false;
    if (round >= kLeastRounds && now_ns() > until_ns) break;
    for (size_t i = 0; i < candidates.size(); ++i) {  // one after the other: noise meets both
      TrialRun trial = trial_of(candidates[i]);
      const uint64_t before = now_ns();
      if (!run(candidates[i], trial, 0, rows)) return false;
      if (round > 0) fastest[i] = std::min(fastest[i], now_ns() - before);
    }
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].report->costs.push_back({rows, fastest[i]});
  }
  return true;
}

// By the geometric mean over the sizes that were measured.
double cost_of(const TriedBackend& tried) noexcept {
  double sum = 0;
  for (const SizeCost& cost : tried.costs) sum += std::log(static_cast<double>(cost.ns));
  return std::exp(sum / static_cast<double>(tried.costs.size()));
}

std::string sentence(const TriedBackend& best, const TriedBackend& other) {
  std::string why = "faster";
  for (size_t i = 0; i < best.costs.size(); ++i) {
    why += format_text("%s %u row%s in %s against %s", i == 0 ? ":" : ",", best.costs[i].rows,
                       best.costs[i].rows == 1 ? "" : "s", microseconds(best.costs[i].ns).c_str(),
                       microseconds(other.costs[i].ns).c_str());
  }
  return why.append(" of ").append(other.name);
}

// The one to serve, of those that can; `choice` says on what grounds.
size_t decide(std::vector<Candidate>& candidates, Precision precision, const LoadOptions& options,
              BackendChoice& choice) {
  const uint64_t budget_ns = options.budget_ns;
  const auto is_reference = [](const Candidate& one) {
    return one.entry->backend->traits().is_reference;
  };
  const auto found = std::ranges::find_if(candidates, is_reference);
  const auto reference =
      found == candidates.end() ? size_t{0} : static_cast<size_t>(found - candidates.begin());
  const uint64_t begin = now_ns();
  uint32_t first = 0;
  for (const uint32_t rows : kComparedRows) {
    if (!all_agree(candidates, reference, precision, first++, rows, choice)) return reference;
  }
  const bool has_rows = has_batch_axis(candidates[reference].loaded->metadata());
  // Half of the budget for one row, so that the other size has a share too; it is left out where not
  // even the least of calls would fit.
  if (!measure(candidates, 1, begin + budget_ns / 2, options)) {
    choice.why = "computes as ONNX defines it; a call to measure failed";
    return reference;
  }
  uint64_t least_ns = 0;
  for (const Candidate& one : candidates) {
    least_ns += one.report->costs.front().ns * kPackedRows * kLeastRounds;
  }
  if (has_rows && least_ns <= budget_ns) {
    if (!all_agree(candidates, reference, precision, first, kPackedRows, choice)) return reference;
    // A backend that can't is no worse for it.
    (void)measure(candidates, kPackedRows, begin + budget_ns, options);
  }
  size_t best = 0;
  for (size_t i = 1; i < candidates.size(); ++i) {
    if (cost_of(*candidates[i].report) < cost_of(*candidates[best].report)) best = i;
  }
  size_t other = best == 0 ? 1 : 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const bool is_nearer = cost_of(*candidates[i].report) < cost_of(*candidates[other].report);
    if (i != best && is_nearer) other = i;
  }
  choice.why = sentence(*candidates[best].report, *candidates[other].report);
  return best;
}

constexpr char kNotGiven[] =
    "not given operators by which a request can end the process or read other memory";

// By one of these a request could end the process, so it is not served, even if the configuration names the backend.
Status refused(const Backend& backend, const ModelSource& source,
               const std::vector<std::string>& operators) {
  return Status::error(
      Code::kUnavailable, "model '%s': %s is %s%s: %s", source.name.c_str(),
      std::string(backend.name()).c_str(), kNotGiven,
      backend.traits().is_reference ? "" : " (\"backend\": \"auto\" in config.json may serve them)",
      listed(operators).c_str());
}

// The first time that this backend gets this model on this machine. The error is of a sentence that begins with the
// backend.
Status try_first(const Backend& backend, const ModelSource& source, const LoadOptions& options) {
  if (options.trials == nullptr) return {};
  const ChoiceCache cache(options.cache);
  const std::string key = ChoiceCache::key_of(source, backend.description(), "tried");
  if (cache.find(key)) return {};
  LUMEN_RETURN_IF_ERROR(options.trials->try_in_process(source, backend.name(), options.stop));
  cache.put(key, {.backend = std::string(backend.name()), .why = "its process lived"});
  return {};
}

Result<ChosenBackend> load_with(Backends& backends, std::string_view name,
                                const ModelSource& source, const LoadOptions& options,
                                BackendChoice choice) {
  Result<Backends::Entry*> entry = backends.find(name);
  if (!entry.ok()) return entry.status();
  const Backend& backend = *(*entry)->backend;
  if (!choice.is_remembered) {
    OperatorFindings found = compare_operators(backend, source);
    if (!found.unsafe.empty()) return refused(backend, source, found.unsafe);
    choice.operators_not_known = std::move(found.not_known);
    const Status tried = try_first(backend, source, options);
    if (tried.code() == Code::kCancelled) return tried;
    if (!tried.ok()) {
      return Status::error(tried.code(), "model '%s': %s %s", source.name.c_str(),
                           std::string(backend.name()).c_str(), tried.message().data());
    }
  }
  Result<std::unique_ptr<LoadedModel>> loaded = (*entry)->backend->load(source);
  if (!loaded.ok()) return loaded.status();
  choice.backend = backend.name();
  return ChosenBackend{*entry, std::move(*loaded), std::move(choice)};
}

// Inputs and outputs; 0: not known.
size_t tensors_of(const ModelSource& source) {
  if (source.graph == nullptr || !source.graph->model().ok()) return 0;
  const onnx::Graph& graph = source.graph->model()->graph;
  return graph.inputs.size() + graph.outputs.size();
}

// Says of a backend that "auto" may not give the model to why; empty: it may.
std::string reason_to_leave_out(const Backend& backend, const ModelSource& source) {
  const OperatorFindings found = compare_operators(backend, source);
  if (!found.unsafe.empty()) return std::string("it is ") + kNotGiven + ": " + listed(found.unsafe);
  if (found.not_known.empty() && tensors_of(source) > kMostTensorsCompared &&
      !backend.traits().is_reference) {
    return format_text(
        "\"backend\": \"%s\" in config.json allows it; with %zu inputs and outputs it is not "
        "compared, since compiling may take minutes",
        std::string(backend.name()).c_str(), tensors_of(source));
  }
  if (found.not_known.empty()) return {};
  return "\"backend\": \"" + std::string(backend.name()) +
         "\" in config.json allows it; it is not known to compute as ONNX defines them: " +
         listed(found.not_known);
}

// The reason of each, on one line; that of the reference first, since a Status cuts the end.
Status nobody(const Backends& backends, const ModelSource& source,
              const std::vector<TriedBackend>& tried, Code code) {
  std::string all;
  for (const bool is_reference : {true, false}) {
    for (size_t i = 0; i < tried.size(); ++i) {
      if (backends.entries()[i]->backend->traits().is_reference != is_reference) continue;
      all.append(all.empty() ? "" : "; ").append(tried[i].name).append(": ");
      all.append(tried[i].problem);
    }
  }
  return Status::error(code, "no backend can serve model '%s': %s", source.name.c_str(),
                       all.c_str());
}

// Loads the model with each backend, and makes an instance where there is somebody to compare with.
Result<ChosenBackend> try_all(Backends& backends, const ModelSource& source,
                              const LoadOptions& options) {
  ChosenBackend chosen;
  std::vector<TriedBackend>& tried = chosen.choice.tried;
  std::vector<Candidate> candidates;
  Code code = Code::kUnavailable;
  tried.reserve(backends.entries().size());  // the candidates point into it
  const TriedBackend* left_out = nullptr;
  for (const auto& entry : backends.entries()) {
    tried.push_back({.name = std::string(entry->backend->name()),
                     .problem = reason_to_leave_out(*entry->backend, source),
                     .costs = {}});
    if (!tried.back().problem.empty()) {
      left_out = &tried.back();
      continue;
    }
    const Status survived = try_first(*entry->backend, source, options);
    if (options.is_stopped()) return loading_stopped();
    if (!survived.ok()) {
      tried.back().problem = survived.message();
      left_out = &tried.back();
      continue;
    }
    Result<std::unique_ptr<LoadedModel>> loaded = entry->backend->load(source);
    if (!loaded.ok()) {
      code = loaded.status().code();
      tried.back().problem = loaded.status().message();
      continue;
    }
    candidates.push_back({entry.get(), std::move(*loaded), nullptr, {}, &tried.back()});
  }
  if (candidates.empty()) return nobody(backends, source, tried, code);
  size_t best = 0;
  if (candidates.size() == 1) {
    chosen.choice.why = "the only backend that can serve it";
    if (left_out != nullptr) {
      chosen.choice.why =
          "computes as ONNX defines it; " + left_out->name + " was left out: " + left_out->problem;
    }
  } else {
    std::erase_if(candidates, [](Candidate& one) {
      Result<std::unique_ptr<Instance>> made = one.loaded->create_instance(kMeasuredRows);
      if (!made.ok()) one.report->problem = made.status().message();
      if (made.ok()) one.instance = std::move(*made);
      return one.instance == nullptr;
    });
    if (candidates.empty()) return nobody(backends, source, tried, Code::kUnavailable);
    for (Candidate& one : candidates) {
      Result<RequestMemory> memory = RequestMemory::create(kTrialBytes);
      if (!memory.ok()) return memory.status();
      one.memory = std::move(*memory);
    }
    if (candidates.size() > 1) {
      best = decide(candidates, source.options.precision, options, chosen.choice);
    } else {
      chosen.choice.why = "the only backend that can run it";
    }
  }
  if (options.is_stopped()) return loading_stopped();  // the measurement was cut short
  chosen.entry = candidates[best].entry;
  chosen.choice.backend = chosen.entry->backend->name();
  candidates[best].instance.reset();
  chosen.loaded = std::move(candidates[best].loaded);
  return chosen;
}

Result<ChosenBackend> choose(Backends& backends, const ModelSource& source,
                             const LoadOptions& options) {
  const bool is_its_own = !source.options.backend.empty();
  const std::string& named = is_its_own ? source.options.backend : options.backend;
  if (named != kAutoBackend) {
    return load_with(backends, named, source, options,
                     {.why = is_its_own ? "config.json names it" : "the server's setting"});
  }
  if (backends.entries().size() < 2) {
    return load_with(backends, "", source, options, {.why = "the only backend of this server"});
  }
  ChoiceCache cache(options.cache);
  const std::string key =
      ChoiceCache::key_of(source, backends.description(), table_versions(backends));
  if (std::optional<BackendChoice> known = cache.find(key)) {
    known->is_remembered = true;
    Result<ChosenBackend> chosen = load_with(backends, known->backend, source, options, *known);
    if (chosen.ok()) return chosen;
  }
  Result<ChosenBackend> chosen = try_all(backends, source, options);
  if (chosen.ok()) cache.put(key, chosen->choice);
  return chosen;
}

}  // namespace

Result<ChosenBackend> choose_backend(Backends& backends, const ModelSource& source,
                                     const LoadOptions& options) {
  Result<ChosenBackend> chosen = choose(backends, source, options);
  // What is freed by now, the file as it was read and the weights of a backend that was not chosen, stays
  // with the process's heaps otherwise: 100 MB beside a model of 200.
  ::malloc_trim(0);
  return chosen;
}

}  // namespace lumen::engine
