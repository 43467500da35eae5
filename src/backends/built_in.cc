// See the header. A new backend is one block here and a folder beside openvino/.
#include <lumen/backends/built_in.h>

#ifdef LUMEN_WITH_OPENVINO
#include <lumen/backends/openvino.h>
#endif

namespace lumen::backends {

std::vector<std::unique_ptr<engine::Backend>> built_in() {
  std::vector<std::unique_ptr<engine::Backend>> backends;
#ifdef LUMEN_WITH_OPENVINO
  backends.push_back(make_openvino());
#endif
  return backends;
}

}  // namespace lumen::backends
