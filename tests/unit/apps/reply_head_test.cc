// Heads of replies, whole, cut anywhere, and broken.
#include <lumen/client/reply_head.h>

#include <gtest/gtest.h>

#include <string>

namespace lumen::client {
namespace {

TEST(ReplyHead, FindsStatusLengthAndEnd) {
  const std::string head =
      "HTTP/1.1 503 Service Unavailable\r\ncontent-length:  12 \r\nX: y\r\n\r\n";
  const auto result = parse_reply_head(head + "body");
  ASSERT_EQ(result.state, HeadState::kComplete);
  EXPECT_EQ(result.head.status, 503);
  EXPECT_EQ(result.head.content_length, 12u);
  EXPECT_EQ(result.head.head_bytes, head.size());
  EXPECT_FALSE(result.head.closes);
  EXPECT_FALSE(result.head.chunked);
}

TEST(ReplyHead, NeedsMoreUntilTheEmptyLine) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
  for (size_t size = 0; size < head.size(); ++size) {
    EXPECT_EQ(parse_reply_head(head.substr(0, size)).state, HeadState::kNeedMore) << size;
  }
  EXPECT_EQ(parse_reply_head(head).state, HeadState::kComplete);
}

TEST(ReplyHead, ClosesByConnectionCloseAndByHttp10) {
  EXPECT_TRUE(parse_reply_head("HTTP/1.1 200 OK\r\nConnection: Close\r\n\r\n").head.closes);
  EXPECT_TRUE(parse_reply_head("HTTP/1.0 200 OK\r\n\r\n").head.closes);
  EXPECT_FALSE(parse_reply_head("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n").head.closes);
}

TEST(ReplyHead, KnowsChunkedBodies) {
  const auto result = parse_reply_head("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
  ASSERT_EQ(result.state, HeadState::kComplete);
  EXPECT_TRUE(result.head.chunked);
  EXPECT_FALSE(result.head.content_length);
}

TEST(ReplyHead, RefusesBytesThatAreNotHttp) {
  for (const char* head :
       {"SSH-2.0-OpenSSH\r\n\r\n", "HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 99 Odd\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"}) {
    const auto result = parse_reply_head(head);
    EXPECT_EQ(result.state, HeadState::kBroken) << head;
    EXPECT_FALSE(result.reason.empty()) << head;
  }
}

TEST(ReplyHead, RefusesAHeadThatNeverEnds) {
  EXPECT_EQ(parse_reply_head(std::string(65 * 1024, 'a')).state, HeadState::kBroken);
}

}  // namespace
}  // namespace lumen::client
