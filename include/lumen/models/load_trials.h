// LoadTrials: models are loaded and run for the first time where a crash of their backend ends
// nobody else. try_model(): the part that runs there.
// Threads: control plane, several at once. Memory: the heap. Errors: Status.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/backend.h>
#include <lumen/models/backends.h>

#include <atomic>
#include <string_view>

namespace lumen::models {

class LoadTrials {
 public:
  virtual ~LoadTrials() = default;
  // Has try_model() called in another process. ok: that process lives, even if the backend refused
  // the model; kUnavailable: "ended the process ...", for a sentence that begins with the backend;
  // kCancelled: `stop` was set.
  [[nodiscard]] virtual Status try_in_process(const ModelSource& source, std::string_view backend,
                                              const std::atomic<bool>* stop) = 0;
  // No trial is under way, and no model follows for now: the processes of the trials end.
  virtual void end() noexcept = 0;
};

// Loads the model, makes an instance and runs made-up rows, as far as the backend can. Ends the
// process where the backend does.
void try_model(const Backends& backends, std::string_view backend, const ModelSource& source);

}  // namespace lumen::models
