// The devices that ONNX Runtime reaches by its execution providers: CUDA and TensorRT, which are a
// part of it, and plugins.
// Threads: any, several at once. Memory: the heap; a provider's library stays loaded.
// Errors: Status with the library's own words and the way to mend it.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/execution_provider.h>

#include "backends/onnxruntime/library.h"
#include "backends/onnxruntime/session.h"

#include <memory>
#include <string>

namespace lumen::backends::onnxruntime {

class Device : public SessionDevice {
 public:
  // Loads the library of the provider, once. kUnavailable: this machine does not have it.
  [[nodiscard]] virtual Status availability() = 0;
  [[nodiscard]] virtual std::string description() const = 0;  // for the banner
  // That a model is given to. nullptr: the library reaches it without the interface of plugins.
  [[nodiscard]] virtual const OrtEpDevice* ep_device(const ModelOptions&) const { return nullptr; }
};

[[nodiscard]] std::unique_ptr<Device> make_device(const models::ExecutionProvider& provider);

}  // namespace lumen::backends::onnxruntime
