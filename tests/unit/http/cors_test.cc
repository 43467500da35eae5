// Cors: the header lines of each origin. Threads: one. Memory: the heap. Errors: by gtest.
#include <lumen/transports/http/cors.h>

#include <lumen/wire/http.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lumen::http {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(CorsTest, WithoutOriginsNoPageMayReadAReply) {
  const Cors cors = Cors::create("");
  EXPECT_THAT(cors.lines_for("https://app.example"), IsEmpty());
  EXPECT_THAT(cors.lines_for(""), IsEmpty());
}

TEST(CorsTest, AnOriginIsAllowedWithItsSchemeAndPortAndNoOther) {
  const Cors cors = Cors::create("https://app.example,http://localhost:3000");
  EXPECT_THAT(cors.lines_for("https://app.example"),
              HasSubstr("Access-Control-Allow-Origin: https://app.example\r\n"));
  EXPECT_THAT(cors.lines_for("https://app.example"), HasSubstr("Vary: Origin\r\n"));
  EXPECT_THAT(cors.lines_for("http://localhost:3000"), HasSubstr("http://localhost:3000\r\n"));
  for (const char* other :
       {"http://app.example", "https://app.example:8443", "https://b.app.example",
        "https://app.example.evil", "http://localhost", "null", "https://app.exampl", "*", ""}) {
    EXPECT_THAT(cors.lines_for(other), IsEmpty()) << other;
  }
}

TEST(CorsTest, AnAsteriskAllowsEachPageAndIsSaidInPlaceOfItsOrigin) {
  const Cors cors = Cors::create("*");
  EXPECT_THAT(cors.lines_for("https://any.example"), HasSubstr("Allow-Origin: *\r\n"));
  EXPECT_THAT(cors.lines_for("null"), HasSubstr("Allow-Origin: *\r\n"));
  EXPECT_THAT(cors.lines_for(""), IsEmpty()) << "no browser asks";
}

TEST(CorsTest, AllLinesOfTheLongestOriginFitAReplysHead) {
  const std::string longest = "https://" + std::string(kMaxOriginBytes - 8, 'a');
  ASSERT_TRUE(is_origin_list(longest));
  const Cors cors = Cors::create(longest);
  EXPECT_LE(cors.lines_for(longest).size() + Cors::preflight_lines().size(), 512u);
}

TEST(CorsTest, AListIsOfOriginsAsBrowsersSendThem) {
  for (const char* good : {"", "*", "https://a.example", "http://a:80,https://[::1]:8443",
                           "chrome-extension://abc", "*,https://a.example"}) {
    EXPECT_TRUE(is_origin_list(good)) << good;
  }
  for (const char* bad : {"a.example", "https://", "://a", "https://a/", "https://a, https://b",
                          "https://a,", ",", "https://a\r\nX: 1", "https://u@a", "null"}) {
    EXPECT_FALSE(is_origin_list(bad)) << bad;
  }
  EXPECT_FALSE(is_origin_list("https://" + std::string(kMaxOriginBytes, 'a')));
}

}  // namespace
}  // namespace lumen::http
