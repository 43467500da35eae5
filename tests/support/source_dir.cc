// See the header for threads, memory and errors.
#include "support/source_dir.h"

namespace lumen::test {

std::filesystem::path source_path(const std::filesystem::path& relative) {
  return std::filesystem::path(LUMEN_SOURCE_DIR) / relative;
}

#ifdef LUMEN_WITH_TEST_DEVICE
std::filesystem::path device_plugin() { return LUMEN_TEST_DEVICE; }
#endif

}  // namespace lumen::test
