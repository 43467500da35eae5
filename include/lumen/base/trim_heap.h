// trim_heap: gives memory that was freed back to the kernel, as far as the C library's heap kept
// it.
// Threads: any. Memory: none. Errors: never.
#pragma once

namespace lumen {

// malloc_trim(), by one thread at a time. Its first call initialises glibc's heap, without a lock,
// in a process whose allocations all go elsewhere: to a sanitizer, or to an allocator that is
// preloaded.
void trim_heap() noexcept;

}  // namespace lumen
