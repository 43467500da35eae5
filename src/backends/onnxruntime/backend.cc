// The ONNX Runtime backend: a session for each model, which all its instances run, each on its
// worker's own thread. Threads: load() and create_instance() by several. Memory: a session's
// weights once, for any number of instances. Errors: the library's errors become a Status.
#include <lumen/backends/onnxruntime.h>

#include "backends/failure.h"
#include "backends/onnxruntime/instance.h"
#include "backends/onnxruntime/library.h"
#include "backends/onnxruntime/operators.h"
#include "backends/onnxruntime/session.h"

#include <memory>
#include <span>
#include <string>
#include <utility>

namespace lumen::backends::onnxruntime {
namespace {

class OnnxRuntimeModel final : public LoadedModel {
 public:
  explicit OnnxRuntimeModel(std::shared_ptr<const SharedSession> shared)
      : shared_(std::move(shared)) {}

  const ModelMetadata& metadata() const noexcept override { return shared_->metadata; }

  Result<std::unique_ptr<Instance>> create_instance(std::span<const uint32_t>) override {
    return or_failed(Code::kInternal, "starting", shared_->metadata.name,
                     [&]() -> Result<std::unique_ptr<Instance>> { return make_instance(shared_); });
  }

 private:
  const std::shared_ptr<const SharedSession> shared_;
};

class OnnxRuntimeBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "onnxruntime"; }
  std::string description() const override {
    const auto library = Library::open();
    return library.ok() ? "ONNX Runtime " + Library::version() : "ONNX Runtime (not found)";
  }
  BackendTraits traits() const noexcept override {
    return {.has_lasting_costs = true,
            .loads_in_parallel = true,
            .is_reference = true,
            .operators = &kOperators};
  }

  Result<std::unique_ptr<LoadedModel>> load(const ModelSource& source) override {
    LUMEN_RETURN_IF_ERROR(check_source(source, "onnxruntime"));
    Result<std::shared_ptr<Library>> library = Library::open();
    if (!library.ok()) return library.status();
    return or_failed(Code::kUnavailable, "loading", source.name,
                     [&]() -> Result<std::unique_ptr<LoadedModel>> {
                       auto shared = open_session(std::move(*library), source, nullptr);
                       if (!shared.ok()) return shared.status();
                       return std::unique_ptr<LoadedModel>(
                           std::make_unique<OnnxRuntimeModel>(std::move(*shared)));
                     });
  }
};

}  // namespace
}  // namespace lumen::backends::onnxruntime

namespace lumen::backends {

std::unique_ptr<models::Backend> make_onnxruntime() {
  onnxruntime::disable_reports();
  return std::make_unique<onnxruntime::OnnxRuntimeBackend>();
}

}  // namespace lumen::backends
