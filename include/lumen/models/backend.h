// Backend: a library that can run a model. The narrow face between Lumen and a library that
// computes.
// Threads: load() and create_instance() on the control plane, one at a time unless the traits say
// otherwise; an Instance is made on one thread, runs on another, one at a time unless it is shared.
// Memory: backends allocate as they like in load/create_instance/start; Lumen's own zero-allocation
// rule ends at start(). Errors: Result; a failed inference goes into InferRequest::status. No
// exception crosses this face.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/ensemble.h>
#include <lumen/models/infer_request.h>
#include <lumen/models/metadata.h>
#include <lumen/models/model_scheduling.h>
#include <lumen/models/operator_table.h>
#include <lumen/models/pictures.h>
#include <lumen/models/sequence_options.h>
#include <lumen/models/stated_form.h>
#include <lumen/models/warm_up.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::onnx {
class ModelFile;
}

namespace lumen::models {

class RecordedRows;

enum class Precision : uint8_t {
  kF32,   // exact: results equal the framework's own, bit for bit
  kBf16,  // half the memory traffic, about three digits
  kAuto,  // the precision that the backend holds fastest on this machine
};

// How a model is computed, as documents and metrics say it: the three above, then forms that
// `lumen quantize` makes. Numbers of the counters file, where 0 is not known yet.
inline constexpr std::array<std::string_view, 7> kServedPrecisions = {
    "", "f32", "bf16", "auto", "int8", "int8_mixed", "int8_weights"};
inline constexpr uint32_t kFirstQuantised = 4;

// How a cache decides which entry goes when it is full; in the order of their names in config.json.
enum class CachePolicy : uint8_t { kLru, kLfu, kS3Fifo };
inline constexpr std::array<std::string_view, 3> kCachePolicyNames = {"lru", "lfu", "s3fifo"};

// Of a model's answers: "response_cache" of its config.json. The server keeps them, no backend sees
// it.
struct ResponseCacheOptions {
  bool enable = false;
  // Long enough for clients that ask again at once, short enough that nobody has to know of it.
  uint64_t ttl_ms = 60'000;
  uint64_t max_bytes = uint64_t{64} << 20;  // virtual until answers fill it
  CachePolicy policy = CachePolicy::kS3Fifo;
};

// "device" of a model's config.json: how a backend that runs on a device (a GPU) does so. Others
// ignore it.
struct DeviceOptions {
  static constexpr uint32_t kMostStreams = 16;
  std::optional<uint32_t> id = {};  // nullopt: the server's setting for that backend
  // Runs of one instance that are under way at once: one computes while another's tensors are
  // copied.
  uint32_t streams = 2;
  // Sizes of the first axis that each stream runs once before it serves.
  std::vector<uint32_t> batch_sizes = {1};
  uint32_t memory_mb = 0;  // the most of the device's memory; 0: as the library likes

  bool operator==(const DeviceOptions&) const = default;
};

// "versions" of a model's config.json: which of its folders are served.
struct VersionPolicy {
  enum class Kind : uint8_t { kAll, kLatest, kListed };
  Kind kind = Kind::kAll;
  uint32_t latest = 1;                   // so many of the highest
  std::vector<std::string> listed = {};  // in ascending order

  bool operator==(const VersionPolicy&) const = default;
};

// The classes of outputs, by the output's name, in the order of its last axis.
using Labels = std::map<std::string, std::vector<std::string>, std::less<>>;

// From the model's own config.json (all optional).
struct ModelOptions {
  std::string backend;  // its name; empty or "auto": chosen by measuring
  Precision precision = Precision::kF32;
  // Sizes of the first axis that get a static-shape compile; others run on the dynamic one.
  std::vector<uint32_t> batch_sizes = {1};
  // Requests may be run in one call although it is not proved that rows are independent of each
  // other.
  bool rows_are_independent = false;
  // Kernels prepared for shapes seen before that an instance keeps, of each kind of operation,
  // where the model has free axes. Measured in docs/configuration.md.
  uint32_t shape_cache = kDefaultShapeCache;
  ResponseCacheOptions response_cache = {};
  ModelScheduling scheduling = {};
  DeviceOptions device = {};
  VersionPolicy versions = {};
  Labels labels = {};
  std::vector<WarmUpRequest> warm_up = {};
  StatedForm stated = {};
  StatedEnsemble ensemble = {};  // without steps: the model is none
  PicturesOptions pictures = {};
  SequenceOptions sequences = {};
  static constexpr uint32_t kDefaultShapeCache = 64;
};

class CompiledCache;

struct ModelSource {
  std::string name;
  std::string version;
  std::filesystem::path file;  // model.onnx, model.xml or model.py
  ModelOptions options;
  // An ONNX file as a graph, mapped while the model is loaded; nullptr: another form, or not read
  // yet.
  std::shared_ptr<const onnx::ModelFile> graph = nullptr;
  // The classes that labels.txt names, a line each; empty: there is no such file.
  std::vector<std::string> label_lines = {};
  // Differs once a file of the version, its config.json or labels.txt has changed.
  std::string stamp = {};
  // While it is loaded: content_of_model(), before the backend reads the file. Empty: not known.
  std::string content = {};
  // Where the backend may keep what it compiles of it, and the text that names this model on this
  // machine there. nullptr: nowhere.
  std::shared_ptr<CompiledCache> compiled = nullptr;
  std::string compiled_identity = {};
  // Of a quantised version, while it is loaded: rows with the f32 model's answers.
  std::shared_ptr<const RecordedRows> rows = nullptr;
};

enum class StartOutcome : uint8_t {
  kDone,     // outputs (or status) are in the request; the caller completes it
  kPending,  // the backend will fill the request and call `done` from a thread of its own
};

// One compiled model with its memory, owned by one worker unless the backend shares instances.
class Instance {
 public:
  virtual ~Instance() = default;

  // Runs request.inputs; on success request.outputs points into request.memory (large outputs) or
  // was copied there (small ones). A backend that stages to a device copies inside, and may return
  // kPending and call request's `done` later; until then it owns the request.
  // Inputs are already checked against the metadata: type, shape and byte_size agree.
  [[nodiscard]] virtual StartOutcome start(InferRequest& request,
                                           void (*done)(InferRequest&) noexcept) noexcept = 0;

  // How many requests may be pending at once; 1 for synchronous backends.
  [[nodiscard]] virtual uint32_t max_in_flight() const noexcept { return 1; }

  // Where the model read input `index` in the last call: the request's own memory (bound where it
  // lay) or the instance's (copied there). For tests and statistics; nullptr: not known.
  [[nodiscard]] virtual const void* last_bound_input(size_t index) const noexcept {
    (void)index;
    return nullptr;
  }

  // Another number once the memory that a program keeps between requests has been lost: a request
  // has used that of one number if it is the same before start() and at the request's end.
  [[nodiscard]] virtual uint64_t memory_number() const noexcept { return 0; }

  // How often a part of it was made anew because a run of it had failed. For tests and statistics.
  [[nodiscard]] virtual uint64_t times_rebuilt() const noexcept { return 0; }
};

// A model as loaded once; instances of it are made for each worker.
class LoadedModel {
 public:
  virtual ~LoadedModel() = default;
  [[nodiscard]] virtual const ModelMetadata& metadata() const noexcept = 0;
  // `batch_sizes`: sizes of the first axis that the engine means to run often, beside those of the
  // model's own options; a backend may compile for them, and must run them in any case.
  [[nodiscard]] virtual Result<std::unique_ptr<Instance>> create_instance(
      std::span<const uint32_t> batch_sizes) = 0;
};

// The engine's freedom with a backend's instances.
struct BackendTraits {
  // A call takes as long in the next process on this CPU, so that times are worth keeping.
  bool has_lasting_costs = false;
  // One instance of a model serves all threads that run it: its start() is called by several
  // threads at once, and max_in_flight() is the number of requests that each of them may have
  // pending.
  bool shares_instances = false;
  // load() and create_instance() may be called by several threads at once, for one model too.
  bool loads_in_parallel = false;
  // An instance with several in flight gets packed requests too. Otherwise it is taken to overlap
  // single ones itself, and nothing is packed for it.
  bool batches_in_flight = false;
  // Computes each operator as ONNX defines it: where answers differ, or can't be compared, it
  // serves.
  bool is_reference = false;
  // Its models are programs, which may keep memory from one request to the next.
  bool runs_programs = false;
  // Computes each place of the first axis by itself, for any model: requests may be run in one
  // call.
  bool has_independent_rows = false;
  // Serves graphs: "auto" may give it one, after a trial in a process of its own. Otherwise it
  // serves the models that name it.
  bool reads_graphs = true;
  // Makes the model's numbers of pixels in its graph: with ModelOptions::pictures, load() gives a
  // model of which these inputs have the shape and type of pixels (PictureInput::pixel_shape()).
  bool prepares_pictures = false;
  // Operators that are known to be computed as ONNX defines them: "auto" gives it no other.
  // nullptr: all.
  const OperatorTable* operators = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;  // as config.json has it
  [[nodiscard]] virtual std::string description() const = 0;  // for the banner: name, version
  // Whether this machine has the device that it needs, and the reason if not: then "auto" passes it
  // over without a word, and load() says the reason. By several threads at once.
  [[nodiscard]] virtual Status availability() const { return {}; }
  [[nodiscard]] virtual BackendTraits traits() const noexcept { return {}; }
  [[nodiscard]] virtual Result<std::unique_ptr<LoadedModel>> load(const ModelSource& source) = 0;
  // Offers a region in which request data will lie, at any time, requests running or not: a device
  // backend pins it. Until unregister_memory(), which comes when no request lies there any more.
  [[nodiscard]] virtual Status register_memory(std::span<std::byte> region) {
    (void)region;
    return {};
  }
  virtual void unregister_memory(std::span<std::byte> region) noexcept { (void)region; }
};

}  // namespace lumen::models
