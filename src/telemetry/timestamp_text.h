// TimestampText: a time of the wall clock as 2026-11-21T01:43:27.123456Z. It keeps the text of the
// last second, since the lines of a busy server have few.
// Threads: one at a time. Memory: 40 bytes. Errors: never.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace lumen::telemetry::detail {

class TimestampText {
 public:
  static constexpr size_t kBytes = 27;

  // Writes at `out`, and may write one byte behind; where it ended. `wall_ns`: since the epoch, of
  // the years 0 to 9999.
  [[nodiscard]] char* put(char* out, int64_t wall_ns) noexcept;

 private:
  void keep(int64_t second) noexcept;

  int64_t second_ = std::numeric_limits<int64_t>::min();  // none yet
  std::array<char, 20> text_{};                           // of that second, with the point
};

}  // namespace lumen::telemetry::detail
