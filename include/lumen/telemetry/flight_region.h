// flight_region: how the flight recorder lies in the counters' region: entries, rings of the last
// requests, windows of the slowest. docs/formats/counters.md says the same byte by byte. Zeroes are
// empty ones.
// Threads: one writer, an I/O thread; readers any, also of other processes. Memory: types only.
// Errors: an entry that was not whole when it was looked at is not there.
//
// An entry's mark is odd while it is written. The writer never waits for a reader, nor a reader for
// the writer: a writer that is preempted, or dies, in an entry costs readers that entry.
#pragma once

#include <lumen/telemetry/counter_region.h>
#include <lumen/telemetry/request_record.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace lumen::telemetry {

// The content of an entry.
struct FlightRecord {
  RequestRecord request{};
  uint64_t generation = 0;  // of its model: whether the index still means it
};

class FlightEntry {
 public:
  void write(const RequestRecord& request, uint64_t generation) noexcept {
    // relaxed: this thread alone writes it
    const uint64_t mark = mark_.load(std::memory_order_relaxed);
    // relaxed: the releases below keep it before them
    mark_.store(mark + 1, std::memory_order_relaxed);
    const auto words = std::bit_cast<Words>(request);
    for (size_t i = 0; i < words.size(); ++i) {
      // sync[flight.entry]: release; a reader that sees the word sees the odd mark too
      words_[i].store(words[i], std::memory_order_release);
    }
    // sync[flight.entry]: release; the same of this one, and the even mark the whole entry
    generation_.store(generation, std::memory_order_release);
    mark_.store(mark + 2, std::memory_order_release);  // sync[flight.entry]
  }

  // nullopt: never written, or it was written meanwhile.
  [[nodiscard]] std::optional<FlightRecord> read() const noexcept {
    // sync[flight.entry]: acquire; with the even mark the entry that it stands for, or a later one
    const uint64_t before = mark_.load(std::memory_order_acquire);
    if (before == 0 || before % 2 != 0) return std::nullopt;
    Words words;
    for (size_t i = 0; i < words.size(); ++i) {
      // sync[flight.entry]: acquire; the second look at the mark stays behind it
      words[i] = words_[i].load(std::memory_order_acquire);
    }
    // sync[flight.entry]: acquire; as the words
    const uint64_t generation = generation_.load(std::memory_order_acquire);
    // relaxed: the acquires above keep it behind them
    if (mark_.load(std::memory_order_relaxed) != before) return std::nullopt;
    return FlightRecord{std::bit_cast<RequestRecord>(words), generation};
  }

 private:
  using Words = std::array<uint64_t, sizeof(RequestRecord) / sizeof(uint64_t)>;

  std::atomic<uint64_t> mark_{0};
  std::array<std::atomic<uint64_t>, std::tuple_size_v<Words>> words_{};
  std::atomic<uint64_t> generation_{0};
  [[maybe_unused]] uint64_t reserved_[2] = {};
};

// Request n of an I/O thread, from 0, is entry n modulo their number.
struct alignas(kFlightHeadBytes) FlightRing {
  std::atomic<uint64_t> written{0};
  alignas(kFlightHeadBytes) std::array<FlightEntry, kRecentEntries> entries{};
};

struct alignas(kFlightHeadBytes) FlightWindow {
  static constexpr uint64_t kWholeLife = UINT64_MAX;  // number of the first window of a set

  std::atomic<uint64_t> number{0};  // the time divided by the length of a window
  std::atomic<uint64_t> used{0};
  alignas(kFlightHeadBytes) std::array<FlightEntry, kSlowEntries> entries{};
};

// The first for the whole life of the server, the others in turn.
using FlightWindows = std::array<FlightWindow, kSlowWindows>;

static_assert(sizeof(FlightEntry) == kFlightEntryBytes && sizeof(FlightRing) == kRecentBytes);
static_assert(sizeof(FlightWindows) == kSlowBytes);
static_assert(offsetof(FlightRing, entries) == kFlightHeadBytes);
static_assert(offsetof(FlightWindow, used) == 8 &&
              offsetof(FlightWindow, entries) == kFlightHeadBytes);
static_assert(std::is_standard_layout_v<FlightEntry> && std::is_standard_layout_v<FlightRing>);

}  // namespace lumen::telemetry
