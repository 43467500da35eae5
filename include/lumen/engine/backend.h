// Backend: what can run a model. The narrow face between Lumen and OpenVINO (or whatever follows).
// Threads: load() and create_instance() on the control plane, one at a time unless
// compiles_in_parallel(); an Instance is made on one thread, runs on another, one at a time. Memory: backends allocate as they like in load/create_instance/start; Lumen's own
// zero-allocation rule ends at start(). Says no: Result; a failed inference goes into
// InferRequest::status. No exception crosses this face.
#pragma once

#include <lumen/base/result.h>
#include <lumen/engine/infer_request.h>
#include <lumen/engine/metadata.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lumen::engine {

enum class Precision : uint8_t {
  kF32,   // exact: results equal the framework's own, bit for bit
  kBf16,  // half the memory traffic, about three digits
  kAuto,  // what the backend holds fastest on this machine
};

// From the model's own config.json (all optional).
struct ModelOptions {
  Precision precision = Precision::kF32;
  // Sizes of the first axis that get a static-shape compile; others run on the dynamic one.
  std::vector<uint32_t> batch_sizes = {1};
  // Kernels prepared for shapes seen before that an instance keeps, of each kind of operation, where
  // the model has free axes. Measured in docs/configuration.md.
  uint32_t shape_cache = kDefaultShapeCache;
  static constexpr uint32_t kDefaultShapeCache = 64;
};

struct ModelSource {
  std::string name;
  std::string version;
  std::filesystem::path file;  // model.onnx or model.xml
  ModelOptions options;
};

enum class StartOutcome : uint8_t {
  kDone,     // outputs (or status) are in the request; the caller completes it
  kPending,  // the backend will fill the request and call `done` from a thread of its own
};

// One compiled model with its memory, owned by one worker.
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

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string description() const = 0;  // for the banner: name, version
  [[nodiscard]] virtual Result<std::unique_ptr<LoadedModel>> load(const ModelSource& source) = 0;
  // Whether create_instance() may be called by several threads at once, for one model too.
  [[nodiscard]] virtual bool compiles_in_parallel() const noexcept { return false; }
  // Alignment that start() needs of input data, in bytes. 64 is what the arenas give anyway.
  [[nodiscard]] virtual size_t input_alignment() const noexcept { return 64; }
  // Offers a region in which request data will lie, once at start: a device backend pins it.
  [[nodiscard]] virtual Status register_memory(std::span<std::byte> region) {
    (void)region;
    return {};
  }
};

// Never fails to exist; loading OpenVINO's plugin happens at the first load().
[[nodiscard]] std::unique_ptr<Backend> make_openvino_backend();

}  // namespace lumen::engine
