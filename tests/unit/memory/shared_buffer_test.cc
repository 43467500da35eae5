// SharedBuffer, one thread at a time: its refusals, its flushes, when, and with which content.
// Threads: one, or one after another. Memory: small buffers. Errors: by gtest.
#include "unit/memory/shared_buffer_fixture.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lumen {
namespace {

using Mode = SharedBuffer::Mode;
using Refusal = SharedBuffer::Refusal;

SharedBuffer::Options small(Collector& collector, Mode mode = Mode::kDense) {
  SharedBuffer::Options o;
  o.mode = mode;
  o.when_full = SharedBuffer::WhenFull::kDrop;
  o.buffer_bytes = 64;
  o.buffer_count = 2;
  o.max_writers = 4;
  o.chunk_bytes = 16;
  o.flush = &Collector::flush;
  o.context = &collector;
  return o;
}

TEST(SharedBuffer, RefusesImpossibleOptionsAndSaysWhich) {
  Collector c;
  const auto refused = [&](auto change) {
    SharedBuffer::Options o = small(c, Mode::kChunked);
    change(o);
    const Status status = SharedBuffer::create(o).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return std::string(status.message());
  };
  using O = SharedBuffer::Options;
  EXPECT_THAT(refused([](O& o) { o.flush = nullptr; }), testing::HasSubstr("flush function"));
  EXPECT_THAT(refused([](O& o) { o.buffer_bytes = 0; }), testing::HasSubstr("buffer_bytes 0"));
  EXPECT_THAT(refused([](O& o) { o.buffer_bytes = SharedBuffer::kMaxBufferBytes + 1; }),
              testing::HasSubstr("buffer_bytes"));
  for (const size_t count : {0u, 1u, 3u, 32u}) {
    EXPECT_THAT(refused([&](O& o) { o.buffer_count = count; }), testing::HasSubstr("buffer_count"));
  }
  EXPECT_THAT(refused([](O& o) { o.max_writers = 0; }), testing::HasSubstr("max_writers"));
  EXPECT_THAT(refused([](O& o) { o.max_writers = 257; }), testing::HasSubstr("max_writers"));
  EXPECT_THAT(refused([](O& o) { o.chunk_bytes = 0; }), testing::HasSubstr("chunk_bytes"));
  EXPECT_THAT(refused([](O& o) { o.chunk_bytes = 48; }), testing::HasSubstr("chunk_bytes 48"));
}

TEST(SharedBuffer, UsesTheCallersMemoryAndNoMore) {
  Collector c;
  std::vector<std::byte> memory(64 * 2 + 8, std::byte{0xee});
  const SharedBuffer::Options o = small(c);
  EXPECT_FALSE(SharedBuffer::create(o, std::span(memory).first(127)).ok());
  auto buffer = SharedBuffer::create(o, std::span(memory)).value();
  {
    auto w = buffer->writer().value();
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(put(w, std::string(16, static_cast<char>('a' + i))));
  }
  EXPECT_EQ(std::count(memory.begin() + 128, memory.end(), std::byte{0xee}), 8);
  for (const std::byte* at : c.addresses) {
    EXPECT_TRUE(at == memory.data() || at == memory.data() + 64);
  }
}

// The figure of `lumen bench shared-buffer`, 8 × 256,000 × 16 bytes into 1 MiB buffers, scaled down
// by 1,000: 31 full buffers and a quarter.
TEST(SharedBuffer, DenseLeavesNoByteBetweenRecordsNorAtTheEnd) {
  Collector c;
  SharedBuffer::Options o = small(c);
  o.buffer_bytes = 1024;
  auto buffer = SharedBuffer::create(o).value();
  auto w = buffer->writer().value();
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(put(w, std::string(16, 'x')));
  ASSERT_TRUE(buffer->flush());
  ASSERT_EQ(c.buffers.size(), 32u);
  for (size_t i = 0; i < 31; ++i) EXPECT_EQ(c.buffers[i].size(), 1024u);
  EXPECT_EQ(c.buffers[31].size(), 256u);
}

TEST(SharedBuffer, RefusesNothingAndMoreThanABuffer) {
  for (const Mode mode : {Mode::kDense, Mode::kChunked}) {
    Collector c;
    auto buffer = SharedBuffer::create(small(c, mode)).value();
    auto w = buffer->writer().value();
    for (int round = 0; round < 3; ++round) {
      for (const size_t bytes : {size_t{0}, size_t{65}, SIZE_MAX, SIZE_MAX - 63, SIZE_MAX / 2}) {
        EXPECT_EQ(w.reserve(bytes), nullptr) << bytes;
        EXPECT_EQ(w.refusal(), Refusal::kTooLarge);
        EXPECT_EQ(w.try_reserve(bytes), nullptr) << bytes;
      }
      EXPECT_TRUE(put(w, std::string(round == 1 ? 64 : 5, 'y')));
    }
    EXPECT_EQ(buffer->stats().dropped_records, 0u);
  }
}

TEST(SharedBuffer, ABufferIsHandedOverOnlyWhenEveryRecordInItIsCommitted) {
  Collector c;
  auto buffer = SharedBuffer::create(small(c)).value();
  auto first = buffer->writer().value();
  auto second = buffer->writer().value();
  std::byte* open = first.reserve(8);
  ASSERT_NE(open, nullptr);
  ASSERT_TRUE(put(second, std::string(56, 'b')));
  ASSERT_TRUE(put(second, std::string(8, 'c')));  // crosses: the first buffer is sealed
  buffer->flush_ready();
  EXPECT_TRUE(c.buffers.empty());
  std::memset(open, 'a', 8);
  first.commit();
  EXPECT_EQ(buffer->flush_ready(), 1u);
  ASSERT_EQ(c.buffers.size(), 1u);
  EXPECT_EQ(c.buffers[0], std::string(8, 'a') + std::string(56, 'b'));
}

TEST(SharedBuffer, ALaterBufferWaitsForAnEarlierOne) {
  Collector c;
  SharedBuffer::Options o = small(c);
  o.buffer_count = 4;
  auto buffer = SharedBuffer::create(o).value();
  auto slow = buffer->writer().value();
  auto fast = buffer->writer().value();
  ASSERT_NE(slow.reserve(64), nullptr);
  ASSERT_TRUE(put(fast, std::string(64, 'b')));
  ASSERT_TRUE(put(fast, std::string(64, 'c')));
  buffer->seal();
  buffer->flush_ready();
  EXPECT_TRUE(c.buffers.empty());
  slow.commit();
  buffer->flush_ready();
  ASSERT_EQ(c.buffers.size(), 3u);
  EXPECT_EQ(c.buffers[1][0], 'b');
  EXPECT_EQ(c.buffers[2][0], 'c');
  EXPECT_EQ(c.sequences, (std::vector<uint64_t>{0, 1, 2}));
}

TEST(SharedBuffer, DropsAndCountsWhileTheFlusherLagsAndGoesOnAfterwards) {
  Collector c;
  SharedBuffer::Options o = small(c);
  o.flush_by_writers = false;
  auto buffer = SharedBuffer::create(o).value();
  auto w = buffer->writer().value();
  ASSERT_TRUE(put(w, std::string(64, 'a')));
  ASSERT_TRUE(put(w, std::string(64, 'b')));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(w.reserve(10), nullptr);
    EXPECT_EQ(w.refusal(), Refusal::kDropped);
  }
  EXPECT_EQ(w.try_reserve(10), nullptr) << "and counts no drop";
  EXPECT_EQ(buffer->stats().dropped_records, 5u);
  EXPECT_EQ(buffer->stats().dropped_bytes, 50u);
  EXPECT_EQ(buffer->flush_ready(), 2u);
  EXPECT_TRUE(put(w, "after"));
  ASSERT_TRUE(buffer->flush());
  EXPECT_EQ(c.buffers.back(), "after");
}

TEST(SharedBuffer, SealHandsOverPresentRecordsAndAnEmptyBufferIsNoBuffer) {
  Collector c;
  auto buffer = SharedBuffer::create(small(c)).value();
  auto w = buffer->writer().value();
  buffer->seal();
  EXPECT_TRUE(buffer->flush());
  EXPECT_TRUE(c.buffers.empty());
  for (const char* word : {"one", "two", "three", "four", "five"}) {
    ASSERT_TRUE(put(w, word));
    EXPECT_TRUE(buffer->flush());
    EXPECT_TRUE(buffer->flush());
  }
  EXPECT_EQ(c.buffers, (std::vector<std::string>{"one", "two", "three", "four", "five"}));
}

TEST(SharedBuffer, CloseFlushesPresentRecordsAndRefusesFromThenOn) {
  for (const Mode mode : {Mode::kDense, Mode::kChunked}) {
    Collector c;
    auto buffer = SharedBuffer::create(small(c, mode)).value();
    auto w = buffer->writer().value();
    ASSERT_TRUE(put(w, "last"));
    EXPECT_FALSE(buffer->was_closed());
    buffer->close();
    buffer->close();
    EXPECT_TRUE(buffer->was_closed());
    EXPECT_TRUE(buffer->flush());
    EXPECT_EQ(c.records, (std::vector<std::string>{"last"}));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(w.reserve(4), nullptr);
      EXPECT_EQ(w.refusal(), Refusal::kClosed);
    }
    EXPECT_EQ(buffer->stats().dropped_records, 0u);
  }
}

TEST(SharedBuffer, DestructionFlushesTheRest) {
  Collector c;
  auto buffer = SharedBuffer::create(small(c)).value();
  {
    ASSERT_TRUE(put(*std::make_unique<SharedBuffer::Writer>(buffer->writer().value()), "rest"));
  }
  buffer.reset();
  EXPECT_EQ(c.buffers, (std::vector<std::string>{"rest"}));
}

TEST(SharedBuffer, WritersRunOutAndComeBack) {
  Collector c;
  auto buffer = SharedBuffer::create(small(c)).value();
  std::vector<SharedBuffer::Writer> writers;
  writers.reserve(4);
  for (int i = 0; i < 4; ++i) writers.push_back(buffer->writer().value());
  EXPECT_EQ(buffer->stats().writers, 4u);
  EXPECT_EQ(buffer->writer().status().code(), Code::kResourceExhausted);
  for (auto& w : writers) ASSERT_TRUE(put(w, "12345678"));
  writers.pop_back();
  EXPECT_TRUE(buffer->writer().ok());
  writers.clear();
  ASSERT_TRUE(buffer->flush());
  EXPECT_EQ(c.buffers, (std::vector<std::string>{"12345678123456781234567812345678"}));
}

TEST(SharedBuffer, ARecordLeftOpenByItsWriterIsHandedOverAsZeroes) {
  for (const Mode mode : {Mode::kDense, Mode::kChunked}) {
    Collector c;
    auto buffer = SharedBuffer::create(small(c, mode)).value();
    {
      auto w = buffer->writer().value();
      ASSERT_TRUE(put(w, "abcd"));
      std::memset(w.reserve(4), 'x', 4);
    }
    EXPECT_TRUE(buffer->flush());
    EXPECT_EQ(c.records, (std::vector<std::string>{std::string("abcd\0\0\0\0", 8)}));
    EXPECT_EQ(buffer->stats().abandoned_records, 1u);
  }
}

TEST(SharedBuffer, ACallbackMayAskForAnotherFlush) {
  Collector c;
  auto buffer = SharedBuffer::create(small(c)).value();
  c.during = [&] { EXPECT_EQ(buffer->flush_ready(), 0u); };
  auto w = buffer->writer().value();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(put(w, std::string(64, 'a')));
  ASSERT_TRUE(buffer->flush());
  EXPECT_EQ(c.buffers.size(), 10u);
}

// Chunked mode ----------------------------------------------------------------------------------

TEST(SharedBuffer, LanesGiveEachWriterItsOwnChunkAndReportTheUnusedEnds) {
  Collector c;
  auto buffer = SharedBuffer::create(small(c, Mode::kChunked)).value();
  auto a = buffer->writer().value();
  auto b = buffer->writer().value();
  ASSERT_TRUE(put(a, "aaaaaa"));
  ASSERT_TRUE(put(b, "bbb"));
  ASSERT_TRUE(put(a, "AAAAAA"));  // 12 of 16
  ASSERT_TRUE(put(a, "aaaaaa"));  // the next chunk
  ASSERT_TRUE(buffer->flush());
  EXPECT_EQ(c.records, (std::vector<std::string>{"aaaaaaAAAAAA", "bbb", "aaaaaa"}));
  EXPECT_EQ(buffer->stats().wasted_bytes, 48u - 21u);
}

TEST(SharedBuffer, ALaneRecordMayBeAsLargeAsTheBuffer) {
  Collector c;
  auto buffer = SharedBuffer::create(small(c, Mode::kChunked)).value();
  auto w = buffer->writer().value();
  ASSERT_TRUE(put(w, "12345"));
  ASSERT_TRUE(put(w, std::string(33, 'l')));  // three chunks long, 15 bytes free at the end
  ASSERT_TRUE(put(w, std::string(15, 'm')));
  ASSERT_TRUE(put(w, std::string(64, 'n')));
  ASSERT_TRUE(buffer->flush());
  const std::string second = std::string(33, 'l') + std::string(15, 'm');
  EXPECT_EQ(c.records, (std::vector<std::string>{"12345", second, std::string(64, 'n')}));
}

TEST(SharedBuffer, AnIdleWritersChunkDoesNotHoldUpTheFlushAndItGoesOnElsewhere) {
  for (const bool fence : {true, false}) {
    Collector c;
    SharedBuffer::Options o = small(c, Mode::kChunked);
    o.asymmetric_fence = fence;
    auto buffer = SharedBuffer::create(o).value();
    auto idle = buffer->writer().value();
    auto busy = buffer->writer().value();
    ASSERT_TRUE(put(idle, "idle"));
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(put(busy, std::string(16, 'b'))) << i;
    EXPECT_EQ(c.records[0].substr(0, 4), "idle");
    ASSERT_TRUE(put(idle, "later"));
    ASSERT_TRUE(put(idle, "more"));
    ASSERT_TRUE(buffer->flush());
    EXPECT_THAT(c.records.back(), testing::EndsWith("latermore"));
    EXPECT_EQ(std::accumulate(c.records.begin(), c.records.end(), size_t{0},
                              [](size_t n, const std::string& r) { return n + r.size(); }),
              4u + 320u + 9u);
  }
}

TEST(SharedBuffer, AChunkWithAnOpenRecordIsNotTakenBack) {
  for (const bool fence : {true, false}) {
    Collector c;
    SharedBuffer::Options o = small(c, Mode::kChunked);
    o.asymmetric_fence = fence;
    auto buffer = SharedBuffer::create(o).value();
    auto open = buffer->writer().value();
    ASSERT_TRUE(put(open, "done"));
    std::byte* record = open.reserve(4);
    buffer->seal();
    EXPECT_EQ(buffer->flush_ready(), 0u);
    std::memcpy(record, "last", 4);
    open.commit();
    EXPECT_EQ(buffer->flush_ready(), 1u);
    EXPECT_EQ(c.records, (std::vector<std::string>{"donelast"}));
    ASSERT_TRUE(put(open, "next"));
    ASSERT_TRUE(buffer->flush());
    EXPECT_EQ(c.records.back(), "next");
  }
}

}  // namespace
}  // namespace lumen
