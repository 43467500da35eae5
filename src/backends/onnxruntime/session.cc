// See the header.
#include "backends/onnxruntime/session.h"

#include <lumen/base/mapped_file.h>
#include <lumen/onnx/graph.h>

#include "backends/onnxruntime/empty_tensors.h"
#include "backends/onnxruntime/ports.h"
#include "backends/onnxruntime/zip_map.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lumen::backends::onnxruntime {
namespace {

void set(OrtSessionOptions* options, const char* key, const char* value) {
  must(api().AddSessionConfigEntry(options, key, value));
}

// The model runs on the thread that calls it, and nothing of it waits on another.
Owned<OrtSessionOptions> options_for(bool shapes_vary) {
  OrtSessionOptions* made = nullptr;
  must(api().CreateSessionOptions(&made));
  Owned<OrtSessionOptions> options(made);
  must(api().SetIntraOpNumThreads(made, 1));
  must(api().SetInterOpNumThreads(made, 1));
  must(api().SetSessionExecutionMode(made, ORT_SEQUENTIAL));
  must(api().SetSessionGraphOptimizationLevel(made, ORT_ENABLE_ALL));
  set(made, "session.intra_op.allow_spinning", "0");
  set(made, "session.inter_op.allow_spinning", "0");
  // Its arena never gives memory back, and takes a lock that all instances would share.
  must(api().DisableCpuMemArena(made));
  // A plan of memory is kept for each combination of shapes, and never forgotten: only where there
  // is one (onnxruntime issues 5796, 11118).
  if (shapes_vary) must(api().DisableMemPattern(made));
  return options;
}

// A model's file with its ZipMaps cut, and how to open it.
class ModelFile {
 public:
  ModelFile(Library& library, const ModelSource& source)
      : library_(library),
        source_(source),
        mapped_(source.file),
        cut_(cut_zip_maps(mapped_.bytes())) {}

  // Empty, if the library can read the file and the reader can't: then no axis is known to be free,
  // and no output to be computed, which costs a copy.
  [[nodiscard]] onnx::Graph graph() const {
    Result<onnx::Model> model = onnx::read_model(cut_ ? onnx::Bytes(cut_->bytes) : mapped_.bytes());
    return model.ok() ? std::move(model->graph) : onnx::Graph();
  }

  Owned<OrtSession> open(OrtSessionOptions* options) const {
    OrtSession* session = nullptr;
    if (cut_) {
      // Weights in files of their own are beside the model's.
      const std::string folder = source_.file.parent_path().string();
      set(options, "session.model_external_initializers_file_folder_path", folder.c_str());
      must(api().CreateSessionFromArray(&library_.env(), cut_->bytes.data(), cut_->bytes.size(),
                                        options, &session));
    } else {
      must(api().CreateSession(&library_.env(), source_.file.c_str(), options, &session));
    }
    return Owned<OrtSession>(session);
  }

  [[nodiscard]] std::vector<std::string> labels(const std::string& output) const {
    if (!cut_) return {};
    const auto found = cut_->labels.find(output);
    return found == cut_->labels.end() ? std::vector<std::string>() : found->second;
  }

 private:
  Library& library_;
  const ModelSource& source_;
  const MappedFile mapped_;
  const std::optional<CutModel> cut_;
};

}  // namespace

Status check_source(const ModelSource& source, const char* backend) {
  if (source.file.extension() != ".onnx") {
    return Status::error(Code::kUnsupported,
                         "model '%s': %s is not an ONNX file, and the backend %s reads no "
                         "other; \"backend\": \"openvino\" reads model.xml",
                         source.name.c_str(), source.file.filename().c_str(), backend);
  }
  if (source.options.precision == Precision::kBf16) {
    return Status::error(Code::kUnsupported,
                         "model '%s': \"precision\": \"bf16\" is computed by the backend openvino "
                         "only; wanted \"f32\" or \"auto\" with %s",
                         source.name.c_str(), backend);
  }
  return {};
}

Result<std::shared_ptr<const SharedSession>> open_session(std::shared_ptr<Library> library,
                                                          const ModelSource& source,
                                                          const SessionDevice* device) {
  auto shared = std::make_shared<SharedSession>();
  shared->library = std::move(library);
  shared->is_on_device = device != nullptr;
  const ModelFile file(*shared->library, source);
  const onnx::Graph graph = file.graph();
  const bool shapes_vary = onnx::has_free_axes(graph);
  const Owned<OrtSessionOptions> options = options_for(shapes_vary);
  if (device != nullptr) device->append_to(*options, source, shapes_vary);
  shared->session = file.open(options.get());
  Result<Ports> ports = describe(source.name, *shared->session);
  if (!ports.ok()) return ports.status();
  LUMEN_RETURN_IF_ERROR(mark_unranked(source.name, graph, *ports));
  mark_passed_on(graph, *ports);
  shared->ports = std::move(*ports);
  for (Port& port : shared->ports.outputs) port.spec.labels = file.labels(port.spec.name);
  ModelMetadata& metadata = shared->metadata;
  metadata.name = source.name;
  metadata.version = source.version;
  metadata.takes_empty_tensors =
      device == nullptr && takes_empty_tensors(graph, Library::version());
  metadata.platform = "onnxruntime_onnx";  // as the protocol's other servers call it
  for (const Port& port : shared->ports.inputs) metadata.inputs.push_back(port.spec);
  for (const Port& port : shared->ports.outputs) metadata.outputs.push_back(port.spec);
  return std::shared_ptr<const SharedSession>(std::move(shared));
}

}  // namespace lumen::backends::onnxruntime
