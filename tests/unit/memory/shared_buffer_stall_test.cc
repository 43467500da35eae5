// SharedBuffer when a thread is held up or ends between reserve and commit, or between fetch_add
// and sealing: the timeout bounds it, the report says where, and its memory is used again only when
// nobody can write into it any more.
// Threads: some that end with a record open. Memory: small buffers. Errors: by gtest.
#include "unit/memory/shared_buffer_fixture.h"

#include <lumen/base/clock.h>

#include <unistd.h>

#include <gtest/gtest.h>

#include <thread>

namespace lumen {
namespace {

using Mode = SharedBuffer::Mode;

class SharedBufferStall : public testing::TestWithParam<std::tuple<Mode, bool>> {
 protected:
  SharedBuffer::Options options() {
    SharedBuffer::Options o;
    o.mode = std::get<0>(GetParam());
    o.asymmetric_fence = std::get<1>(GetParam());
    o.when_full = SharedBuffer::WhenFull::kDrop;
    o.buffer_bytes = 64;
    o.buffer_count = 4;
    o.max_writers = 4;
    o.chunk_bytes = 16;
    o.stall_timeout_ns = 1'000'000;
    o.flush = &Collector::flush;
    o.context = &c;
    return o;
  }
  bool dense() const { return std::get<0>(GetParam()) == Mode::kDense; }
  // The timeout runs in real time: ask until the flusher has given up or two seconds are over.
  static bool flush_until(SharedBuffer& buffer, const std::function<bool()>& done) {
    const uint64_t deadline = now_ns() + 2'000'000'000;
    while (!done() && now_ns() < deadline) buffer.flush_ready();
    return done();
  }

  Collector c;
};

TEST_P(SharedBufferStall, AHeldUpThreadIsReportedAndItsBufferPassedOverUntilItCommits) {
  auto buffer = SharedBuffer::create(options()).value();
  auto held = buffer->writer().value();
  auto other = buffer->writer().value();
  ASSERT_TRUE(put(held, "1234"));
  std::byte* open = held.reserve(8);
  ASSERT_NE(open, nullptr);
  ASSERT_TRUE(put(other, std::string(16, 'o')));
  buffer->seal();
  EXPECT_EQ(buffer->flush_ready(), 0u) << "not before the timeout";
  ASSERT_TRUE(flush_until(*buffer, [&] { return c.buffers.size() == 1; }));
  ASSERT_EQ(c.holes[0].size(), 1u);
  EXPECT_EQ(c.holes[0][0].begin, 4u);
  EXPECT_EQ(c.holes[0][0].bytes, 8u);
  EXPECT_EQ(c.holes[0][0].thread_id, ::gettid());
  EXPECT_FALSE(c.holes[0][0].thread_gone);
  EXPECT_EQ(c.missing[0], 8u);
  EXPECT_EQ(c.records, (std::vector<std::string>{"1234", std::string(16, 'o')}));
  EXPECT_EQ(buffer->stats().quarantined_buffers, 1u);
  EXPECT_EQ(buffer->stats().incomplete_buffers, 1u);

  // Three laps of the others: nobody else gets the bytes that the held thread may still write.
  std::memset(open, '#', 8);
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(put(other, std::string(64, 'x'))) << i;
    buffer->flush_ready();
    EXPECT_EQ(std::string(reinterpret_cast<char*>(open), 8), "########");
  }
  EXPECT_EQ(buffer->stats().quarantined_buffers, 1u);
  held.commit();  // late
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(put(other, std::string(64, 'y')));
  EXPECT_EQ(buffer->stats().quarantined_buffers, 0u);
  ASSERT_TRUE(put(held, "back"));
  ASSERT_TRUE(buffer->flush());
  EXPECT_EQ(c.records.back(), "back");
  EXPECT_EQ(buffer->stats().missing_bytes, 8u);
  EXPECT_EQ(std::count(c.missing.begin(), c.missing.end(), 0u), std::ssize(c.missing) - 1);
}

TEST_P(SharedBufferStall, AThreadThatEndedIsWrittenOffAndItsBufferUsedAgain) {
  auto buffer = SharedBuffer::create(options()).value();
  // Storage of which no destructor runs: pthread_exit without unwinding, or SYS_exit.
  alignas(SharedBuffer::Writer) std::byte storage[sizeof(SharedBuffer::Writer)];
  int thread_id = 0;
  std::thread([&] {
    thread_id = ::gettid();
    auto* w = ::new (static_cast<void*>(storage)) SharedBuffer::Writer(buffer->writer().value());
    if (put(*w, "1234")) (void)w->reserve(8);
  }).join();
  auto other = buffer->writer().value();
  ASSERT_TRUE(put(other, std::string(16, 'o')));
  buffer->seal();
  ASSERT_TRUE(flush_until(*buffer, [&] { return c.buffers.size() == 1; }));
  ASSERT_EQ(c.holes[0].size(), 1u);
  EXPECT_EQ(c.holes[0][0].begin, 4u);
  EXPECT_EQ(c.holes[0][0].bytes, 8u);
  EXPECT_EQ(c.holes[0][0].thread_id, thread_id);
  EXPECT_TRUE(c.holes[0][0].thread_gone);
  EXPECT_EQ(buffer->stats().quarantined_buffers, 0u);
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(put(other, std::string(64, 'x')));
  // Its Writer, should someone find and destroy it, touches nothing that is in use again.
  const size_t before = c.buffers.size();
  reinterpret_cast<SharedBuffer::Writer*>(storage)->~Writer();
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(put(other, std::string(64, 'y')));
  ASSERT_TRUE(buffer->flush());
  EXPECT_EQ(c.buffers.size(), before + 13);
  for (size_t i = 1; i < c.buffers.size(); ++i) {
    EXPECT_EQ(c.missing[i], 0u);
    EXPECT_THAT(c.buffers[i], testing::AnyOf(std::string(64, 'x'), std::string(64, 'y')));
  }
}

TEST_P(SharedBufferStall, AThreadThatDiesRightAfterItsFetchAddLeavesAHoleWithoutAPlace) {
  auto buffer = SharedBuffer::create(options()).value();
  auto w = buffer->writer().value();
  ASSERT_TRUE(put(w, "1234"));
  SharedBufferPeer::add_and_die(*buffer, 16);
  buffer->seal();
  ASSERT_TRUE(flush_until(*buffer, [&] { return c.buffers.size() == 1; }));
  EXPECT_EQ(c.missing[0], 16u);
  EXPECT_TRUE(c.holes[0].empty());
  EXPECT_EQ(buffer->stats().quarantined_buffers, 1u);
  // Every writer that was there has since reserved elsewhere: nobody can be about to write there.
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(put(w, std::string(64, 'x')));
  EXPECT_EQ(buffer->stats().quarantined_buffers, 0u);
  ASSERT_TRUE(buffer->flush());
  EXPECT_EQ(c.buffers.size(), 13u);
}

TEST_P(SharedBufferStall, ABufferWhoseCloserDiesIsSealedByTheFlusher) {
  auto buffer = SharedBuffer::create(options()).value();
  auto w = buffer->writer().value();
  ASSERT_TRUE(put(w, std::string(16, 'a')));
  ASSERT_TRUE(put(w, std::string(16, 'b')));
  const auto [sequence, offset] = SharedBufferPeer::add_and_die(*buffer, 40);
  EXPECT_EQ(offset, 32u) << "this was the one to seal";
  ASSERT_TRUE(flush_until(*buffer, [&] { return c.buffers.size() == 1; }));
  EXPECT_TRUE(c.forced[0]);
  EXPECT_EQ(c.missing[0], 0u);
  EXPECT_EQ(c.buffers[0], std::string(16, 'a') + std::string(16, 'b'));
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(put(w, std::string(64, 'x')));
  ASSERT_TRUE(buffer->flush());
  EXPECT_EQ(c.buffers.size(), 13u);
  EXPECT_EQ(buffer->stats().quarantined_buffers, 0u);
  EXPECT_EQ(sequence, 0u);
}

// Once each buffer was in quarantine, nobody looked again whether one's had ended: the writers
// waited for a buffer and the flusher for them to pass it.
TEST_P(SharedBufferStall, WithEachBufferInQuarantineOneIsUsedAgainWhenItsWriterHasCommitted) {
  SharedBuffer::Options o = options();
  o.buffer_count = 2;
  auto buffer = SharedBuffer::create(o).value();
  auto first = buffer->writer().value();
  auto second = buffer->writer().value();
  ASSERT_NE(first.reserve(8), nullptr);
  ASSERT_TRUE(put(second, std::string(16, 's')));
  buffer->seal();
  ASSERT_TRUE(flush_until(*buffer, [&] { return c.buffers.size() == 1; }));
  ASSERT_NE(second.reserve(8), nullptr);
  first.commit();  // late
  EXPECT_FALSE(put(first, std::string(64, 'f'))) << "one buffer in quarantine, the other in use";
  ASSERT_TRUE(flush_until(*buffer, [&] { return c.buffers.size() == 2; }));
  buffer->flush_ready();
  EXPECT_EQ(buffer->stats().quarantined_buffers, 1u) << "the second's";
  ASSERT_TRUE(put(first, std::string(64, 'f')));
  second.commit();
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(put(second, std::string(64, 's'))) << i;
  ASSERT_TRUE(buffer->flush());
  EXPECT_EQ(buffer->stats().quarantined_buffers, 0u);
  EXPECT_EQ(c.missing, (std::vector<size_t>{8, 8, 0, 0, 0, 0, 0, 0, 0}));
}

// A writer that waits for room has nothing open, but looked as if it had until it entered a buffer.
TEST_P(SharedBufferStall, AWriterThatWaitsForRoomHoldsNoBufferInQuarantine) {
  SharedBuffer::Options o = options();
  o.buffer_count = 2;
  auto buffer = SharedBuffer::create(o).value();
  auto waiting = buffer->writer().value();
  {
    auto other = buffer->writer().value();
    for (size_t i = 1; i <= 2; ++i) {
      ASSERT_TRUE(put(other, "1234"));
      SharedBufferPeer::add_and_die(*buffer, 16);
      buffer->seal();
      ASSERT_TRUE(flush_until(*buffer, [&] { return c.buffers.size() == i; }));
    }
  }
  buffer->flush_ready();
  EXPECT_EQ(buffer->stats().quarantined_buffers, 2u) << "it might be where the dead thread was";
  EXPECT_FALSE(put(waiting, "back"));
  buffer->flush_ready();
  ASSERT_TRUE(put(waiting, "back"));
  ASSERT_TRUE(buffer->flush());
  EXPECT_EQ(c.records.back(), "back");
}

TEST_P(SharedBufferStall, WithoutATimeoutTheFlushWaitsForEver) {
  SharedBuffer::Options o = options();
  o.stall_timeout_ns = 0;
  auto buffer = SharedBuffer::create(o).value();
  auto w = buffer->writer().value();
  std::byte* open = w.reserve(8);
  buffer->seal();
  EXPECT_FALSE(buffer->flush(now_ns() + 3'000'000));
  EXPECT_TRUE(c.buffers.empty());
  std::memset(open, 'z', 8);
  w.commit();
  EXPECT_TRUE(buffer->flush());
  EXPECT_EQ(c.records, (std::vector<std::string>{"zzzzzzzz"}));
}

TEST_P(SharedBufferStall, TheSequenceWrapsAroundWithoutAGapInTheBuffers) {
  auto buffer = SharedBuffer::create(options()).value();
  SharedBufferPeer::start_at(*buffer, (uint64_t{1} << 24) - 8);
  auto w = buffer->writer().value();
  auto held = buffer->writer().value();
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(put(w, std::string(64, static_cast<char>('0' + i))));
  ASSERT_TRUE(buffer->flush());
  ASSERT_EQ(c.buffers.size(), 40u);
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(c.sequences[i], i);
    EXPECT_EQ(c.buffers[i], std::string(64, static_cast<char>('0' + i)));
  }
}

// Dense mode has no chunks.
class SharedBufferChunkStall : public SharedBufferStall {};

// The flusher is held between seeing a marked chunk and settling it; the writer goes on meanwhile.
// It once looked anew and took the chunk that it found then.
TEST_P(SharedBufferChunkStall, AChunkThatItsWriterHasGoneOnToIsNotTakenForTheMarkedOneBefore) {
  for (const bool open : {false, true}) {
    c = {};
    SharedBuffer::Options o = options();
    o.flush_by_writers = false;
    auto buffer = SharedBuffer::create(o).value();
    auto w = buffer->writer().value();
    ASSERT_TRUE(put(w, "1234"));
    const uint64_t seen = SharedBufferPeer::mark_chunk(*buffer);
    buffer->seal();
    ASSERT_TRUE(put(w, "56789"));  // in the next buffer
    std::byte* record = open ? w.reserve(2) : nullptr;
    EXPECT_EQ(SharedBufferPeer::settle_chunk(*buffer, 0, seen, open), 0u);
    if (open) {
      std::memcpy(record, "ab", 2);
      w.commit();
    }
    ASSERT_TRUE(put(w, "cdef"));
    ASSERT_TRUE(buffer->flush(now_ns() + 2'000'000'000));
    EXPECT_EQ(c.records, (std::vector<std::string>{"1234", open ? "56789abcdef" : "56789cdef"}));
    EXPECT_EQ(c.missing, (std::vector<size_t>{0, 0}));
  }
}

TEST_P(SharedBufferChunkStall, AChunkThatItsWriterHasLeftIsNotAccountedForAgain) {
  SharedBuffer::Options o = options();
  o.flush_by_writers = false;
  auto buffer = SharedBuffer::create(o).value();
  uint64_t seen = 0;
  {
    auto w = buffer->writer().value();
    ASSERT_TRUE(put(w, "1234"));
    seen = SharedBufferPeer::mark_chunk(*buffer);
  }
  EXPECT_EQ(SharedBufferPeer::settle_chunk(*buffer, 0, seen, false), 0u);
  ASSERT_TRUE(buffer->flush(now_ns() + 2'000'000'000));
  EXPECT_EQ(c.records, (std::vector<std::string>{"1234"}));
}

INSTANTIATE_TEST_SUITE_P(Chunks, SharedBufferChunkStall,
                         testing::Values(std::tuple(Mode::kChunked, true),
                                         std::tuple(Mode::kChunked, false)),
                         [](const auto& p) {
                           return std::string(std::get<1>(p.param) ? "Chunked" : "ChunkedFenced");
                         });

INSTANTIATE_TEST_SUITE_P(Modes, SharedBufferStall,
                         testing::Values(std::tuple(Mode::kDense, true),
                                         std::tuple(Mode::kChunked, true),
                                         std::tuple(Mode::kChunked, false)),
                         [](const auto& p) {
                           return std::string(std::get<0>(p.param) == Mode::kDense ? "Dense"
                                                                                   : "Chunked") +
                                  (std::get<1>(p.param) ? "" : "Fenced");
                         });

}  // namespace
}  // namespace lumen
