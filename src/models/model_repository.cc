// Opens a repository: scans, loads each version through its backend, keeps failed versions with
// their reason. Control plane, but find(), which any thread calls and which allocates nothing.
// Errors: only for an unreadable directory or one with more versions than there are counters.
#include <lumen/models/model_repository.h>

#include <lumen/base/cpu.h>
#include <lumen/base/limits.h>
#include <lumen/base/utf8.h>
#include <lumen/models/load_trials.h>
#include <lumen/onnx/model_file.h>

#include <lumen/models/builders.h>
#include "models/choice_cache.h"
#include "models/choose_backend.h"
#include "models/ensemble_load.h"
#include "models/labels.h"
#include "models/load_gate.h"
#include "models/metadata_limits.h"
#include "models/model_config.h"
#include "models/model_source.h"
#include "models/recorded_rows.h"
#include "models/repository_scan.h"
#include "models/row_independence.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

namespace lumen::models {
namespace {

// Each keeps a heap of its own (malloc's), and compiling gains little beyond.
constexpr uint32_t kMostBuilders = 8;

// A reason as clients may see it: it names the file, below the repository. Where that lies is no
// client's business.
std::string reason_text(const Status& status, const std::filesystem::path& directory,
                        const ModelSource& source) {
  std::string text(status.message());
  const std::string prefix = (directory / "").string();
  for (size_t at = 0; (at = text.find(prefix, at)) != std::string::npos;) {
    text.erase(at, prefix.size());
  }
  const std::string file = source.file.filename().string();
  const bool names_a_file = text.find(file) != std::string::npos || text.find(".json") != text.npos;
  if (file.empty() || names_a_file) return text;
  std::string named = source.name;
  named.append("/").append(source.version).append("/").append(file).append(": ").append(text);
  return named;
}

uint64_t bytes_of(const std::filesystem::path& file) {
  std::error_code error;
  uint64_t bytes = std::filesystem::file_size(file, error);
  if (error) bytes = 0;
  if (file.extension() != ".xml") return bytes;
  const uint64_t weights =
      std::filesystem::file_size(std::filesystem::path(file).replace_extension(".bin"), error);
  return error ? bytes : bytes + weights;
}

// A compiled model that was read from a file has weights of its own in memory, where those that
// were compiled in this process share them. Compiling is work on the graph, and reading is work on
// the weights: with six products of 4 MB each nothing is gained, and half as much memory again is
// lost.
constexpr uint64_t kMostBytesToKeep = uint64_t{8} << 20;

uint32_t threads_for(const Backends& backends, const LoadOptions& options) {
  if (!backends.loads_in_parallel()) return 1;
  return options.threads != 0 ? options.threads : std::min(usable_cpu_count(), kMostBuilders);
}

// While models are loaded.
class TrialsInUse {
 public:
  explicit TrialsInUse(LoadTrials* trials) noexcept : trials_(trials) {}
  ~TrialsInUse() {
    if (trials_ != nullptr) trials_->end();
  }
  TrialsInUse(const TrialsInUse&) = delete;
  TrialsInUse& operator=(const TrialsInUse&) = delete;

 private:
  LoadTrials* const trials_;
};

bool is_ensemble(const ModelSource& source) noexcept {
  return !source.options.ensemble.steps.empty();
}

}  // namespace

std::optional<uint32_t> ModelIndices::take() {
  const std::lock_guard lock(mutex_);
  for (uint32_t index = 0; index < taken_.size(); ++index) {
    if (taken_[index]) continue;
    taken_[index] = true;
    return index;
  }
  return std::nullopt;
}

void ModelIndices::give_back(uint32_t index) {
  const std::lock_guard lock(mutex_);
  taken_[index] = false;
}

Model::Model(std::shared_ptr<ModelIndices> indices, uint32_t index, telemetry::Counters& counters,
             const ModelSource& source)
    : stamp_(source.stamp),
      versions_(source.options.versions),
      indices_(std::move(indices)),
      index_(index),
      counters_(&counters) {
  metadata_.name = source.name;
  metadata_.version = source.version;
}

Model::~Model() {
  counters_->release_model(index_);
  indices_->give_back(index_);
}

Result<std::unique_ptr<Instance>> Model::make_instance(std::span<const uint32_t> batch_sizes) {
  std::unique_lock<std::mutex> alone;
  if (!traits().loads_in_parallel) alone = std::unique_lock(backend_->making);
  Result<std::unique_ptr<Instance>> made = loaded_->create_instance(batch_sizes);
  if (made.ok()) LUMEN_RETURN_IF_ERROR(run_warm_up(*this, **made, warm_up_));
  return made;
}

void Model::read_known_costs() {
  const std::optional<std::string> text = costs_cache_->find(costs_identity_);
  if (!text) return;
  known_costs_ = parse_known_costs(*text).value_or(KnownCosts());
  kept_costs_ = known_costs_;
}

void Model::keep_known_costs() {
  if (costs_cache_ == nullptr || known_costs_ == kept_costs_) return;
  costs_cache_->put(costs_identity_, to_text(known_costs_));
  kept_costs_ = known_costs_;
}

Result<std::unique_ptr<ModelRepository>> ModelRepository::open(
    const std::filesystem::path& directory, Backends backends, telemetry::Counters& counters,
    LoadOptions options, const OnLoaded& on_loaded) {
  Result<std::vector<FoundModel>> found =
      scan_repository(directory, {.follow_links = options.follow_links});
  if (!found.ok()) return found.status();
  if (found->size() > limits::kMaxModels) {
    return Status::error(Code::kTooLarge,
                         "model repository %s holds %zu model versions; at most %zu",
                         directory.c_str(), found->size(), limits::kMaxModels);
  }
  // alloc: at start
  std::unique_ptr<ModelRepository> repository(
      new ModelRepository(directory, std::move(backends), counters, std::move(options)));
  LUMEN_RETURN_IF_ERROR(repository->load_all(*found, on_loaded));
  return repository;
}

ModelRepository::ModelRepository(std::filesystem::path directory, Backends backends,
                                 telemetry::Counters& counters, LoadOptions options)
    : directory_(std::move(directory)),
      counters_(counters),
      gate_(std::make_unique<LoadGate>()),
      backends_(std::move(backends)),
      options_(std::move(options)),
      compiled_(options_.compiled.empty() ? nullptr
                                          : std::make_shared<CompiledCache>(options_.compiled)),
      builders_(std::make_unique<Builders>(threads_for(backends_, options_))),
      background_builders_(
          std::make_unique<Builders>(threads_for(backends_, options_), *builders_)) {}

ModelRepository::~ModelRepository() = default;

Status ModelRepository::load_all(const std::vector<FoundModel>& found, const OnLoaded& on_loaded) {
  const TrialsInUse trials(options_.trials);
  std::mutex telling;
  size_t loaded = 0;
  std::vector<Builders::Job> jobs;
  for (const FoundModel& version : found) {
    models_.push_back(make_model(version));
    if (is_ensemble(version.source)) continue;
    const auto load = [&, model = models_.back().get()] {
      if (options_.is_stopped()) return;
      load_model(*model, version.source);
      const std::lock_guard lock(telling);
      on_loaded(*model, ++loaded, found.size());
    };
    jobs.push_back({.body = load, .near_cpu = std::nullopt});
  }
  builders_->run(jobs);
  const FindModel find = find_among(models_);
  for (size_t i = 0; i < found.size(); ++i) {
    if (!is_ensemble(found[i].source) || options_.is_stopped()) continue;
    load_ensemble(*models_[i], found[i].source, find);
    on_loaded(*models_[i], ++loaded, found.size());
  }
  return options_.is_stopped() ? loading_stopped() : Status();
}

std::shared_ptr<Model> ModelRepository::make_model(const FoundModel& found) {
  const std::optional<uint32_t> index = indices_->take();
  if (!index) return nullptr;
  auto model = std::make_shared<Model>(indices_, *index, counters_, found.source);
  Status status = counters_.assign_model(*index, found.source.name, found.source.version);
  if (status.ok()) status = found.status;
  if (!status.ok()) {
    const auto directory = directory_of(found.source.name);
    model->mark_unavailable(reason_text(status, directory, found.source));
  }
  return model;
}

void ModelRepository::load_model(Model& model, const ModelSource& found) {
  if (!model.reason().empty()) return;
  const Status status = load_into(model, found);
  if (!status.ok()) model.mark_unavailable(reason_text(status, directory_of(found.name), found));
}

namespace {

std::optional<ConfigInstead> instead_of(std::string_view model, const std::string* config) {
  return config == nullptr ? std::nullopt : std::optional(ConfigInstead{model, *config});
}

}  // namespace

void ModelRepository::read_from(std::string_view name, std::filesystem::path directory) {
  const std::lock_guard lock(elsewhere_mutex_);
  if (directory.empty()) {
    if (const auto found = elsewhere_.find(name); found != elsewhere_.end())
      elsewhere_.erase(found);
  } else {
    elsewhere_[std::string(name)] = std::move(directory);
  }
}

std::filesystem::path ModelRepository::directory_of(std::string_view name) const {
  const std::lock_guard lock(elsewhere_mutex_);
  const auto found = elsewhere_.find(name);
  return found == elsewhere_.end() ? directory_ : found->second;
}

Status ModelRepository::check_config(const std::string& config) {
  return parse_model_config(config, kConfigOfCall).status();
}

Result<std::shared_ptr<Model>> ModelRepository::load(std::string_view name,
                                                     std::string_view version,
                                                     const FindModel& find,
                                                     const std::string* config) {
  const std::filesystem::path directory = directory_of(name);
  Result<std::vector<FoundModel>> found = scan_repository(
      directory,
      {.follow_links = options_.follow_links, .instead = instead_of(name, config), .only = name});
  if (!found.ok()) return found.status();
  const FoundModel* wanted = nullptr;
  for (const FoundModel& one : *found) {
    const bool matches = version.empty() || one.source.version == version;
    if (one.source.name == name && matches) wanted = &one;  // the last is the highest
  }
  if (wanted == nullptr) {
    return Status::error(Code::kNotFound, "model '%.*s' version '%.*s' is not in %s",
                         static_cast<int>(std::min(name.size(), limits::kMaxNameBytes)),
                         name.data(),
                         static_cast<int>(std::min(version.size(), limits::kMaxNameBytes)),
                         version.data(), directory.c_str());
  }
  const TrialsInUse trials(options_.trials);
  std::shared_ptr<Model> model = make_model(*wanted);
  if (model == nullptr) return no_index_is_free();
  if (is_ensemble(wanted->source)) {
    load_ensemble(*model, wanted->source, find);
    return model;
  }
  const Builders::Job load{.body = [&] { load_model(*model, wanted->source); },
                           .near_cpu = std::nullopt};
  background_builders_->run({&load, 1});
  return model;
}

Result<std::vector<ModelRepository::OnDisk>> ModelRepository::on_disk(
    std::string_view name, const std::string* config) const {
  const Result<std::vector<FoundModel>> found = scan_repository(
      directory_of(name),
      {.follow_links = options_.follow_links, .instead = instead_of(name, config), .only = name});
  if (!found.ok()) return found.status();
  std::vector<OnDisk> all;
  for (const FoundModel& one : *found) {
    OnDisk& version = all.emplace_back();
    version.name = one.source.name;
    version.version = one.source.version;
    version.stamp = one.source.stamp;
    if (one.source.version.empty()) version.status = one.status;
    for (const StatedStep& step : one.source.options.ensemble.steps) {
      version.steps.push_back(step.model);
    }
  }
  return all;
}

void ModelRepository::forget(Model& model) {
  model.loaded_.reset();
  const std::lock_guard lock(models_mutex_);
  std::erase_if(models_, [&](const auto& kept) { return kept.get() == &model; });
}

namespace {

// Of kServedPrecisions.
uint32_t precision_of(const ModelSource& source) {
  if (source.rows != nullptr) return source.rows->precision();
  return static_cast<uint32_t>(source.options.precision) + 1;
}

std::string why_not_packed(const ModelSource& source) {
  std::string why = "a graph that is not ONNX is not followed";
  if (source.graph != nullptr) {
    const Result<onnx::Model>& model = source.graph->model();
    why = model.ok() ? why_rows_may_meet(*model) : std::string(model.status().message());
  }
  if (why.empty()) return why;
  return "its rows are not known to be independent: " + why +
         "; if they are, \"rows_are_independent\": true in config.json has them run in one call";
}

}  // namespace

namespace {

// Its content is known by its file, with the weights beside it of OpenVINO's own form. ONNX's may
// lie in files of any name.
bool is_one_file(const ModelSource& source) {
  if (source.file.extension() == ".xml") return true;
  return source.graph != nullptr && source.graph->model().ok() &&
         onnx::is_self_contained(*source.graph->model());
}

// The path, too, so that no model can be mistaken for another one, whatever its bytes are.
std::string identity_of(const ModelSource& source) {
  return std::filesystem::absolute(source.file).string() + "\n" + source.content + "\n" +
         cpu_identity() + "\n";
}

std::string costs_identity(const ModelSource& source, const Backend& backend, uint32_t precision) {
  std::string identity = source.compiled_identity + backend.description() + " precision " +
                         std::to_string(precision) + identity_of(source.options.pictures) +
                         (source.options.sequences.are_on() ? " with states" : "") + " costs";
  for (const uint32_t rows : source.options.batch_sizes) {
    identity.append(1, ' ').append(std::to_string(rows));
  }
  return identity;
}

}  // namespace

Status ModelRepository::load_into(Model& model, const ModelSource& found) {
  LoadGate::Loading loading(*gate_);
  Result<std::shared_ptr<const RecordedRows>> rows = RecordedRows::read(found.file);
  if (!rows.ok()) return rows.status();
  ModelSource source = with_graph(found);
  source.rows = std::move(*rows);
  // Elsewhere the path is of this process alone, and would never be found again.
  const bool is_kept = compiled_ != nullptr && directory_of(found.name) == directory_;
  if (is_kept) {
    source.content = content_of_model(source.file);
    source.compiled_identity = identity_of(source);
  }
  if (is_kept && bytes_of(source.file) <= kMostBytesToKeep && is_one_file(source)) {
    source.compiled = compiled_;
  }
  Result<ChosenBackend> chosen = choose_backend(backends_, source, options_, loading);
  if (!chosen.ok()) {
    model.choice_.backend =
        source.options.backend.empty() ? options_.backend : source.options.backend;
    return chosen.status();
  }
  LUMEN_RETURN_IF_ERROR(backends_.use(*chosen->entry));
  LUMEN_RETURN_IF_ERROR(check_metadata(chosen->loaded->metadata()));
  model.metadata_ = chosen->loaded->metadata();
  LUMEN_RETURN_IF_ERROR(add_labels(source, model.metadata_.outputs));
  LUMEN_RETURN_IF_ERROR(check_warm_up(model.metadata_, source.options.warm_up));
  // find() rests on the order of the scan's names, for any name that a backend puts there.
  model.metadata_.name = source.name;
  model.metadata_.version = source.version;
  LUMEN_RETURN_IF_ERROR(check_stated(source.options.stated, model.metadata_));
  model.stated_rows_ = source.options.stated.max_batch_size;
  model.input_names_ = TensorNames(model.metadata_.inputs);
  model.output_names_ = TensorNames(model.metadata_.outputs);
  model.backend_ = chosen->entry;
  model.choice_ = std::move(chosen->choice);
  if (has_batch_axis(model.metadata_) && !model.metadata_.sequences.have_rows) {
    model.why_not_packed_ =
        "the first axis of a state is not free, so that states of several "
        "sequences do not stand in one tensor";
  } else if (has_batch_axis(model.metadata_) && source.options.sequences.are_kept_by_model()) {
    model.why_not_packed_ =
        "the program keeps states itself: after a run that failed, requests are repeated one by "
        "one, and some may have changed their state";
  } else if (has_batch_axis(model.metadata_) &&
             !chosen->entry->backend->traits().has_independent_rows &&
             !source.options.rows_are_independent) {
    model.why_not_packed_ = why_not_packed(source);
  }
  model.precision_ = precision_of(source);
  counters_.set_precision(model.index(), model.precision_);
  if (source.rows != nullptr) model.precision_why_ = source.rows->why();
  model.response_cache_ = source.options.response_cache;
  model.sequences_ = source.options.sequences;
  model.scheduling_ = source.options.scheduling;
  model.warm_up_ = source.options.warm_up;
  model.file_bytes_ = bytes_of(source.file);
  if (is_kept && model.traits().has_lasting_costs) {
    model.costs_cache_ = compiled_;
    model.costs_identity_ = costs_identity(source, *model.backend_->backend, model.precision_);
    model.read_known_costs();
  }
  model.loaded_ = std::move(chosen->loaded);
  model.state_ = ModelState::kReady;
  return {};
}

Model* ModelRepository::find(std::string_view name, std::string_view version) const noexcept {
  const auto name_of = [](const std::shared_ptr<Model>& model) -> std::string_view {
    return model->metadata().name;
  };
  const auto same = std::ranges::equal_range(models_, name, std::ranges::less(), name_of);
  if (same.empty()) return nullptr;
  if (version.empty()) return same.back().get();
  for (const auto& model : same) {
    if (model->metadata().version == version) return model.get();
  }
  return nullptr;
}

std::vector<std::string> ModelRepository::versions(std::string_view name) const {
  std::vector<std::string> versions;
  for (const auto& model : models_) {
    if (model->metadata().name == name) versions.push_back(model->metadata().version);
  }
  return versions;
}

}  // namespace lumen::models
