// The two hashes, compiled for one instruction set each time that this is included:
// hash_kernels_avx2.cc and hash_kernels_base.cc say for which. Header-only on both sides, so
// nothing has to be linked.
// Threads: pure functions. Memory: none. Errors: none.
#pragma once

#include <lumen/answers/keyed_hash.h>

namespace lumen::answers {

// For every CPU that the build runs on.
[[nodiscard]] Hash128 xxh3_base(const std::byte* bytes, size_t size, const std::byte* secret,
                                size_t secret_size) noexcept;
[[nodiscard]] Hash128 highway_base(const std::byte* bytes, size_t size,
                                   const uint64_t* key) noexcept;
// Only where the CPU has AVX2.
[[nodiscard]] Hash128 xxh3_avx2(const std::byte* bytes, size_t size, const std::byte* secret,
                                size_t secret_size) noexcept;
[[nodiscard]] Hash128 highway_avx2(const std::byte* bytes, size_t size,
                                   const uint64_t* key) noexcept;

}  // namespace lumen::answers
