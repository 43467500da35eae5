// One worker's way into a session: the values that inputs and outputs are bound to. The session,
// its weights and their packed form belong to all instances of a model.
// Threads: made on one, used by one, its worker's, on which the model runs. Memory: buffers of
// small tensors at construction; ONNX Runtime allocates in each call.
// Errors: a failed run is a Status in the request and leaves nothing behind.
#pragma once

#include <lumen/models/backend.h>

#include "backends/onnxruntime/library.h"
#include "backends/onnxruntime/ports.h"

#include <memory>
#include <string>
#include <vector>

namespace lumen::backends::onnxruntime {

// The parts that instances share. The library outlives the session.
struct SharedSession {
  std::shared_ptr<Library> library;
  Owned<OrtSession> session;
  ModelMetadata metadata;
  Ports ports;
  bool is_on_device = false;
};

[[nodiscard]] std::unique_ptr<Instance> make_instance(std::shared_ptr<const SharedSession> shared);

}  // namespace lumen::backends::onnxruntime
