// The body of both hash_kernels_*.cc. Everything here has internal linkage or a name by the
// instruction set (HighwayHash's states), so that no function that was compiled with AVX2 stands in
// for one without.
// Threads: pure functions. Memory: none. Errors: none.
#pragma once

#include <lumen/answers/keyed_hash.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wpedantic"
#define XXH_INLINE_ALL
#include <highwayhash/highwayhash.h>
#include <xxhash.h>
#pragma GCC diagnostic pop

namespace lumen::answers {
namespace {

Hash128 run_xxh3(const std::byte* bytes, size_t size, const std::byte* secret,
                 size_t secret_size) noexcept {
  const XXH128_hash_t hash = XXH3_128bits_withSecret(bytes, size, secret, secret_size);
  return {hash.low64, hash.high64};
}

Hash128 run_highway(const std::byte* bytes, size_t size, const uint64_t* key) noexcept {
  alignas(32) const highwayhash::HHKey own = {key[0], key[1], key[2], key[3]};
  highwayhash::HHStateT<HH_TARGET> state(own);
  highwayhash::HHResult128 result;
  highwayhash::HighwayHashT(&state, reinterpret_cast<const char*>(bytes), size, &result);
  return {result[0], result[1]};
}

}  // namespace
}  // namespace lumen::answers
