// Opens a model's file as a session of ONNX Runtime, on the CPU or on a device.
// Threads: control plane, several at once. Memory: the session's weights.
// Errors: Status; the library's errors are thrown as Failure.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/backend.h>

#include "backends/onnxruntime/instance.h"
#include "backends/onnxruntime/library.h"

#include <memory>

namespace lumen::backends::onnxruntime {

// Gives a session to a device.
class SessionDevice {
 public:
  virtual ~SessionDevice() = default;
  // Before the session is made. Throws Failure. `shapes_vary`: the model has free axes.
  virtual void append_to(OrtSessionOptions& options, const ModelSource& source,
                         bool shapes_vary) const = 0;
};

// kUnsupported: the file is no ONNX file, or the model asks for bf16. `backend`: for that sentence.
[[nodiscard]] Status check_source(const ModelSource& source, const char* backend);

// `device`: nullptr: the CPU.
[[nodiscard]] Result<std::shared_ptr<const SharedSession>> open_session(
    std::shared_ptr<Library> library, const ModelSource& source, const SessionDevice* device);

}  // namespace lumen::backends::onnxruntime
