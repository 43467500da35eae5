// What stands in for the OpenVINO backend where Lumen is built without it (TSan, which can't see into
// the wheel's libraries). Threads, memory: as Backend says. Says no: every load() fails with a reason.
#include <lumen/engine/backend.h>

#ifndef LUMEN_WITH_OPENVINO

namespace lumen::engine {
namespace {

class AbsentBackend final : public Backend {
 public:
  std::string description() const override { return "none (built without OpenVINO)"; }
  Result<std::unique_ptr<LoadedModel>> load(const ModelSource& source) override {
    return Status::error(Code::kUnsupported,
                         "model '%s': this lumen was built without OpenVINO; build it with "
                         "-DLUMEN_WITH_OPENVINO=ON",
                         source.name.c_str());
  }
};

}  // namespace

std::unique_ptr<Backend> make_openvino_backend() { return std::make_unique<AbsentBackend>(); }

}  // namespace lumen::engine

#endif  // LUMEN_WITH_OPENVINO
