// See the header.
#include "models/choose_backend.h"

#include <lumen/base/trim_heap.h>
#include <lumen/models/load_trials.h>
#include <lumen/onnx/model_file.h>

#include "models/choice_cache.h"
#include "models/compare_backends.h"
#include "models/format_text.h"
#include "models/operator_check.h"
#include "models/picture_model.h"
#include "models/recorded_rows.h"
#include "models/row_independence.h"
#include "models/sequence_model.h"

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lumen::models {
namespace {

// Inputs and outputs. OpenVINO compiles in a time that grows with the square of their number, once
// for each size of a call: minutes for limits::kMaxTensors.
constexpr size_t kMostTensorsCompared = 1024;

constexpr char kNotGiven[] =
    "not given operators by which a request can end the process or read other memory";

bool has_independent_rows(const Backend& backend, const ModelSource& source) {
  if (backend.traits().has_independent_rows || source.options.rows_are_independent) return true;
  return source.graph != nullptr && source.graph->model().ok() &&
         why_rows_may_meet(*source.graph->model()).empty();
}

// Why the answers to the recorded rows are not good enough; empty: they are, or there are none.
std::string problem_with_rows(const Backend& backend, const ModelSource& source,
                              const LoadedModel& loaded, Instance& instance,
                              RequestMemory& memory) {
  if (source.rows == nullptr) return {};
  const bool may_pack = has_batch_axis(loaded.metadata()) && has_independent_rows(backend, source);
  return source.rows->problem_of(loaded.metadata(), instance, memory, may_pack);
}

// By one of these a request could end the process, so it is not served, even if the configuration
// names the backend.
Status refused(const Backend& backend, const ModelSource& source,
               const std::vector<std::string>& operators) {
  return Status::error(
      Code::kUnavailable, "model '%s': %s is %s%s: %s", source.name.c_str(),
      std::string(backend.name()).c_str(), kNotGiven,
      backend.traits().is_reference ? "" : " (\"backend\": \"auto\" in config.json may serve them)",
      listed(operators).c_str());
}

// The first time that this backend gets this model on this machine. The error is of a sentence that
// begins with the backend.
Status try_first(const Backend& backend, const ModelSource& source, const LoadOptions& options) {
  if (options.trials == nullptr || !backend.traits().reads_graphs) return {};
  const ChoiceCache cache(options.cache);
  const std::string key = ChoiceCache::key_of(source, backend.description(), "tried");
  if (cache.find(key)) return {};
  LUMEN_RETURN_IF_ERROR(options.trials->try_in_process(source, backend.name(), options.stop));
  cache.put(key, {.backend = std::string(backend.name()), .why = "its process lived"});
  return {};
}

// Side by side with other models where the backend can.
template <typename Work>
auto in_turn(Backends::Entry& entry, Work&& work) {
  std::unique_lock<std::mutex> alone;
  if (!entry.backend->traits().loads_in_parallel) alone = std::unique_lock(entry.making);
  return work();
}

Result<std::unique_ptr<LoadedModel>> load(Backends::Entry& entry, const ModelSource& source) {
  auto loaded = in_turn(entry, [&] { return entry.backend->load(source); });
  if (loaded.ok()) return loaded;
  const std::string newer = newer_opset(*entry.backend, source);
  if (newer.empty()) return loaded;
  return Status::error(loaded.status().code(), "%s: %s", newer.c_str(),
                       loaded.status().c_message());
}

// Of a backend that is not compared with others.
Status check_rows(Backends::Entry& entry, const ModelSource& source, LoadedModel& loaded) {
  if (source.rows == nullptr) return {};
  Result<std::unique_ptr<Instance>> instance =
      in_turn(entry, [&] { return loaded.create_instance(kMeasuredRows); });
  if (!instance.ok()) return instance.status();
  Result<RequestMemory> memory = RequestMemory::create(kTrialBytes);
  if (!memory.ok()) return memory.status();
  const std::string problem =
      problem_with_rows(*entry.backend, source, loaded, **instance, *memory);
  if (problem.empty()) return {};
  return Status::error(Code::kUnavailable, "model '%s': %s can't serve it: %s", source.name.c_str(),
                       std::string(entry.backend->name()).c_str(), problem.c_str());
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
    Status tried = try_first(backend, source, options);
    if (tried.code() == Code::kCancelled) return tried;
    if (!tried.ok()) {
      return Status::error(tried.code(), "model '%s': %s %s", source.name.c_str(),
                           std::string(backend.name()).c_str(), tried.c_message());
    }
  }
  Result<std::unique_ptr<LoadedModel>> loaded = load(**entry, source);
  if (!loaded.ok()) return loaded.status();
  if (!choice.is_remembered) LUMEN_RETURN_IF_ERROR(check_rows(**entry, source, **loaded));
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

// The reason of each of `backends`, in their order, on one line; that of the reference first, since
// a Status cuts the end.
Status nobody(const std::vector<Backends::Entry*>& backends, const ModelSource& source,
              const std::vector<TriedBackend>& tried, Code code) {
  std::string all;
  for (const bool is_reference : {true, false}) {
    for (size_t i = 0; i < tried.size(); ++i) {
      if (backends[i]->backend->traits().is_reference != is_reference) continue;
      all.append(all.empty() ? "" : "; ").append(tried[i].name).append(": ");
      all.append(tried[i].problem);
    }
  }
  return Status::error(code, "no backend can serve model '%s': %s", source.name.c_str(),
                       all.c_str());
}

// A model with the backends that "auto" may give it to.
struct Attempt {
  std::vector<TriedBackend> tried;  // of each backend, in their order; the candidates point into it
  std::vector<Candidate> candidates;
  const TriedBackend* left_out = nullptr;  // the last backend that may not serve it
  Code code = Code::kUnavailable;          // of the last backend that could not load it
};

void load_with_each(Attempt& attempt, const std::vector<Backends::Entry*>& backends,
                    const ModelSource& source, const LoadOptions& options) {
  attempt.tried.reserve(backends.size());
  for (Backends::Entry* entry : backends) {
    if (options.is_stopped()) return;
    TriedBackend& tried = attempt.tried.emplace_back(
        TriedBackend{.name = std::string(entry->backend->name()),
                     .problem = reason_to_leave_out(*entry->backend, source),
                     .costs = {}});
    if (tried.problem.empty()) {
      const Status survived = try_first(*entry->backend, source, options);
      if (!survived.ok()) tried.problem = survived.message();
    }
    if (!tried.problem.empty()) {
      attempt.left_out = &tried;
      continue;
    }
    Result<std::unique_ptr<LoadedModel>> loaded = load(*entry, source);
    if (loaded.ok()) {
      attempt.candidates.push_back({entry, std::move(*loaded), nullptr, {}, &tried});
    } else {
      attempt.code = loaded.status().code();
      tried.problem = loaded.status().message();
    }
  }
}

// For a comparison. Those that can't make an instance, or answer recorded rows wrongly, are
// candidates no more.
Status make_instances(Attempt& attempt, const ModelSource& source) {
  std::erase_if(attempt.candidates, [](Candidate& one) {
    Result<std::unique_ptr<Instance>> made =
        in_turn(*one.entry, [&] { return one.loaded->create_instance(kMeasuredRows); });
    if (!made.ok()) one.report->problem = made.status().message();
    if (made.ok()) one.instance = std::move(*made);
    return one.instance == nullptr;
  });
  for (Candidate& one : attempt.candidates) {
    Result<RequestMemory> memory = RequestMemory::create(kTrialBytes);
    if (!memory.ok()) return memory.status();
    one.memory = std::move(*memory);
  }
  std::erase_if(attempt.candidates, [&source](Candidate& one) {
    one.report->problem =
        problem_with_rows(*one.entry->backend, source, *one.loaded, *one.instance, one.memory);
    return !one.report->problem.empty();
  });
  return {};
}

std::string why_the_only_one(const Attempt& attempt) {
  if (attempt.left_out == nullptr) return "the only backend that can serve it";
  return "computes as ONNX defines it; " + attempt.left_out->name +
         " was left out: " + attempt.left_out->problem;
}

// Loads the model with each backend, and compares them if there are several.
Result<ChosenBackend> try_all(const std::vector<Backends::Entry*>& backends,
                              const ModelSource& source, const LoadOptions& options,
                              LoadGate::Loading& loading) {
  Attempt attempt;
  ChosenBackend chosen;
  load_with_each(attempt, backends, source, options);
  if (options.is_stopped()) return loading_stopped();
  if (attempt.candidates.size() == 1) chosen.choice.why = why_the_only_one(attempt);
  if (attempt.candidates.size() > 1 || source.rows != nullptr) {
    LUMEN_RETURN_IF_ERROR(make_instances(attempt, source));
  }
  std::vector<Candidate>& candidates = attempt.candidates;
  if (candidates.empty()) return nobody(backends, source, attempt.tried, attempt.code);
  size_t best = 0;
  if (candidates.size() > 1) {
    const LoadGate::Measuring measuring(loading);
    if (options.is_stopped()) return loading_stopped();
    best = compare_backends(candidates, source, options, chosen.choice);
  } else if (chosen.choice.why.empty()) {
    chosen.choice.why = "the only backend that can run it";
  }
  if (options.is_stopped()) return loading_stopped();  // the measurement was cut short
  chosen.entry = candidates[best].entry;
  chosen.choice.backend = chosen.entry->backend->name();
  candidates[best].instance.reset();
  chosen.loaded = std::move(candidates[best].loaded);
  chosen.choice.tried = std::move(attempt.tried);
  return chosen;
}

Result<ChosenBackend> choose(Backends& backends, const ModelSource& source,
                             const LoadOptions& options, LoadGate::Loading& loading) {
  const bool is_its_own = !source.options.backend.empty();
  const std::string& named = is_its_own ? source.options.backend : options.backend;
  if (named != kAutoBackend) {
    return load_with(backends, named, source, options,
                     {.why = is_its_own ? "config.json names it" : "the server's setting"});
  }
  const std::vector<Backends::Entry*> available = backends.available();
  if (available.size() < 2) {
    const std::string_view only = available.empty() ? "" : available.front()->backend->name();
    return load_with(backends, only, source, options, {.why = "the only backend of this server"});
  }
  ChoiceCache cache(options.cache);
  const std::string key =
      ChoiceCache::key_of(source, backends.description(), table_versions(backends));
  if (std::optional<BackendChoice> known = cache.find(key)) {
    known->is_remembered = true;
    Result<ChosenBackend> chosen = load_with(backends, known->backend, source, options, *known);
    if (chosen.ok()) return chosen;
  }
  Result<ChosenBackend> chosen = try_all(available, source, options, loading);
  if (chosen.ok()) cache.put(key, chosen->choice);
  return chosen;
}

// The model that takes pixels or files, of the model as its file has it.
Result<std::unique_ptr<LoadedModel>> take_pictures(Backends::Entry& entry,
                                                   const ModelSource& source,
                                                   std::unique_ptr<LoadedModel> of_file) {
  if (!entry.backend->traits().reads_graphs) {
    return Status::error(Code::kInvalidArgument,
                         "config.json: key \"pictures\": wanted a model of a graph; a model of the "
                         "backend \"%s\" prepares its inputs itself",
                         std::string(entry.backend->name()).c_str());
  }
  Result<std::vector<PictureInput>> pictures =
      plan_pictures(source.options.pictures, of_file->metadata().inputs);
  if (!pictures.ok()) return pictures.status();
  const bool takes_pixels = entry.backend->traits().prepares_pictures;
  if (takes_pixels) {
    of_file.reset();
    Result<std::unique_ptr<LoadedModel>> loaded = load(entry, source);
    if (!loaded.ok()) return loaded;
    of_file = std::move(*loaded);
  }
  return make_picture_model(std::move(of_file), std::move(*pictures), takes_pixels);
}

// The backend is judged by the model's graph alone, which pictures do not change.
Result<ChosenBackend> choose_with_pictures(Backends& backends, const ModelSource& source,
                                           const LoadOptions& options, LoadGate::Loading& loading) {
  ModelSource plain = source;
  plain.options.pictures.clear();
  Result<ChosenBackend> chosen = choose(backends, plain, options, loading);
  if (!chosen.ok()) return chosen;
  Result<std::unique_ptr<LoadedModel>> taking =
      take_pictures(*chosen->entry, source, std::move(chosen->loaded));
  if (!taking.ok()) return taking.status();
  chosen->loaded = std::move(*taking);
  return chosen;
}

// The server keeps the states; clients do not see them.
Status keep_states(const SequenceOptions& options, ChosenBackend& chosen) {
  if (!options.are_on()) return {};
  if (options.are_kept_by_model() && !chosen.entry->backend->traits().runs_programs) {
    return Status::error(Code::kInvalidArgument,
                         "config.json: \"sequences\" names no states, and a model of the backend "
                         "'%s' keeps none itself; name them",
                         std::string(chosen.entry->backend->name()).c_str());
  }
  Result<SequencePlan> plan = plan_sequences(options, chosen.loaded->metadata());
  if (!plan.ok()) return plan.status();
  chosen.loaded = make_sequence_model(std::move(chosen.loaded), std::move(*plan));
  return {};
}

}  // namespace

Result<ChosenBackend> choose_backend(Backends& backends, const ModelSource& source,
                                     const LoadOptions& options, LoadGate::Loading& loading) {
  Result<ChosenBackend> chosen = source.options.pictures.empty()
                                     ? choose(backends, source, options, loading)
                                     : choose_with_pictures(backends, source, options, loading);
  if (chosen.ok()) {
    const Status kept = keep_states(source.options.sequences, *chosen);
    if (!kept.ok()) return kept;
  }
  // Freed memory, of the file as it was read and of the weights of a backend that was not chosen,
  // stays with the process's heaps otherwise: 100 MB beside a model of 200.
  trim_heap();
  return chosen;
}

}  // namespace lumen::models
