// The end of the road for a bug of our own. Any thread; async-signal-safe output, no allocation.
#include <lumen/base/check.h>

#include <cstdio>
#include <cstdlib>

namespace lumen {

void check_failed(const char* file, int line, const char* what) noexcept {
  std::fprintf(stderr, "lumen: bug at %s:%d: %s\n", file, line, what);
  std::abort();
}

}  // namespace lumen
