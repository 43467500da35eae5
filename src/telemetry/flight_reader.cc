// Rings and windows to records. Threads: any. Memory: the heap. Errors: left out, as the header
// says.
#include <lumen/telemetry/flight_reader.h>

#include <lumen/base/check.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

namespace lumen::telemetry {
namespace {

uint64_t total_of(const FlightRecord& one) noexcept {
  return one.request.stage_ns[static_cast<size_t>(Stage::kTotal)];
}

template <typename T>
const T& entry_of(std::span<const std::byte> region, const RegionTable& table, size_t index) {
  LUMEN_CHECK(index < table.count && sizeof(T) <= table.stride);
  const size_t offset = table.offset + index * table.stride;
  LUMEN_CHECK(offset + sizeof(T) <= region.size());
  return *reinterpret_cast<const T*>(region.data() + offset);
}

const RegionHead& head_of(std::span<const std::byte> region) {
  LUMEN_CHECK(region.size() >= sizeof(RegionHead));
  const auto& head = *reinterpret_cast<const RegionHead*>(region.data());
  LUMEN_CHECK(head.magic == RegionHead::kMagic && head.version == RegionHead::kVersion);
  return head;
}

// nullopt: the window was begun anew meanwhile.
std::optional<SlowRequests> read_window(const FlightWindow& window) {
  SlowRequests out;
  // sync[flight.window]: acquire; of a window that was begun its entries, none of the one before
  out.window = window.number.load(std::memory_order_acquire);
  const uint64_t used = window.used.load(std::memory_order_acquire);  // sync[flight.window]
  for (size_t i = 0; i < std::min<uint64_t>(used, kSlowEntries); ++i) {
    if (const auto entry = window.entries[i].read()) out.requests.push_back(*entry);
  }
  // A reader of an entry of the next window sees its number: the entries' acquires are before this.
  // sync[flight.window]: acquire; the number again
  if (window.number.load(std::memory_order_acquire) != out.window) return std::nullopt;
  return out;
}

}  // namespace

std::vector<FlightRecord> read_recent(std::span<const std::byte> region, size_t shard) {
  const auto& ring = entry_of<FlightRing>(region, head_of(region).recent, shard);
  // sync[flight.ring]: acquire; the entries that are counted
  const uint64_t written = ring.written.load(std::memory_order_acquire);
  std::vector<FlightRecord> requests;
  for (uint64_t n = written - std::min<uint64_t>(written, kRecentEntries); n < written; ++n) {
    if (const auto entry = ring.entries[n % kRecentEntries].read()) requests.push_back(*entry);
  }
  // Those that came meanwhile took the place of the oldest.
  std::ranges::sort(requests, {}, [](const FlightRecord& one) { return one.request.sequence; });
  return requests;
}

std::vector<SlowRequests> read_slow(std::span<const std::byte> region, size_t shard) {
  const auto& windows = entry_of<FlightWindows>(region, head_of(region).slow, shard);
  std::vector<SlowRequests> found;
  for (const FlightWindow& window : windows) {
    std::optional<SlowRequests> one = read_window(window);
    if (!one) continue;
    if (one->requests.empty() && one->window != FlightWindow::kWholeLife) continue;
    // Of those that took equally long the first comes first.
    std::ranges::sort(one->requests, std::greater(), [](const FlightRecord& kept) {
      return std::pair(total_of(kept), ~kept.request.sequence);
    });
    found.push_back(*std::move(one));
  }
  // The number of the whole life is the largest there is.
  std::ranges::sort(found, std::greater(), &SlowRequests::window);
  return found;
}

}  // namespace lumen::telemetry
