// The windows of the slowest requests: how they turn, and which requests are kept. Threads: one.
// Memory: none. Errors: never.
#include <lumen/telemetry/flight_recorder.h>

#include <lumen/base/check.h>

#include <algorithm>

namespace lumen::telemetry {
namespace {

template <typename T>
T& at(std::span<std::byte> memory) noexcept {
  LUMEN_CHECK(memory.size() >= sizeof(T));
  LUMEN_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % alignof(T) == 0);
  return *reinterpret_cast<T*>(memory.data());
}

}  // namespace

FlightRecorder::FlightRecorder(std::span<std::byte> recent, std::span<std::byte> slow) noexcept
    : ring_(at<FlightRing>(recent)), windows_(at<FlightWindows>(slow)) {
  life_.begin(windows_[0], FlightWindow::kWholeLife);
}

// A thread that had no request for a while finds a window in its place that is long over, and
// nobody has emptied: its number tells readers of when it is.
void FlightRecorder::turn(uint64_t now_ns) noexcept {
  const uint64_t number = now_ns / kSlowWindowNs;
  lately_.begin(windows_[1 + number % (kSlowWindows - 1)], number);
  window_end_ns_ = (number + 1) * kSlowWindowNs;
}

void FlightRecorder::Filling::begin(FlightWindow& next, uint64_t number) noexcept {
  window = &next;
  bar = 0;
  used = 0;
  // sync[flight.window]: release; a reader that sees entries or the count of this window sees its
  // number too. Emptied first: a reader that sees the number finds none of the window before.
  next.used.store(0, std::memory_order_release);
  next.number.store(number, std::memory_order_release);  // sync[flight.window]
}

void FlightRecorder::Filling::keep(const RequestRecord& request, uint64_t generation,
                                   uint64_t total) noexcept {
  const bool has_room = used < kSlowEntries;
  const uint32_t place = has_room ? used : least_at;
  window->entries[place].write(request, generation);
  totals[place] = total;
  if (has_room) {
    // sync[flight.window]: release; the entries that are counted
    window->used.store(++used, std::memory_order_release);
    if (used < kSlowEntries) return;
  }
  // Rare: of n requests in any order 32 · ln(n / 32) come here after the first 32, of a million
  // 330.
  const auto least = std::ranges::min_element(totals);
  least_at = static_cast<uint32_t>(least - totals.begin());
  bar = *least + 1;
}

}  // namespace lumen::telemetry
