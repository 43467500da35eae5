// Heads as they come in: at each cut, with the bytes behind them, and those that never end.
#include "transports/http/head_reader.h"
#include "unit/http/http_support.h"

#include <gtest/gtest.h>

#include <string>

namespace lumen::http {
namespace {

using wire::HeadProgress;

constexpr std::string_view kHead =
    "POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n";

TEST(HeadReader, ReadsAHeadAtEachCutAndLeavesTheRest) {
  const std::string bytes = std::string(kHead) + "bodyXGET /v2 HTTP/1.1";
  at_each_cut(bytes, [](const std::vector<std::string_view>& pieces) {
    BufferOf of(4096);
    HeadReader reader;
    HeadProgress progress = HeadProgress::kNeedMore;
    for (const std::string_view piece : pieces) {
      of.buffer.append(piece);
      if (progress == HeadProgress::kNeedMore) progress = reader.read(of.buffer);
    }
    ASSERT_EQ(HeadProgress::kComplete, progress);
    EXPECT_EQ("/v2/models/m/infer", reader.head().path);
    EXPECT_EQ(5u, reader.head().content_length);
    EXPECT_EQ("bodyXGET /v2 HTTP/1.1", of.buffer.unread());
  });
}

TEST(HeadReader, ReadsPipelinedHeadsOneAfterTheOther) {
  BufferOf of(4096);
  of.buffer.append("GET /v2 HTTP/1.1\r\nHost: h\r\n\r\nGET /metrics HTTP/1.1\r\nHost: h\r\n\r\n");
  for (const std::string_view path : {"/v2", "/metrics"}) {
    HeadReader reader;
    ASSERT_EQ(HeadProgress::kComplete, reader.read(of.buffer));
    EXPECT_EQ(path, reader.head().path);
  }
  EXPECT_TRUE(of.buffer.unread().empty());
}

TEST(HeadReader, MakesRoomForAHeadThatBeginsLate) {
  BufferOf of(kHead.size() + 8);
  of.buffer.append("consumed");
  of.buffer.take(8);
  of.buffer.append(kHead.substr(0, kHead.size() - 4));
  HeadReader reader;
  ASSERT_EQ(HeadProgress::kNeedMore, reader.read(of.buffer));
  EXPECT_EQ(12u, of.buffer.free_space().size());
  of.buffer.append(kHead.substr(kHead.size() - 4));
  EXPECT_EQ(HeadProgress::kComplete, reader.read(of.buffer));
}

TEST(HeadReader, RefusesAHeadBeforeTheBufferIsFull) {
  BufferOf of(limits::kReceiveBufferBytes);
  HeadReader reader;
  of.buffer.append("GET / HTTP/1.1\r\n");
  HeadProgress progress = reader.read(of.buffer);
  while (progress == HeadProgress::kNeedMore && of.buffer.free_space().size() >= 1024) {
    of.buffer.append("X-Long: " + std::string(1014, 'x') + "\r\n");
    progress = reader.read(of.buffer);
  }
  ASSERT_EQ(HeadProgress::kRefused, progress);
  EXPECT_EQ(431, reader.refusal().status);
}

TEST(HeadReader, ItsClockBeginsWithTheFirstByte) {
  BufferOf of(4096);
  HeadReader reader;
  EXPECT_EQ(0u, reader.first_byte_ns());
  of.buffer.append("G");
  (void)reader.read(of.buffer);
  const uint64_t first = reader.first_byte_ns();
  EXPECT_NE(0u, first);
  of.buffer.append(kHead.substr(1));
  (void)reader.read(of.buffer);
  EXPECT_EQ(first, reader.first_byte_ns());
}

}  // namespace
}  // namespace lumen::http
