// See the header for threads, memory and errors.
#include <lumen/base/trim_heap.h>

#include <malloc.h>

#include <mutex>

namespace lumen {

void trim_heap() noexcept {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  (void)::malloc_trim(0);
}

}  // namespace lumen
