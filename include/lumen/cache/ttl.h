// Ttl: how long an entry lives.
// Threads: a value. Memory: none. Errors: none.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <ratio>

namespace lumen::cache {

// Any std::chrono::duration, as nanoseconds. Where std::chrono's own conversion overflows
// (seconds::max(), a thousand years), this one takes the longest time that nanoseconds hold, 292
// years. All that is not above 0, also not-a-number, is 0. A fraction of a nanosecond is one.
class Ttl {
 public:
  template <typename Rep, typename Period>
  // NOLINTNEXTLINE(google-explicit-constructor): a duration is a ttl, and is written as one
  constexpr Ttl(const std::chrono::duration<Rep, Period>& duration) noexcept
      : ns_(nanoseconds_of(duration)) {}

  [[nodiscard]] constexpr uint64_t ns() const noexcept { return ns_; }

 private:
  static constexpr uint64_t kLongestNs = std::numeric_limits<int64_t>::max();

  template <typename Rep, typename Period>
  [[nodiscard]] static constexpr uint64_t nanoseconds_of(
      const std::chrono::duration<Rep, Period>& duration) noexcept {
    using Unit = std::ratio_divide<Period, std::nano>;
    const Rep count = duration.count();
    if (!(count > Rep(0))) return 0;
    if constexpr (std::integral<Rep>) {
      static_assert(sizeof(Rep) <= sizeof(uint64_t));
      __extension__ using Wide = unsigned __int128;  // of the product of any two of 64 bits
      const Wide ns = (static_cast<Wide>(count) * Unit::num + (Unit::den - 1)) / Unit::den;
      return ns < kLongestNs ? static_cast<uint64_t>(ns) : kLongestNs;
    } else {
      using Real = std::chrono::duration<long double, std::nano>;
      const long double ns = Real(duration).count();
      // The longest is no long double everywhere, a power of two is.
      if (ns >= 0x1p63L) return kLongestNs;
      return ns < 1 ? 1 : static_cast<uint64_t>(ns);
    }
  }

  uint64_t ns_;
};

}  // namespace lumen::cache
