// The bodies of registrations: numbers beyond any range, names that would split a line of a log.
#include "server/region_request.h"

#include <lumen/base/limits.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace lumen::server {
namespace {

using testing::HasSubstr;

std::string refusal(std::string_view name, std::string_view body) {
  const auto parsed = parse_registration(name, body);
  return parsed.ok() ? "none" : std::string(parsed.status().message());
}

TEST(RegionRequest, SaysTheObjectAndThePlaceInIt) {
  const auto parsed =
      parse_registration("r", R"({"key": "/object", "offset": 4096, "byte_size": 64})");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->name, "r");
  EXPECT_EQ(parsed->key, "/object");
  EXPECT_EQ(parsed->offset, 4096u);
  EXPECT_EQ(parsed->byte_size, 64u);
  EXPECT_EQ(
      parse_registration("r", R"({"key": "k", "byte_size": 18446744073709551615})")->byte_size,
      UINT64_MAX);
}

TEST(RegionRequest, NumbersThatAreNoneAreRefused) {
  for (const char* number :
       {"-1", "1.5", "1e3", "\"1\"", "null", "true", "[]", "18446744073709551616"}) {
    const std::string body = std::string(R"({"key": "k", "byte_size": )") + number + "}";
    EXPECT_THAT(refusal("r", body), HasSubstr("byte_size: got ")) << number;
  }
  EXPECT_THAT(refusal("r", R"({"byte_size": 1})"), HasSubstr("key: got none"));
  EXPECT_THAT(refusal("r", R"({"key": 7})"), HasSubstr("key: got 7"));
}

// Was: such a name stood as it is in the messages of requests that used the region wrongly.
TEST(RegionRequest, ANameWithAControlCharacterIsRefused) {
  constexpr std::string_view kBody = R"({"key": "k", "byte_size": 1})";
  for (const std::string_view name : {"a\tb", "a\nb", "\x1b[2J", "a\x7f"}) {
    EXPECT_THAT(refusal(name, kBody), HasSubstr("control character"));
  }
  EXPECT_EQ(refusal("r\xc3\xa9gion", kBody), "none");
  EXPECT_THAT(refusal(std::string(limits::kMaxNameBytes + 1, 'x'), kBody), HasSubstr("bytes"));
}

}  // namespace
}  // namespace lumen::server
