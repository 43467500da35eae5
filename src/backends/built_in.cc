// See the header. A new backend is one block here and a folder beside openvino/.
#include <lumen/backends/built_in.h>

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

}  // namespace lumen::backends
