// CHECK: our own bug ends the process with the place and the reason. Never for bad input.
// Threads: any. Memory: none. Errors: abort() after one line on stderr.
#pragma once

namespace lumen {
[[noreturn]] void check_failed(const char* file, int line, const char* what) noexcept;
}  // namespace lumen

#define LUMEN_CHECK(condition)                       \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::lumen::check_failed(__FILE__, __LINE__, "CHECK(" #condition ") failed"))

// Compiled out with NDEBUG: for invariants too dear for the data plane.
#ifdef NDEBUG
#define LUMEN_DCHECK(condition) static_cast<void>(sizeof(condition))
#else
#define LUMEN_DCHECK(condition) LUMEN_CHECK(condition)
#endif
