// See the header. The secret is drawn once; the kernels follow the CPU.
#include <lumen/answers/keyed_hash.h>

#include <lumen/base/check.h>

#include "answers/hash_kernels.h"

#include <sys/random.h>

#include <random>

namespace lumen::answers {

KeyedHash::KeyedHash() {
  LUMEN_CHECK(::getrandom(&secret_, sizeof(secret_), 0) == sizeof(secret_));
  pick_kernels();
}

KeyedHash::KeyedHash(uint64_t seed) noexcept {
  std::mt19937_64 random(seed);
  for (std::byte& byte : secret_.xxh3) byte = static_cast<std::byte>(random());
  for (uint64_t& word : secret_.highway) word = random();
  pick_kernels();
}

void KeyedHash::pick_kernels() noexcept {
  const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  run_xxh3_ = has_avx2 ? &xxh3_avx2 : &xxh3_base;
  run_highway_ = has_avx2 ? &highway_avx2 : &highway_base;
}

Hash128 KeyedHash::xxh3(std::span<const std::byte> bytes) const noexcept {
  return run_xxh3_(bytes.data(), bytes.size(), secret_.xxh3.data(), secret_.xxh3.size());
}

Hash128 KeyedHash::highway(std::span<const std::byte> bytes) const noexcept {
  return run_highway_(bytes.data(), bytes.size(), secret_.highway.data());
}

}  // namespace lumen::answers
