// XXH3 and HighwayHash for CPUs with AVX2: this file alone is compiled with it. See hash_kernels.h.
#include "answers/hash_kernels.h"

#include "answers/hash_kernels_body.h"

namespace lumen::answers {

Hash128 xxh3_avx2(const std::byte* bytes, size_t size, const std::byte* secret,
                  size_t secret_size) noexcept {
  return run_xxh3(bytes, size, secret, secret_size);
}

Hash128 highway_avx2(const std::byte* bytes, size_t size, const uint64_t* key) noexcept {
  return run_highway(bytes, size, key);
}

}  // namespace lumen::answers
