// ModelRepository: finds models on disk (<name>/<version>/model.onnx|model.xml, <name>/config.json)
// and holds them, with state and statistics.
// Threads: open() on the control plane; find() and statistics from any thread afterwards.
// Memory: at open(). Errors: a broken model stands in the list as UNAVAILABLE with its reason, it
// never stops the others; only an unreadable repository directory is an error.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/result.h>
#include <lumen/models/backend_choice.h>
#include <lumen/models/backends.h>
#include <lumen/models/batch_times.h>
#include <lumen/models/compiled_cache.h>
#include <lumen/models/known_costs.h>
#include <lumen/models/metadata.h>
#include <lumen/models/run_costs.h>
#include <lumen/models/smoothed_time.h>
#include <lumen/models/tensor_names.h>
#include <lumen/telemetry/counters.h>

#include <atomic>
#include <bitset>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::models {

enum class ModelState : uint8_t { kReady, kUnavailable };

// Which of the kMaxModels places are taken. Control plane, by several threads.
class ModelIndices {
 public:
  [[nodiscard]] std::optional<uint32_t> take();  // the lowest that is free
  void give_back(uint32_t index);

 private:
  std::mutex mutex_;
  std::bitset<limits::kMaxModels> taken_;
};

// One version of one model. Its index and counters are another's once it is gone.
class Model {
 public:
  Model(std::shared_ptr<ModelIndices> indices, uint32_t index, telemetry::Counters& counters,
        const ModelSource& source);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] ModelState state() const noexcept { return state_; }
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }  // if unavailable
  [[nodiscard]] const ModelMetadata& metadata() const noexcept { return metadata_; }
  // Of a model that is ready.
  [[nodiscard]] const TensorNames& input_names() const noexcept { return input_names_; }
  [[nodiscard]] const TensorNames& output_names() const noexcept { return output_names_; }
  [[nodiscard]] uint32_t index() const noexcept { return index_; }  // dense, for tables
  // Differs from that of the version on disk once its files have changed.
  [[nodiscard]] const std::string& stamp() const noexcept { return stamp_; }
  [[nodiscard]] const VersionPolicy& versions() const noexcept { return versions_; }
  [[nodiscard]] telemetry::ModelCounters counters() const noexcept { return {*counters_, index_}; }
  [[nodiscard]] LoadedModel* loaded() const noexcept { return loaded_.get(); }
  // Of a model that is ready: the models that its requests run, where it is an ensemble; then it
  // has no backend, no instances and no lane of its own. nullptr: it runs itself.
  [[nodiscard]] const EnsemblePlan* ensemble() const noexcept { return ensemble_.get(); }
  // By its configuration; one that is unavailable, too.
  [[nodiscard]] bool is_ensemble() const noexcept { return source_ != nullptr; }
  [[nodiscard]] const StatedEnsemble& stated_ensemble() const noexcept {
    return source_->options.ensemble;
  }
  // Which backend serves it, and why that one.
  [[nodiscard]] const BackendChoice& choice() const noexcept { return choice_; }
  // Why its requests are not run in one call, with the key that allows it all the same; empty: they
  // may be, where it pays. Of a model without a free first axis it is empty, too.
  // Of kServedPrecisions; empty: it is not loaded.
  [[nodiscard]] std::string_view precision() const noexcept {
    return kServedPrecisions[precision_];
  }
  // Of a quantised version: its gain, in a sentence.
  [[nodiscard]] const std::string& precision_why() const noexcept { return precision_why_; }
  [[nodiscard]] const std::string& why_not_packed() const noexcept { return why_not_packed_; }
  [[nodiscard]] const ResponseCacheOptions& response_cache() const noexcept {
    return response_cache_;
  }
  // Of a model that keeps states (ModelMetadata::sequences).
  [[nodiscard]] const SequenceOptions& sequences() const noexcept { return sequences_; }
  [[nodiscard]] const ModelScheduling& scheduling() const noexcept { return scheduling_; }
  // The traits of its backend; of a model that is ready.
  [[nodiscard]] BackendTraits traits() const noexcept { return backend_->backend->traits(); }
  // Each instance runs them before make_instance() returns it.
  [[nodiscard]] const std::vector<WarmUpRequest>& warm_up() const noexcept { return warm_up_; }
  // LoadedModel::create_instance(), by several threads at once: they wait for each other where the
  // backend makes one at a time.
  [[nodiscard]] Result<std::unique_ptr<Instance>> make_instance(
      std::span<const uint32_t> batch_sizes);
  // A worker's time for one request, for admission. With a latency budget the warm-up is its first
  // sample, if rows can be made up; 0 before the first.
  [[nodiscard]] SmoothedTime& service_time() noexcept { return service_time_; }
  [[nodiscard]] const SmoothedTime& service_time() const noexcept { return service_time_; }
  // The expected time of one request by its input's size, for the choice of its lane and its share.
  [[nodiscard]] RunCosts& run_costs() noexcept { return run_costs_; }
  [[nodiscard]] const RunCosts& run_costs() const noexcept { return run_costs_; }
  // Of its calls, by their size.
  [[nodiscard]] BatchTimes& batch_times() noexcept { return batch_times_; }
  [[nodiscard]] const BatchTimes& batch_times() const noexcept { return batch_times_; }
  // Measured by the engine, in this process or at an earlier start. Control plane only.
  [[nodiscard]] KnownCosts& known_costs() noexcept { return known_costs_; }
  // Keeps them for the next start, where LoadOptions::compiled says so and they have changed.
  void keep_known_costs();
  // The growth of an instance's memory in its first run, by the last one that ran on the control
  // plane: not each does. Control plane only.
  [[nodiscard]] uint64_t first_run_bytes() const noexcept { return first_run_bytes_; }
  void set_first_run_bytes(uint64_t bytes) noexcept { first_run_bytes_ = bytes; }
  // Of its file, with weights that lie beside it in a file of OpenVINO's; 0: not loaded.
  [[nodiscard]] uint64_t file_bytes() const noexcept { return file_bytes_; }
  // max_batch_size of a configuration in Triton's form; nullopt: not said.
  [[nodiscard]] std::optional<uint32_t> stated_rows() const noexcept { return stated_rows_; }
  // Control plane only, before the engine's workers run.
  void mark_unavailable(std::string reason) {
    state_ = ModelState::kUnavailable;
    reason_ = std::move(reason);
  }

 private:
  friend class ModelRepository;
  void read_known_costs();
  ModelState state_ = ModelState::kUnavailable;
  std::string reason_;
  const std::string stamp_;
  const VersionPolicy versions_;
  ModelMetadata metadata_;  // name and version are set even when unavailable
  TensorNames input_names_;
  TensorNames output_names_;
  Backends::Entry* backend_ = nullptr;  // that loaded it
  BackendChoice choice_;
  std::string why_not_packed_;
  uint32_t precision_ = 0;
  std::string precision_why_;
  ResponseCacheOptions response_cache_;
  SequenceOptions sequences_;
  ModelScheduling scheduling_;
  std::vector<WarmUpRequest> warm_up_;
  std::unique_ptr<LoadedModel> loaded_;
  std::unique_ptr<const EnsemblePlan> ensemble_;
  std::shared_ptr<const ModelSource> source_;  // of an ensemble
  const std::shared_ptr<ModelIndices> indices_;
  const uint32_t index_;
  telemetry::Counters* const counters_;
  KnownCosts known_costs_;
  KnownCosts kept_costs_;                       // as they are in the file
  std::shared_ptr<CompiledCache> costs_cache_;  // nullptr: they are not kept
  std::string costs_identity_;
  uint64_t first_run_bytes_ = 0;
  uint64_t file_bytes_ = 0;
  std::optional<uint32_t> stated_rows_;
  // Written by every worker after each call; the members above are read by all for each request.
  alignas(kFalseSharingRange) SmoothedTime service_time_;
  RunCosts run_costs_;
  BatchTimes batch_times_;
};

class Builders;     // threads that load models and make instances
class LoadGate;     // of those threads
struct FoundModel;  // of the scan

class ModelRepository {
 public:
  // Told of each model that is loaded or can't be, in the order in which they are done, as the
  // `number`-th of `count`; by one thread at a time, any of those that load.
  using OnLoaded = std::function<void(const Model& model, size_t number, size_t count)>;

  // Loads models side by side, on as many threads as there are CPUs, up to 8. kCancelled:
  // `options.stop` was set before all were loaded.
  [[nodiscard]] static Result<std::unique_ptr<ModelRepository>> open(
      const std::filesystem::path& directory, Backends backends, telemetry::Counters& counters,
      LoadOptions options = {}, const OnLoaded& on_loaded = [](const Model&, size_t, size_t) {});

  // `version` empty: the highest. nullptr: no such model (or version).
  [[nodiscard]] Model* find(std::string_view name, std::string_view version) const noexcept;
  // Those that were there at open(), but for the forgotten ones. Any thread.
  [[nodiscard]] std::vector<std::shared_ptr<Model>> models() const {
    const std::lock_guard lock(models_mutex_);
    return models_;
  }
  // Versions of `name` in ascending order; for the metadata reply (control plane).
  [[nodiscard]] std::vector<std::string> versions(std::string_view name) const;
  // A version that its configuration says to serve, as it is on disk now.
  struct OnDisk {
    std::string name;
    std::string version;
    std::string stamp;
    // Of a model without a version that can be read: what is wrong with its folder.
    Status status{};
    std::vector<std::string> steps{};  // of an ensemble: the names of its models
  };
  // Of the model `name`, or of all (empty), in the order of the list above. Control plane; reads no
  // model. `config`, here and below: of the model, in place of its config.json; nullptr: that
  // counts.
  [[nodiscard]] Result<std::vector<OnDisk>> on_disk(std::string_view name = {},
                                                    const std::string* config = nullptr) const;
  // From now on the model `name` is read from this repository instead; empty: from its own again.
  // Models of other repositories are not kept as compiled. Any thread.
  void read_from(std::string_view name, std::filesystem::path directory);
  // Whether `config` is the text of a config.json, for any model. Any thread.
  [[nodiscard]] static Status check_config(const std::string& config);
  // For a catalog while it serves, one at a time: loads one version more from the directory
  // (`version` empty: the highest there), which the list above does not name. One that can't be
  // loaded is unavailable, with its reason. Errors: it is not there, or no index is free.
  // `find`: the models that steps of an ensemble are to run.
  [[nodiscard]] Result<std::shared_ptr<Model>> load(std::string_view name, std::string_view version,
                                                    const FindModel& find,
                                                    const std::string* config = nullptr);
  // The ensemble `before` once more, from the configuration that it was loaded with and the models
  // that are found now. Errors: no index is free.
  [[nodiscard]] Result<std::shared_ptr<Model>> make_anew(const Model& before,
                                                         const FindModel& find);
  // Not kept any more; it lives as long as others keep it, without its backend's part, of which no
  // instance is left.
  void forget(Model& model);
  [[nodiscard]] Backends& backends() noexcept { return backends_; }
  [[nodiscard]] const Backends& backends() const noexcept { return backends_; }
  [[nodiscard]] telemetry::Counters& counters() const noexcept { return counters_; }
  // Those that have loaded the models, for their instances. Control plane.
  [[nodiscard]] Builders& builders() noexcept { return *builders_; }
  // For models that come while others are served.
  [[nodiscard]] Builders& background_builders() noexcept { return *background_builders_; }
  ~ModelRepository();

 private:
  ModelRepository(std::filesystem::path directory, Backends backends, telemetry::Counters& counters,
                  LoadOptions options);
  [[nodiscard]] Status load_all(const std::vector<FoundModel>& found, const OnLoaded& on_loaded);
  // Not loaded yet, or unavailable with the scan's reason; nullptr: no index is free.
  [[nodiscard]] std::shared_ptr<Model> make_model(const FoundModel& found);
  // Through the backend that is chosen for it; a model that can't be loaded becomes unavailable.
  // Several models at once.
  void load_model(Model& model, const ModelSource& found);
  [[nodiscard]] Status load_into(Model& model, const ModelSource& found);
  // The same of an ensemble, once other models are loaded.
  void load_ensemble(Model& model, const ModelSource& found, const FindModel& find);
  [[nodiscard]] Status load_ensemble_into(Model& model, const ModelSource& found,
                                          const FindModel& find);
  [[nodiscard]] std::filesystem::path directory_of(std::string_view name) const;
  const std::filesystem::path directory_;
  mutable std::mutex elsewhere_mutex_;
  std::map<std::string, std::filesystem::path, std::less<>> elsewhere_;  // by model
  telemetry::Counters& counters_;
  const std::unique_ptr<LoadGate> gate_;
  Backends backends_;
  const LoadOptions options_;
  std::shared_ptr<CompiledCache> compiled_;  // nullptr: none are kept
  const std::unique_ptr<Builders> builders_;
  const std::unique_ptr<Builders> background_builders_;
  const std::shared_ptr<ModelIndices> indices_ = std::make_shared<ModelIndices>();
  mutable std::mutex models_mutex_;             // after open(): of forget() and models()
  std::vector<std::shared_ptr<Model>> models_;  // sorted by name, then version as a number
};

}  // namespace lumen::models
