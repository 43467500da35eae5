// ModelRepository: finds models on disk (<name>/<version>/model.onnx|model.xml, <name>/config.json)
// and holds them, with state and statistics.
// Threads: open() on the control plane; find() and statistics from any thread afterwards.
// Memory: at open(). Says no: a broken model stands in the list as UNAVAILABLE with its reason, it
// never stops the others; only an unreadable repository directory is an error.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/result.h>
#include <lumen/engine/backends.h>
#include <lumen/engine/metadata.h>
#include <lumen/engine/size_cost.h>
#include <lumen/engine/smoothed_time.h>
#include <lumen/telemetry/counters.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::engine {

enum class ModelState : uint8_t { kReady, kUnavailable };

// One version of one model.
class Model {
 public:
  [[nodiscard]] ModelState state() const noexcept { return state_; }
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }  // if unavailable
  [[nodiscard]] const ModelMetadata& metadata() const noexcept { return metadata_; }
  [[nodiscard]] uint32_t index() const noexcept { return index_; }  // dense, for tables
  [[nodiscard]] telemetry::ModelCounters counters() const noexcept { return {*counters_, index_}; }
  [[nodiscard]] LoadedModel* loaded() const noexcept { return loaded_.get(); }
  // What its backend allows; of a model that is ready.
  [[nodiscard]] BackendTraits traits() const noexcept { return backend_->backend->traits(); }
  // LoadedModel::create_instance(), by several threads at once: they wait for each other where the
  // backend makes one at a time.
  [[nodiscard]] Result<std::unique_ptr<Instance>> make_instance(
      std::span<const uint32_t> batch_sizes);
  // What one request takes a worker, for admission. With a latency budget the warm-up is its first
  // sample, where rows can be made up; 0 before the first.
  [[nodiscard]] SmoothedTime& service_time() noexcept { return service_time_; }
  // What calls of the sizes that the key names take, where that was measured: once for the model, not
  // for each instance and change. A few entries at most: the key follows from batch_size. Control
  // plane only.
  [[nodiscard]] std::map<std::vector<uint32_t>, std::vector<SizeCost>>& size_costs() noexcept {
    return size_costs_;
  }
  // Control plane only, before the engine's workers run.
  void mark_unavailable(std::string reason) {
    state_ = ModelState::kUnavailable;
    reason_ = std::move(reason);
  }

 private:
  friend class ModelRepository;
  ModelState state_ = ModelState::kUnavailable;
  std::string reason_;
  ModelMetadata metadata_;              // name and version are set even when unavailable
  Backends::Entry* backend_ = nullptr;  // that loaded it
  std::unique_ptr<LoadedModel> loaded_;
  const telemetry::Counters* counters_ = nullptr;
  uint32_t index_ = 0;
  std::map<std::vector<uint32_t>, std::vector<SizeCost>> size_costs_;
  // Written by every worker after each call; what is above is read by all for each request.
  alignas(kFalseSharingRange) SmoothedTime service_time_;
};

class ModelRepository {
 public:
  [[nodiscard]] static Result<std::unique_ptr<ModelRepository>> open(
      const std::filesystem::path& directory, Backends backends, telemetry::Counters& counters);

  // `version` empty: the highest. nullptr: no such model (or version).
  [[nodiscard]] Model* find(std::string_view name, std::string_view version) const noexcept;
  [[nodiscard]] const std::vector<std::unique_ptr<Model>>& models() const noexcept {
    return models_;
  }
  // Versions of `name` in ascending order; for the metadata reply (control plane).
  [[nodiscard]] std::vector<std::string> versions(std::string_view name) const;
  [[nodiscard]] Backends& backends() noexcept { return backends_; }
  [[nodiscard]] const Backends& backends() const noexcept { return backends_; }
  [[nodiscard]] telemetry::Counters& counters() const noexcept { return counters_; }

 private:
  ModelRepository(Backends backends, telemetry::Counters& counters)
      : counters_(counters), backends_(std::move(backends)) {}
  // Through the backend that its options name; on a failure it stays unavailable.
  [[nodiscard]] Status load(Model& model, const ModelSource& source);
  telemetry::Counters& counters_;
  Backends backends_;
  std::vector<std::unique_ptr<Model>> models_;  // sorted by name, then version as a number
};

}  // namespace lumen::engine
