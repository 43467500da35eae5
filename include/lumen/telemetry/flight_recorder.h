// FlightRecorder: keeps the last requests of an I/O thread and its slowest, always, so that the
// cause of a slow reply is recorded before a user asks. They lie in the counters' region, and
// outlive a server that hangs or is killed.
//
//   record() ─► ring: the last 1,024
//            ─► windows, 32 each: the slowest of the server's life │ of these ten seconds (and of the five windows before)
//
// Threads: record() by its I/O thread; readers any (flight_reader.h), also of other processes.
// Memory: none; the region's. No lock, no call of the system. Errors: never.
//
// A request is among the slowest of a window if that has room, or if its total is above the least
// total there, which is kept at hand: the usual request costs the write into the ring and three
// compares.
#pragma once

#include <lumen/telemetry/flight_region.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lumen::telemetry {

class FlightRecorder {
 public:
  // `recent`: kRecentBytes, `slow`: kSlowBytes; zeroes, aligned to kFlightHeadBytes, that outlive
  // it.
  FlightRecorder(std::span<std::byte> recent, std::span<std::byte> slow) noexcept;
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // `generation`: Counters::generation() of its model. `now_ns`: of CLOCK_MONOTONIC, when its reply
  // was out.
  void record(const RequestRecord& request, uint64_t generation, uint64_t now_ns) noexcept {
    // relaxed: this thread alone writes it
    const uint64_t number = ring_.written.load(std::memory_order_relaxed);
    ring_.entries[number % kRecentEntries].write(request, generation);
    // sync[flight.ring]: release; the entry of each request that is counted
    ring_.written.store(number + 1, std::memory_order_release);
    const uint64_t total = request.stage_ns[static_cast<size_t>(Stage::kTotal)];
    if (now_ns >= window_end_ns_) turn(now_ns);
    if (total >= life_.bar) life_.keep(request, generation, total);
    if (total >= lately_.bar) lately_.keep(request, generation, total);
  }

 private:
  // A window that is being filled.
  struct Filling {
    FlightWindow* window = nullptr;
    uint64_t bar =
        0;  // a total from here on is kept: 0 while there is room, then one above the least
    uint32_t least_at = 0;  // place of the least, once it is full
    uint32_t used = 0;
    std::array<uint64_t, kSlowEntries> totals{};  // of the entries, by their places

    // Empties it.
    void begin(FlightWindow& next, uint64_t number) noexcept;
    void keep(const RequestRecord& request, uint64_t generation, uint64_t total) noexcept;
  };

  void turn(uint64_t now_ns) noexcept;

  FlightRing& ring_;
  FlightWindows& windows_;
  uint64_t window_end_ns_ = 0;
  Filling life_;
  Filling lately_;
};

}  // namespace lumen::telemetry
