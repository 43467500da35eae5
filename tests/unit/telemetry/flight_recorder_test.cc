// FlightRecorder: which requests are kept, where, and for how long; a reader's view of it
// meanwhile.
// Threads: one, and with a reader two. Memory: a ring and a set of windows. Errors: by gtest.
#include <lumen/telemetry/flight_reader.h>
#include <lumen/telemetry/flight_recorder.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "csv.h"
#include "support/stress.h"

namespace lumen::telemetry {
namespace {

// A region that has a head and the flight recorder of one shard.
struct Region {
  RegionHead head;
  alignas(kFlightHeadBytes) FlightRing ring;
  FlightWindows windows;

  Region() {
    const auto offset_of = [this](const void* part) {
      return static_cast<uint64_t>(static_cast<const char*>(part) - reinterpret_cast<char*>(this));
    };
    head.recent = {offset_of(&ring), sizeof ring, 1};
    head.slow = {offset_of(&windows), sizeof windows, 1};
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)); }
};

RequestRecord slow_request(uint64_t sequence, uint64_t total_ns) {
  RequestRecord record = record_number(sequence);
  record.stage_ns[static_cast<size_t>(Stage::kTotal)] = total_ns;
  return record;
}

constexpr uint64_t kBegin = 1'000 * kSlowWindowNs;  // of a window, like most of a server's

class FlightRecorderTest : public testing::Test {
 protected:
  void record(uint64_t sequence, uint64_t total_ns, uint64_t now_ns = kBegin) {
    recorder.record(slow_request(sequence, total_ns), 1, now_ns);
  }
  std::vector<FlightRecord> recent() const { return read_recent(region->bytes(), 0); }
  std::vector<SlowRequests> slow() const { return read_slow(region->bytes(), 0); }
  // Of the window of that number; of the whole life without one.
  std::vector<uint64_t> totals(uint64_t window = FlightWindow::kWholeLife) const {
    std::vector<uint64_t> found;
    for (const SlowRequests& one : slow()) {
      if (one.window != window) continue;
      for (const FlightRecord& entry : one.requests) found.push_back(entry.request.stage_ns[7]);
    }
    return found;
  }

  const std::unique_ptr<Region> region = std::make_unique<Region>();
  FlightRecorder recorder{std::as_writable_bytes(std::span(&region->ring, 1)),
                          std::as_writable_bytes(std::span(&region->windows, 1))};
};

// --- entries and the ring ------------------------------------------------------------------------

TEST_F(FlightRecorderTest, NothingIsThereAtFirst) {
  EXPECT_TRUE(recent().empty());
  ASSERT_EQ(slow().size(), 1u);
  EXPECT_EQ(slow()[0].window, FlightWindow::kWholeLife);
  EXPECT_TRUE(slow()[0].requests.empty());
}

TEST_F(FlightRecorderTest, AnEntryHoldsAllOfARecordAndTheGenerationOfItsModel) {
  RequestRecord request = slow_request(7, 8);
  request.model = 3;
  request.worker = RequestRecord::kNone;
  request.cache_use = CacheUse::kShared;
  request.transport = TransportKind::kGrpc;
  request.traceparent = traceparent_number(9);
  set_id(request, "an id");
  recorder.record(request, 42, kBegin);
  ASSERT_EQ(recent().size(), 1u);
  EXPECT_EQ(recent()[0].generation, 42u);
  EXPECT_EQ(std::memcmp(&recent()[0].request, &request, sizeof request), 0);
  EXPECT_EQ(std::memcmp(&slow()[0].requests.at(0).request, &request, sizeof request), 0);
}

// Byte by byte, as docs/formats/counters.md has it.
TEST_F(FlightRecorderTest, AnEntryLiesAsItsPageSays) {
  RequestRecord request = slow_request(0x0102030405060708, 0x1112);
  request.model = 0x2122;
  request.status = 504;
  request.cache_use = CacheUse::kHit;
  request.transport = TransportKind::kBus;
  request.traceparent = traceparent_number(9);
  recorder.record(request, 0x31, kBegin);
  const auto* ring = reinterpret_cast<const unsigned char*>(&region->ring);
  const unsigned char* entry = ring + 64;
  const auto number = [](const unsigned char* at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; --i) value = value << 8 | at[i];
    return value;
  };
  EXPECT_EQ(number(ring, 8), 1u);
  EXPECT_EQ(number(entry, 8), 2u);
  EXPECT_EQ(number(entry + 8, 8), 0x0102030405060708u);
  EXPECT_EQ(number(entry + 16, 8), static_cast<uint64_t>(request.received_wall_ns));
  EXPECT_EQ(number(entry + 24, 8), UINT64_MAX) << "no connect";
  EXPECT_EQ(number(entry + 24 + 7 * 8, 8), 0x1112u);
  EXPECT_EQ(number(entry + 88, 4), request.rows);
  EXPECT_EQ(number(entry + 92, 2), 0x2122u);
  EXPECT_EQ(number(entry + 94, 2), request.worker);
  EXPECT_EQ(number(entry + 96, 2), 504u);
  EXPECT_EQ(entry[141], 0x31u);
  EXPECT_EQ(entry[142], 1u);
  EXPECT_EQ(entry[143], 1u);
  EXPECT_EQ(entry[144], 0xa0u);
  EXPECT_EQ(entry[160 + 7], 9u);
  EXPECT_EQ(number(entry + 168, 8), 0x31u);
  EXPECT_EQ(number(entry + 176, 8) | number(entry + 184, 8), 0u);
  const auto* windows = reinterpret_cast<const unsigned char*>(&region->windows);
  EXPECT_EQ(number(windows, 8), UINT64_MAX);
  EXPECT_EQ(number(windows + 8, 8), 1u);
  EXPECT_EQ(number(windows + 64 + 8, 8), 0x0102030405060708u);
  const auto* now = windows + (1 + 1000 % (kSlowWindows - 1)) * (kSlowBytes / kSlowWindows);
  EXPECT_EQ(number(now, 8), 1000u);
  EXPECT_EQ(number(now + 8, 8), 1u);
}

TEST_F(FlightRecorderTest, TheRingHasTheLastOfThemInTheirOrder) {
  const uint64_t count = 3 * kRecentEntries + 5;
  for (uint64_t i = 0; i < count; ++i) {
    record(i, 1);
    const std::vector<FlightRecord> found =
        i < 3 || i + 3 > count ? recent() : std::vector<FlightRecord>();
    if (found.empty()) continue;
    ASSERT_EQ(found.size(), std::min<uint64_t>(i + 1, kRecentEntries));
    for (size_t k = 0; k < found.size(); ++k) {
      ASSERT_EQ(found[k].request.sequence, i + 1 - found.size() + k);
    }
  }
}

TEST_F(FlightRecorderTest, AnEntryWhoseWriterWasStoppedInItIsLeftOut) {
  for (uint64_t i = 0; i < 3; ++i) record(i, i);
  auto* mark = reinterpret_cast<std::atomic<uint64_t>*>(&region->ring.entries[1]);
  mark->fetch_add(1, std::memory_order_relaxed);
  ASSERT_EQ(recent().size(), 2u);
  EXPECT_EQ(recent()[0].request.sequence, 0u);
  EXPECT_EQ(recent()[1].request.sequence, 2u);
}

// --- the slowest ---------------------------------------------------------------------------------

TEST_F(FlightRecorderTest, TheSlowestAreKeptInAnyOrder) {
  const uint64_t seed = test::stress_seed();
  std::mt19937_64 random(seed);
  for (const bool shuffled : {false, true}) {
    std::vector<uint64_t> all(1000);
    for (size_t i = 0; i < all.size(); ++i) all[i] = 10 + i;
    if (shuffled) std::ranges::shuffle(all, random);
    const uint64_t window = shuffled ? 1001 : 1000;
    for (const uint64_t total : all) record(1, total, window * kSlowWindowNs);
    std::ranges::sort(all, std::greater());
    all.resize(kSlowEntries);
    EXPECT_EQ(totals(window), all) << shuffled;
  }
}

TEST_F(FlightRecorderTest, WhileThereIsRoomEveryRequestIsKeptAlsoOneThatTookNoTime) {
  for (uint64_t i = 0; i < kSlowEntries; ++i) record(i, 0);
  EXPECT_EQ(totals().size(), kSlowEntries);
}

TEST_F(FlightRecorderTest, OneAsSlowAsTheLeastTakesNoPlace) {
  for (uint64_t i = 0; i < kSlowEntries; ++i) record(i, 100 + i % 2);
  record(1000, 100);
  EXPECT_TRUE(std::ranges::none_of(
      slow()[0].requests, [](const FlightRecord& one) { return one.request.sequence == 1000; }));
  record(1001, 101);
  EXPECT_EQ(std::ranges::count(totals(), 101u), kSlowEntries / 2 + 1);
}

TEST_F(FlightRecorderTest, TheLeastGivesWayEachTime) {
  for (uint64_t i = 0; i < kSlowEntries; ++i) record(i, 50);
  for (uint64_t i = 0; i < 2 * kSlowEntries; ++i) {
    record(1000 + i, 100 + i);
    const std::vector<uint64_t> now = totals();
    ASSERT_EQ(now.size(), kSlowEntries);
    ASSERT_EQ(now.front(), 100 + i);
    ASSERT_EQ(std::ranges::count(now, 50u), i < kSlowEntries ? kSlowEntries - 1 - i : 0);
  }
}

TEST_F(FlightRecorderTest, ATotalBeyondAllBoundsIsKeptToo) {
  for (uint64_t i = 0; i < 2 * kSlowEntries; ++i) record(i, UINT64_MAX);
  EXPECT_EQ(totals().size(), kSlowEntries);
}

// --- windows -------------------------------------------------------------------------------------

TEST_F(FlightRecorderTest, AWindowLastsItsTimeAndTheWholeLifeGoesOn) {
  record(1, 900, kBegin);
  record(2, 800, kBegin + kSlowWindowNs - 1);
  record(3, 700, kBegin + kSlowWindowNs);
  EXPECT_EQ(totals(1000), (std::vector<uint64_t>{900, 800}));
  EXPECT_EQ(totals(1001), (std::vector<uint64_t>{700}));
  EXPECT_EQ(totals(), (std::vector<uint64_t>{900, 800, 700}));
  ASSERT_EQ(slow().size(), 3u);
  EXPECT_EQ(slow()[0].window, FlightWindow::kWholeLife);
  EXPECT_EQ(slow()[1].window, 1001u);
  EXPECT_EQ(slow()[2].window, 1000u);
}

TEST_F(FlightRecorderTest, TheOldestWindowIsEmptiedForTheNewestAlone) {
  for (uint64_t i = 0; i < 20; ++i) {
    for (uint64_t k = 0; k < 40; ++k) record(i, 1000 * i + k, kBegin + i * kSlowWindowNs);
    std::vector<uint64_t> wanted;
    for (uint64_t n = 0; n < std::min<uint64_t>(i + 1, kSlowWindows - 1); ++n) {
      wanted.push_back(1000 + i - n);
    }
    std::vector<uint64_t> found;
    for (const SlowRequests& one : slow()) {
      if (one.window == FlightWindow::kWholeLife) continue;
      found.push_back(one.window);
      ASSERT_EQ(one.requests.size(), kSlowEntries);
      for (const FlightRecord& entry : one.requests) {
        ASSERT_EQ(entry.request.sequence, one.window - 1000);
      }
    }
    ASSERT_EQ(found, wanted);
  }
}

TEST_F(FlightRecorderTest, ANewWindowTakesRequestsFasterThanAllBefore) {
  for (uint64_t i = 0; i < 100; ++i) record(i, 1'000'000 + i);
  record(100, 5, kBegin + kSlowWindowNs);
  EXPECT_EQ(totals(1001), (std::vector<uint64_t>{5}));
  EXPECT_TRUE(std::ranges::none_of(totals(), [](uint64_t total) { return total == 5; }));
}

TEST_F(FlightRecorderTest, AfterAPauseOldWindowsHaveTheirOldNumbers) {
  record(1, 10, kBegin);
  record(2, 20, kBegin + kSlowWindowNs);
  const uint64_t much_later = 1001 + 600;  // at the place of 1001
  ASSERT_EQ(much_later % (kSlowWindows - 1), 1001 % (kSlowWindows - 1));
  record(3, 30, much_later * kSlowWindowNs);
  EXPECT_EQ(totals(1000), (std::vector<uint64_t>{10}));
  EXPECT_TRUE(totals(1001).empty());
  EXPECT_EQ(totals(much_later), (std::vector<uint64_t>{30}));
}

TEST_F(FlightRecorderTest, AMomentBeforeTheWindowBeganStaysInIt) {
  record(1, 10, kBegin + kSlowWindowNs);
  record(2, 20, kBegin + kSlowWindowNs - 1);  // taken for a turn's replies a moment earlier
  EXPECT_EQ(totals(1001), (std::vector<uint64_t>{20, 10}));
}

// --- a reader meanwhile --------------------------------------------------------------------------

// All of its words follow from its sequence, so that words of two requests in one entry are found.
RequestRecord woven(uint64_t sequence) {
  std::array<uint64_t, sizeof(RequestRecord) / 8> words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = (sequence << 8) + i;
  words[0] = sequence;
  words[2 + static_cast<size_t>(Stage::kTotal)] = sequence;
  return std::bit_cast<RequestRecord>(words);
}

bool is_whole(const FlightRecord& entry) {
  const RequestRecord wanted = woven(entry.request.sequence);
  return entry.generation == ~entry.request.sequence &&
         std::memcmp(&entry.request, &wanted, sizeof wanted) == 0;
}

TEST_F(FlightRecorderTest, AReaderFindsWholeEntriesAloneAndEachWindowsOwn) {
  const uint64_t count = test::stress_count(2'000'000);
  constexpr uint64_t kPerWindow = 500;
  std::atomic<bool> is_over{false};
  uint64_t looks = 0;
  uint64_t entries = 0;
  std::thread reader([&] {
    // relaxed: only an end
    while (!is_over.load(std::memory_order_relaxed)) {
      ++looks;
      for (const FlightRecord& one : recent()) {
        ASSERT_TRUE(is_whole(one)) << one.request.sequence;
        ++entries;
      }
      for (const SlowRequests& window : slow()) {
        for (const FlightRecord& one : window.requests) {
          ASSERT_TRUE(is_whole(one)) << one.request.sequence;
          if (window.window == FlightWindow::kWholeLife) continue;
          ASSERT_EQ(window.window, one.request.sequence / kPerWindow);
        }
      }
    }
  });
  for (uint64_t i = 0; i < count; ++i) {
    recorder.record(woven(i), ~i, i / kPerWindow * kSlowWindowNs);
  }
  is_over.store(true, std::memory_order_relaxed);
  reader.join();
  std::printf("%llu looks, %llu entries\n", static_cast<unsigned long long>(looks),
              static_cast<unsigned long long>(entries));
  EXPECT_EQ(recent().size(), kRecentEntries);
  EXPECT_GT(looks, 0u);
}

}  // namespace
}  // namespace lumen::telemetry
