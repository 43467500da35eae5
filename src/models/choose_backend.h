// Chooses the backend of a model: the one that config.json names, the only one that can serve it,
// or, where several can and their answers agree, the faster on this machine.
// Threads: control plane; several at once, with one LoadGate, and one of them measures at a time.
// Memory: the heap; while two backends are compared, both have the model in memory.
// Errors: Status when no backend can serve the model, with the reason of each.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/backend_choice.h>
#include <lumen/models/backends.h>

#include "models/load_gate.h"

#include <memory>

namespace lumen::models {

struct ChosenBackend {
  Backends::Entry* entry = nullptr;
  std::unique_ptr<LoadedModel> loaded;
  BackendChoice choice;
};

// The error of choose_backend() once `options.stop` is set.
[[nodiscard]] inline Status loading_stopped() noexcept {
  return Status::error(Code::kCancelled, "loading was stopped");
}

// `loading`: of this model; it begins before its file is read.
[[nodiscard]] Result<ChosenBackend> choose_backend(Backends& backends, const ModelSource& source,
                                                   const LoadOptions& options,
                                                   LoadGate::Loading& loading);

}  // namespace lumen::models
