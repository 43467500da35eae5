// The backend "python": runs <version>/model.py in a process of its own, over the bus. Each model
// has one process, so a fault or a stall of its code is never the server's; a process that dies is
// started again. The form of model.py: python/lumen_engine/step.py.
// Threads: as models::Backend says; a loaded model has one thread, which takes the replies.
// Memory: two rings of shared memory for each model. Errors: as models::Backend says.
#pragma once

#include <lumen/models/backend.h>

#include <functional>
#include <memory>
#include <string>

namespace lumen::backends {

struct PythonOptions {
  // A path, or a name on PATH; empty: model.py is not served, since it is a program.
  std::string interpreter;
  // A folder with the package lumen_engine, put before PYTHONPATH; empty: the interpreter has it.
  std::string package_folder;
  // Told, for the log, when a process has ended and when it is ready again. By a model's own
  // thread.
  std::function<void(const std::string& text)> tell = {};
};

[[nodiscard]] std::unique_ptr<models::Backend> make_python(PythonOptions options);

}  // namespace lumen::backends
