// flight_reader: the requests that the flight recorder has kept, read from a counters' region as
// another process reads it: by the tables of its head (docs/formats/counters.md).
// Threads: any, while the server records; nobody waits. Memory: the heap.
// Errors: an entry that is being written, and a window that was emptied meanwhile, are left out.
#pragma once

#include <lumen/telemetry/flight_region.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lumen::telemetry {

// The last requests that the I/O thread `shard` has recorded, oldest first.
[[nodiscard]] std::vector<FlightRecord> read_recent(std::span<const std::byte> region,
                                                    size_t shard);

struct SlowRequests {
  uint64_t window = FlightWindow::kWholeLife;  // or the time divided by the length of a window
  std::vector<FlightRecord> requests{};        // slowest first
};
// Its windows: that of its whole life first, then those that were begun, newest first.
[[nodiscard]] std::vector<SlowRequests> read_slow(std::span<const std::byte> region, size_t shard);

}  // namespace lumen::telemetry
