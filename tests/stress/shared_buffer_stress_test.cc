// SharedBuffer under many threads: each record exactly once, in order per writer, every byte of
// every buffer accounted for; in all modes, with writers that come, go and vanish.
// Threads: up to 8 writers and a flusher. Memory: buffers of 4 KiB. Errors: by gtest and the seed.
#include "support/stress.h"

#include <lumen/base/clock.h>
#include <lumen/memory/shared_buffer.h>

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace lumen {
namespace {

using Mode = SharedBuffer::Mode;
using WhenFull = SharedBuffer::WhenFull;

// A record names itself, so that the flusher can read a run of them without being told the sizes.
struct Head {
  uint32_t bytes;
  uint16_t writer;
  uint16_t magic;
  uint64_t number;
};
constexpr uint16_t kMagic = 0x4c53;

struct Checker {
  explicit Checker(size_t writers) : next(writers) {}

  static void flush(void* context, const SharedBuffer::Flushed& f) noexcept {
    static_cast<Checker*>(context)->check(f);
  }
  void check(const SharedBuffer::Flushed& f) {
    EXPECT_EQ(f.sequence, buffers);
    ++buffers;
    missing += f.missing_bytes;
    for (const SharedBuffer::Extent& run : f.records) {
      for (size_t at = run.begin; at < run.begin + run.bytes;) {
        Head head;
        std::memcpy(&head, &f.bytes[at], sizeof(head));
        if (head.magic != kMagic || head.writer >= next.size() || head.bytes < sizeof(head)) {
          ++broken;
          break;
        }
        // Dense: in the order of reservation, so in order per writer. A chunk of a writer is left
        // before its next one begins, so there as well.
        if (head.number < next[head.writer]) ++broken;
        gaps += head.number - next[head.writer];
        next[head.writer] = head.number + 1;
        for (size_t i = sizeof(head); i < head.bytes; ++i) {
          if (f.bytes[at + i] != static_cast<std::byte>(head.number + i)) ++broken;
        }
        ++records;
        bytes += head.bytes;
        at += head.bytes;
      }
    }
  }

  std::vector<uint64_t> next;  // per writer
  uint64_t buffers = 0, records = 0, bytes = 0, broken = 0, gaps = 0, missing = 0;
};

struct Case {
  Mode mode;
  WhenFull when_full;
  bool flush_by_writers;
  bool fence;
};

struct Total {
  uint64_t records = 0, bytes = 0, refused = 0;
};

std::string name_of(const testing::TestParamInfo<Case>& c) {
  return std::string(c.param.mode == Mode::kDense ? "Dense" : "Chunked") +
         (c.param.when_full == WhenFull::kWait ? "Wait" : "Drop") +
         (c.param.flush_by_writers ? "ByWriters" : "ByFlusher") + (c.param.fence ? "" : "Fenced");
}

class SharedBufferStress : public testing::TestWithParam<Case> {
 protected:
  SharedBuffer::Options options(Checker& checker) {
    SharedBuffer::Options o;
    o.mode = GetParam().mode;
    o.when_full = GetParam().when_full;
    o.flush_by_writers = GetParam().flush_by_writers;
    o.asymmetric_fence = GetParam().fence;
    o.buffer_bytes = 4096;
    o.chunk_bytes = 512;
    o.stall_timeout_ns = 10'000'000'000u;  // a preempted thread is no stall
    o.flush = &Checker::flush;
    o.context = &checker;
    return o;
  }
};

// One record; false: refused. Yields between reserve and commit now and then, where it hurts most.
bool write_record(SharedBuffer::Writer& w, uint16_t writer, uint64_t number, std::mt19937& random,
                  Total& total) {
  const uint32_t most = random() % 64 == 0 ? 2000 : 48;
  const auto bytes = static_cast<uint32_t>(sizeof(Head) + random() % most);
  std::byte* memory = w.reserve(bytes);
  if (memory == nullptr) {
    ++total.refused;
    return false;
  }
  const Head head{bytes, writer, kMagic, number};
  std::memcpy(memory, &head, sizeof(head));
  if (random() % 256 == 0) std::this_thread::yield();
  for (size_t i = sizeof(head); i < bytes; ++i) memory[i] = static_cast<std::byte>(number + i);
  w.commit();
  ++total.records;
  total.bytes += bytes;
  return true;
}

TEST_P(SharedBufferStress, HandsOverEachRecordOnceAndInOrderPerWriter) {
  constexpr size_t kWriters = 8;
  const uint64_t records = test::stress_count(200'000);
  const uint64_t seed = test::stress_seed();
  Checker checker(kWriters);
  auto buffer = SharedBuffer::create(options(checker)).value();
  std::array<Total, kWriters> totals;
  std::thread flusher;
  if (!GetParam().flush_by_writers) flusher = std::thread([&] { buffer->run_flusher(); });
  std::vector<std::thread> threads;
  threads.reserve(kWriters);
  for (uint16_t t = 0; t < kWriters; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<uint32_t>(seed + t));
      auto w = buffer->writer().value();
      for (uint64_t i = 0; i < records; ++i) {
        if (!write_record(w, t, i, random, totals[t])) std::this_thread::yield();
        if (random() % 4096 == 0) buffer->seal();
        if (random() % 8192 == 0) w = buffer->writer().value();  // leaves and comes back
      }
    });
  }
  for (std::thread& t : threads) t.join();
  buffer->close();
  if (flusher.joinable()) flusher.join();
  EXPECT_TRUE(buffer->flush(now_ns() + 10'000'000'000u));
  Total sum;
  for (const Total& t : totals) {
    sum.records += t.records;
    sum.bytes += t.bytes;
    sum.refused += t.refused;
  }
  EXPECT_EQ(checker.broken, 0u);
  EXPECT_EQ(checker.records, sum.records);
  EXPECT_EQ(checker.bytes, sum.bytes);
  EXPECT_EQ(checker.missing, 0u);
  const SharedBuffer::Stats stats = buffer->stats();
  EXPECT_EQ(stats.dropped_records, sum.refused);
  EXPECT_EQ(stats.bytes_flushed, sum.bytes + stats.wasted_bytes);
  EXPECT_EQ(stats.buffers_flushed, checker.buffers);
  if (GetParam().when_full == WhenFull::kWait) {
    EXPECT_EQ(sum.refused, 0u);
    EXPECT_EQ(sum.records, kWriters * records);
    EXPECT_EQ(checker.gaps, 0u);
  }
}

// Threads end with a record open, and never come back. The rest goes on, and only their open
// records are missing.
TEST_P(SharedBufferStress, LosesOnlyOpenRecordsOfThreadsThatVanish) {
  constexpr size_t kVanishing = 24;
  constexpr size_t kWriters = 3;
  const uint64_t records = test::stress_count(20'000);
  const uint64_t seed = test::stress_seed();
  Checker checker(kWriters + kVanishing);
  SharedBuffer::Options o = options(checker);
  o.stall_timeout_ns = 2'000'000;
  auto buffer = SharedBuffer::create(o).value();
  std::array<Total, kWriters> totals;
  std::atomic<uint64_t> open_bytes{0};
  std::thread flusher;
  if (!GetParam().flush_by_writers) flusher = std::thread([&] { buffer->run_flusher(); });
  std::vector<std::thread> threads;
  threads.reserve(kWriters);
  for (uint16_t t = 0; t < kWriters; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<uint32_t>(seed + t));
      auto w = buffer->writer().value();
      for (uint64_t i = 0; i < records; ++i) {
        if (!write_record(w, t, i, random, totals[t])) std::this_thread::yield();
      }
    });
  }
  struct alignas(SharedBuffer::Writer) Storage {
    std::byte bytes[sizeof(SharedBuffer::Writer)];
  };
  std::vector<Storage> storage(kVanishing);
  for (size_t v = 0; v < kVanishing; ++v) {
    std::thread([&, v] {
      std::mt19937 random(static_cast<uint32_t>(seed + 1000 + v));
      Total total;
      // Its destructor never runs.
      auto* w =
          ::new (static_cast<void*>(&storage[v])) SharedBuffer::Writer(buffer->writer().value());
      for (uint64_t i = 0; i < random() % 50; ++i) {
        (void)write_record(*w, static_cast<uint16_t>(kWriters + v), i, random, total);
      }
      if (w->reserve(24) != nullptr) {
        open_bytes.fetch_add(24, std::memory_order_relaxed);  // relaxed: joined before it is read
      }
    }).join();
  }
  for (std::thread& t : threads) t.join();
  buffer->close();
  if (flusher.joinable()) flusher.join();
  EXPECT_TRUE(buffer->flush(now_ns() + 20'000'000'000u));
  // A live writer that the scheduler held for longer than 2 ms is reported like one that vanished;
  // its record then comes too late, so "at least" and not "exactly".
  EXPECT_GE(checker.missing, open_bytes.load(std::memory_order_relaxed));  // relaxed: joined
  EXPECT_EQ(buffer->stats().missing_bytes, checker.missing);
  uint64_t written = 0;
  for (const Total& t : totals) written += t.records;
  if (checker.missing == open_bytes.load(std::memory_order_relaxed)) {  // relaxed: joined
    EXPECT_EQ(checker.broken, 0u);
    EXPECT_GE(checker.records, written);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, SharedBufferStress,
                         testing::Values(Case{Mode::kDense, WhenFull::kWait, true, true},
                                         Case{Mode::kDense, WhenFull::kWait, false, true},
                                         Case{Mode::kDense, WhenFull::kDrop, true, true},
                                         Case{Mode::kDense, WhenFull::kDrop, false, true},
                                         Case{Mode::kChunked, WhenFull::kWait, true, true},
                                         Case{Mode::kChunked, WhenFull::kWait, false, true},
                                         Case{Mode::kChunked, WhenFull::kDrop, false, true},
                                         Case{Mode::kChunked, WhenFull::kWait, false, false}),
                         name_of);

}  // namespace
}  // namespace lumen
