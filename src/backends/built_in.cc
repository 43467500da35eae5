// See the header. A new backend is one block here and a folder beside openvino/.
#include <lumen/backends/built_in.h>

#include <algorithm>
#include <string>

#ifdef LUMEN_WITH_OPENVINO
#include <lumen/backends/openvino.h>
#endif
#ifdef LUMEN_WITH_ONNXRUNTIME
#include <lumen/backends/onnxruntime.h>
#endif

namespace lumen::backends {

std::vector<std::unique_ptr<models::Backend>> built_in() {
  std::vector<std::unique_ptr<models::Backend>> backends;
#ifdef LUMEN_WITH_OPENVINO
  backends.push_back(make_openvino());
#endif
#ifdef LUMEN_WITH_ONNXRUNTIME
  backends.push_back(make_onnxruntime());
#endif
  return backends;
}

std::vector<std::unique_ptr<models::Backend>> with_devices(
    std::span<const models::ExecutionProvider> providers) {
  std::vector<std::unique_ptr<models::Backend>> backends = built_in();
#ifdef LUMEN_WITH_ONNXRUNTIME
  for (const models::ExecutionProvider& one : providers) {
    backends.push_back(make_device_backend(one));
  }
  for (const std::string_view name : {models::kCudaProvider, models::kTensorRtProvider}) {
    if (std::ranges::find(providers, name, &models::ExecutionProvider::name) == providers.end()) {
      backends.push_back(make_device_backend({.name = std::string(name)}));
    }
  }
#else
  (void)providers;
#endif
  return backends;
}

}  // namespace lumen::backends
