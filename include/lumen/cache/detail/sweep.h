// Which of a group's 16 deadlines have ended: by AVX-512, AVX2 or one by one, as the CPU has it.
// Threads: any. Memory: none. Errors: never.
#pragma once

#include <lumen/cache/detail/deadlines.h>

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lumen::cache {

// A bit for each of the 16 whose tick is at most `now`. Ticks are below 2^63.
using EndedMask = uint32_t (*)(const DeadlineId* ids, const uint64_t* ticks, uint64_t now) noexcept;

[[nodiscard]] inline uint32_t ended_mask_portable(const DeadlineId* ids, const uint64_t* ticks,
                                                  uint64_t now) noexcept {
  uint32_t mask = 0;
  for (size_t i = 0; i < 16; ++i) mask |= uint32_t{ticks[ids[i]] <= now} << i;
  return mask;
}

#if defined(__x86_64__)
[[nodiscard, gnu::target("avx2")]] inline uint32_t ended_mask_avx2(const DeadlineId* ids,
                                                                   const uint64_t* ticks,
                                                                   uint64_t now) noexcept {
  const __m256i limit = _mm256_set1_epi64x(static_cast<long long>(now));
  const auto* table = reinterpret_cast<const long long*>(ticks);
  uint32_t mask = 0;
  for (int i = 0; i < 4; ++i) {
    const __m128i narrow = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(ids + 4 * i));
    const __m256i found = _mm256_i32gather_epi64(table, _mm_cvtepu16_epi32(narrow), 8);
    const __m256i later = _mm256_cmpgt_epi64(found, limit);
    const auto bits = static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(later)));
    mask |= (~bits & 0xfu) << (4 * i);
  }
  return mask;
}

[[nodiscard, gnu::target("avx512f,avx2")]] inline uint32_t ended_mask_avx512(
    const DeadlineId* ids, const uint64_t* ticks, uint64_t now) noexcept {
  const __m512i limit = _mm512_set1_epi64(static_cast<long long>(now));
  const __m256i low = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(ids)));
  const __m256i high =
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(ids + 8)));
  const uint32_t first =
      _mm512_cmple_epu64_mask(_mm512_mask_i32gather_epi64(limit, 0xff, low, ticks, 8), limit);
  const uint32_t second =
      _mm512_cmple_epu64_mask(_mm512_mask_i32gather_epi64(limit, 0xff, high, ticks, 8), limit);
  return first | second << 8;
}
#endif

[[nodiscard]] inline EndedMask choose_ended_mask() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return ended_mask_avx512;
  if (__builtin_cpu_supports("avx2")) return ended_mask_avx2;
#endif
  return ended_mask_portable;
}
inline const EndedMask ended_mask = choose_ended_mask();

}  // namespace lumen::cache
