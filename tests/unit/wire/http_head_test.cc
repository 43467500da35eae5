// Request heads that real clients send, and the views that they become.
#include <lumen/wire/http.h>

#include "unit/wire/wire_support.h"

namespace lumen::wire {
namespace {

using test::ExactCopy;

constexpr std::string_view kTritonHead =
    "POST /v2/models/mlp/infer HTTP/1.1\r\n"
    "Host: 127.0.0.1:8000\r\n"
    "User-Agent: python-geventhttpclient-2.3.4\r\n"
    "Content-Length: 1185\r\n"
    "Inference-Header-Content-Length: 161\r\n\r\n";

TEST(HttpHead, ReadsTheHeadOfTheStockClient) {
  const HeadResult result = parse_http_head(kTritonHead);
  ASSERT_EQ(result.progress, HeadProgress::kComplete);
  EXPECT_EQ(result.head.method, HttpMethod::kPost);
  EXPECT_EQ(result.head.method_name, "POST");
  EXPECT_EQ(result.head.path, "/v2/models/mlp/infer");
  EXPECT_EQ(result.head.query, "");
  EXPECT_EQ(result.head.host, "127.0.0.1:8000");
  EXPECT_EQ(result.head.framing, BodyFraming::kLength);
  EXPECT_EQ(result.head.content_length, 1185U);
  EXPECT_EQ(result.head.inference_header_length, 161U);
  EXPECT_TRUE(result.head.http_1_1);
  EXPECT_TRUE(result.head.keep_alive);
  EXPECT_FALSE(result.head.expect_continue);
  EXPECT_EQ(result.head.head_bytes, kTritonHead.size());
}

TEST(HttpHead, StopsAtTheEmptyLineAndLeavesTheBody) {
  const std::string two = std::string(kTritonHead) + "GET / HTTP/1.1\r\nbad\nbytes";
  const HeadResult result = parse_http_head(two);
  ASSERT_EQ(result.progress, HeadProgress::kComplete);
  EXPECT_EQ(result.head.head_bytes, kTritonHead.size());
}

TEST(HttpHead, NeedsMoreAtEverySplitAndThenAgreesWithTheWhole) {
  for (size_t size = 0; size < kTritonHead.size(); ++size) {
    const ExactCopy part(kTritonHead.substr(0, size));
    EXPECT_EQ(parse_http_head(part.view()).progress, HeadProgress::kNeedMore) << size;
  }
  const ExactCopy whole(kTritonHead);
  EXPECT_EQ(parse_http_head(whole.view()).progress, HeadProgress::kComplete);
}

TEST(HttpHead, SkipsEmptyLinesBeforeTheRequest) {
  const HeadResult result = parse_http_head("\r\n\r\nGET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_EQ(result.progress, HeadProgress::kComplete);
  EXPECT_EQ(result.head.path, "/a");
  EXPECT_EQ(result.head.query, "b=c");
  EXPECT_EQ(result.head.framing, BodyFraming::kNone);
  EXPECT_EQ(result.head.head_bytes, 36U);
}

TEST(HttpHead, ReadsFieldNamesAndTokensInAnyCase) {
  const HeadResult result = parse_http_head(
      "POST / HTTP/1.1\r\nhOST: h\r\nTRANSFER-encoding: Chunked\r\nEXPECT: 100-Continue\r\n"
      "connection: Foo, CLOSE\r\naccept-ENCODING: gzip, deflate\r\ncontent-encoding: gzip\r\n"
      "origin: http://a\r\n\r\n");
  ASSERT_EQ(result.progress, HeadProgress::kComplete);
  EXPECT_EQ(result.head.framing, BodyFraming::kChunked);
  EXPECT_TRUE(result.head.expect_continue);
  EXPECT_FALSE(result.head.keep_alive);
  EXPECT_EQ(result.head.accept_encoding, "gzip, deflate");
  EXPECT_EQ(result.head.content_encoding, "gzip");
  EXPECT_EQ(result.head.origin, "http://a");
}

TEST(HttpHead, TrimsBlanksAroundValuesAndKeepsThoseWithin) {
  const HeadResult result = parse_http_head(
      "GET / HTTP/1.1\r\nHost: \t x \t\r\nAccept-Encoding:\ta\t b \xc3\xa4 \r\nEmpty:\r\n\r\n");
  ASSERT_EQ(result.progress, HeadProgress::kComplete);
  EXPECT_EQ(result.head.host, "x");
  EXPECT_EQ(result.head.accept_encoding, "a\t b \xc3\xa4");
}

TEST(HttpHead, TakesIdentityForNoContentEncoding) {
  const HeadResult result =
      parse_http_head("GET / HTTP/1.1\r\nHost: x\r\nContent-Encoding: Identity\r\n\r\n");
  ASSERT_EQ(result.progress, HeadProgress::kComplete);
  EXPECT_EQ(result.head.content_encoding, "");
}

TEST(HttpHead, AcceptsTheAbsoluteFormOfItsOwnHost) {
  HeadResult result =
      parse_http_head("GET http://LOCALHOST:80/v2?x HTTP/1.1\r\nHost: localhost:80\r\n\r\n");
  ASSERT_EQ(result.progress, HeadProgress::kComplete);
  EXPECT_EQ(result.head.path, "/v2");
  EXPECT_EQ(result.head.query, "x");
  result = parse_http_head("GET http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_EQ(result.progress, HeadProgress::kComplete);
  EXPECT_EQ(result.head.path, "/");
}

// RFC 9112, 3.2.2: an origin server ignores any Host then.
TEST(HttpHead, TheHostOfAnAbsoluteFormCountsAndNotThatOfHost) {
  for (const char* text : {"GET http://a.example/x HTTP/1.1\r\nHost: b.example\r\n\r\n",
                           "GET http://a.example/x HTTP/1.1\r\nHost: a.example:80\r\n\r\n",
                           "GET http://a.example/x HTTP/1.0\r\n\r\n"}) {
    const HeadResult result = parse_http_head(text);
    ASSERT_EQ(result.progress, HeadProgress::kComplete) << text;
    EXPECT_EQ(result.head.host, "a.example");
    EXPECT_EQ(result.head.path, "/x");
  }
}

TEST(HttpHead, AcceptsAnAsteriskForOptionsOnly) {
  EXPECT_EQ(parse_http_head("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").progress,
            HeadProgress::kComplete);
  EXPECT_EQ(parse_http_head("GET * HTTP/1.1\r\nHost: x\r\n\r\n").refusal.status, 400);
}

TEST(HttpHead, ClosesHttp10UnlessItAsksToStay) {
  HeadResult result = parse_http_head("GET / HTTP/1.0\r\n\r\n");
  ASSERT_EQ(result.progress, HeadProgress::kComplete);
  EXPECT_FALSE(result.head.http_1_1);
  EXPECT_FALSE(result.head.keep_alive);
  result =
      parse_http_head("GET / HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_EQ(result.progress, HeadProgress::kComplete);
  EXPECT_TRUE(result.head.keep_alive);
  EXPECT_FALSE(result.head.expect_continue) << "HTTP/1.0 has no 100 (RFC 9110 10.1.1)";
}

TEST(HttpHead, LetsCloseWinOverKeepAlive) {
  const HeadResult result = parse_http_head(
      "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n");
  ASSERT_EQ(result.progress, HeadProgress::kComplete);
  EXPECT_FALSE(result.head.keep_alive);
}

TEST(HttpHead, TakesNineteenDigitsOfContentLength) {
  const HeadResult result =
      parse_http_head("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999999999999\r\n\r\n");
  ASSERT_EQ(result.progress, HeadProgress::kComplete);
  EXPECT_EQ(result.head.content_length, 9999999999999999999U);
}

TEST(HttpHead, KeepsPercentEscapesAsSent) {
  const HeadResult result = parse_http_head("GET /a%2Fb%2e HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_EQ(result.progress, HeadProgress::kComplete);
  EXPECT_EQ(result.head.path, "/a%2Fb%2e");
}

// --- limits --------------------------------------------------------------------------------------

std::string with_headers(size_t count) {
  std::string head = "GET / HTTP/1.1\r\nHost: x\r\n";
  for (size_t i = 1; i < count; ++i) head += "A: b\r\n";
  return head + "\r\n";
}

TEST(HttpHead, TakesAHundredHeadersAndNotOneMore) {
  EXPECT_EQ(parse_http_head(with_headers(limits::kMaxHeaders)).progress, HeadProgress::kComplete);
  EXPECT_EQ(parse_http_head(with_headers(limits::kMaxHeaders + 1)).refusal.status, 431);
}

TEST(HttpHead, RefusesAHeadAsSoonAsItCrossesTheLimit) {
  std::string head = "GET / HTTP/1.1\r\nHost: x\r\nA: ";
  head.resize(limits::kMaxHeadBytes, 'a');
  EXPECT_EQ(parse_http_head(head).progress, HeadProgress::kNeedMore);
  EXPECT_EQ(parse_http_head(head + "a").refusal.status, 431);
}

TEST(HttpHead, RefusesALongRequestLineBeforeItEnds) {
  const std::string line = "GET /" + std::string(limits::kMaxRequestLineBytes - 14, 'a');
  EXPECT_EQ(parse_http_head(line + " HTTP/1.1\r\nHost: x\r\n\r\n").progress,
            HeadProgress::kComplete);
  EXPECT_EQ(parse_http_head(line + "a HTTP/1.1\r\n").refusal.status, 414);
  EXPECT_EQ(parse_http_head(line + std::string(20, 'a')).refusal.status, 414);
}

TEST(HttpHead, CountsEndlessEmptyLinesAsHead) {
  std::string lines;
  while (lines.size() <= limits::kMaxHeadBytes) lines += "\r\n";
  EXPECT_EQ(parse_http_head(lines).refusal.status, 431);
}

TEST(HttpHead, ObeysLimitsThatAreGiven) {
  HttpLimits small;
  small.max_headers = 1;
  EXPECT_EQ(parse_http_head(with_headers(1), small).progress, HeadProgress::kComplete);
  EXPECT_EQ(parse_http_head(with_headers(2), small).refusal.status, 431);
}

}  // namespace
}  // namespace lumen::wire
