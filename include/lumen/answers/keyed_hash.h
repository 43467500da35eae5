// KeyedHash: two hashes of bytes from families that have nothing in common, XXH3 and HighwayHash,
// each of 128 bits and under a secret that this process has drawn: a client can't look for two
// requests that collide. On the reference machine: XXH3 47 GB/s, HighwayHash 12 GB/s; without AVX2
// 19 and 6.
// Threads: any, once it is made. Memory: none. Errors: LUMEN_CHECK where the kernel has no
// randomness.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lumen::answers {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  friend auto operator<=>(const Hash128&, const Hash128&) noexcept = default;
};

class KeyedHash {
 public:
  // Of the kernel's randomness.
  KeyedHash();
  // Always the same: for tests.
  explicit KeyedHash(uint64_t seed) noexcept;

  [[nodiscard]] Hash128 xxh3(std::span<const std::byte> bytes) const noexcept;
  [[nodiscard]] Hash128 highway(std::span<const std::byte> bytes) const noexcept;

 private:
  void pick_kernels() noexcept;

  static constexpr size_t kSecretBytes = 192;  // the size of XXH3's own secret
  using Xxh3 = Hash128 (*)(const std::byte* bytes, size_t size, const std::byte* secret,
                           size_t secret_size) noexcept;
  using Highway = Hash128 (*)(const std::byte* bytes, size_t size, const uint64_t* key) noexcept;

  struct Secret {
    alignas(64) std::array<std::byte, kSecretBytes> xxh3;
    alignas(32) std::array<uint64_t, 4> highway;
  };
  Secret secret_{};
  Xxh3 run_xxh3_ = nullptr;
  Highway run_highway_ = nullptr;
};

}  // namespace lumen::answers
