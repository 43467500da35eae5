// Well-formed UTF-8 and other bytes, by the borders of Unicode's table 3-7.
#include <lumen/base/utf8.h>

#include <gtest/gtest.h>

#include <string_view>

namespace lumen {
namespace {

TEST(Utf8, TakesTheFirstAndTheLastCharacterOfEachLength) {
  for (const std::string_view text :
       {std::string_view("\0", 1), std::string_view("\x7f"), std::string_view("\xc2\x80"),
        std::string_view("\xdf\xbf"), std::string_view("\xe0\xa0\x80"),
        std::string_view("\xed\x9f\xbf"), std::string_view("\xee\x80\x80"),
        std::string_view("\xef\xbf\xbf"), std::string_view("\xf0\x90\x80\x80"),
        std::string_view("\xf4\x8f\xbf\xbf")}) {
    EXPECT_EQ(utf8_length(text), text.size());
    EXPECT_TRUE(is_utf8(text));
  }
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("caf\u00e9 \u2014 \U0001F600"));
}

TEST(Utf8, RefusesOverlongFormsSurrogatesAndCutSequences) {
  for (const std::string_view text :
       {"\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc2", "\xe2\x82", "\xf0\x9f\x98",
        "a\xc2"}) {
    EXPECT_FALSE(is_utf8(text));
  }
}

}  // namespace
}  // namespace lumen
