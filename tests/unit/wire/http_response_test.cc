// Response heads and dates, byte for byte.
#include <lumen/wire/http.h>
#include <lumen/wire/status_map.h>

#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <string>

namespace lumen::wire {
namespace {

std::string written(const ResponseHead& head, std::string_view date = "D") {
  char out[kMaxResponseHeadBytes];
  return std::string(out, write_response_head(out, head, date));
}

std::string date_of(int64_t seconds) {
  char out[kDateBytes];
  write_http_date(std::span<char, kDateBytes>(out), seconds);
  return std::string(out, kDateBytes);
}

TEST(ResponseHead, HasStatusDateTypeAndLength) {
  ResponseHead head;
  head.content_length = 12;
  EXPECT_EQ(written(head),
            "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Type: application/json\r\n"
            "Content-Length: 12\r\n\r\n");
}

TEST(ResponseHead, SaysWhereTheJsonEndsAndThatItCloses) {
  ResponseHead head;
  head.status = 413;
  head.content_type = "application/octet-stream";
  head.content_length = UINT64_MAX;
  head.inference_header_length = 0;
  head.keep_alive = false;
  head.extra = "Allow: POST\r\n";
  EXPECT_EQ(
      written(head),
      "HTTP/1.1 413 Content Too Large\r\nDate: D\r\nContent-Type: application/octet-stream\r\n"
      "Inference-Header-Content-Length: 0\r\nContent-Length: 18446744073709551615\r\n"
      "Connection: close\r\nAllow: POST\r\n\r\n");
}

TEST(ResponseHead, LeavesOutTypeAndDateWhenTheyAreEmpty) {
  ResponseHead head;
  head.content_type = "";
  EXPECT_EQ(written(head, ""), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
}

TEST(ResponseHead, FitsWithTheLongestOfEverything) {
  ResponseHead head;
  head.status = 431;
  head.content_length = UINT64_MAX;
  head.inference_header_length = UINT64_MAX;
  head.keep_alive = false;
  const std::string extra(512, 'x');
  head.extra = extra;
  EXPECT_LT(written(head, date_of(0)).size(), kMaxResponseHeadBytes);
}

TEST(ResponseHeadDeathTest, ChecksThatItsOwnStringsFit) {
  ResponseHead head;
  const std::string extra(2000, 'x');
  head.extra = extra;
  EXPECT_DEATH((void)written(head), "CHECK");
}

TEST(ResponseHead, HasAPhraseForEveryStatusThatLumenAnswers) {
  for (const int status :
       {200, 400, 404, 405, 408, 413, 414, 415, 417, 429, 431, 500, 501, 503, 504, 505}) {
    EXPECT_NE(reason_phrase(status), "Unknown") << status;
  }
  for (int code = 0; code <= static_cast<int>(Code::kMethodNotAllowed); ++code) {
    EXPECT_NE(reason_phrase(http_status(static_cast<Code>(code))), "Unknown") << code;
  }
  EXPECT_EQ(reason_phrase(299), "Unknown");
  EXPECT_EQ(continue_response(), "HTTP/1.1 100 Continue\r\n\r\n");
}

TEST(HttpDate, IsTheExampleOfTheStandard) {
  EXPECT_EQ(date_of(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(date_of(0), "Thu, 01 Jan 1970 00:00:00 GMT");
  EXPECT_EQ(date_of(951782400), "Tue, 29 Feb 2000 00:00:00 GMT");
  EXPECT_EQ(date_of(4107542400), "Mon, 01 Mar 2100 00:00:00 GMT");
}

TEST(HttpDate, StaysWithinFourDigitsOfYear) {
  EXPECT_EQ(date_of(INT64_MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
  EXPECT_EQ(date_of(-1), date_of(0));
}

TEST(HttpDate, AgreesWithLibcOnRandomSeconds) {
  std::mt19937_64 random(42);
  for (int i = 0; i < 20000; ++i) {
    const time_t seconds = static_cast<time_t>(random() % 253402300800);
    tm parts{};
    gmtime_r(&seconds, &parts);
    char expected[64];
    std::strftime(expected, sizeof(expected), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    ASSERT_EQ(date_of(seconds), expected) << "seed 42, second " << seconds;
  }
}

}  // namespace
}  // namespace lumen::wire
