// The device of tests/device for a test: how ONNX Runtime is told of it, and its settings.
// Threads: any. Memory: the library's own. Errors: a failed check where it can't be loaded.
#pragma once

#include <lumen/base/check.h>
#include <lumen/models/execution_provider.h>

#include "device/control.h"
#include "support/source_dir.h"

#include <dlfcn.h>

#include <map>
#include <string>
#include <utility>

namespace lumen::test {

[[nodiscard]] inline models::ExecutionProvider device_provider(
    std::map<std::string, std::string> options = {}, std::string name = "device") {
  return {.name = std::move(name), .library = device_plugin(), .options = std::move(options)};
}

// The one of this process.
[[nodiscard]] inline device::DeviceControl& device_control() {
  static device::DeviceControl* const control = [] {
    void* library = ::dlopen(device_plugin().c_str(), RTLD_NOW | RTLD_LOCAL);
    LUMEN_CHECK(library != nullptr);
    const auto find =
        reinterpret_cast<decltype(&lumen_device_control)>(::dlsym(library, "lumen_device_control"));
    LUMEN_CHECK(find != nullptr);
    return find();
  }();
  return *control;
}

}  // namespace lumen::test
