// JsonWriter: commas, escapes, numbers and its state when the buffer is full.
#include <lumen/wire/json_writer.h>

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace lumen::wire {
namespace {

std::string string_text(std::string_view text) {
  char buffer[256];
  JsonWriter writer(buffer);
  return std::string(writer.string(text).text());
}

template <typename T>
std::string number_text(T value) {
  char buffer[64];
  JsonWriter writer(buffer);
  return std::string(writer.number(value).text());
}

TEST(JsonWriter, PutsCommasByItself) {
  char buffer[256];
  JsonWriter writer(buffer);
  writer.begin_object().key("a").integer(-1).key("b").begin_array().unsigned_integer(UINT64_MAX);
  writer.begin_array().end_array().begin_object().end_object().boolean(true).boolean(false);
  writer.end_array().key("c").raw("null").key("d").string("x").end_object();
  EXPECT_EQ(writer.text(),
            R"({"a":-1,"b":[18446744073709551615,[],{},true,false],"c":null,"d":"x"})");
  EXPECT_FALSE(writer.overflowed());
}

TEST(JsonWriter, EscapesCharactersThatJsonForbidsInStrings) {
  EXPECT_EQ(string_text("plain text that is long"), "\"plain text that is long\"");
  EXPECT_EQ(string_text("a\"b\\c/d"), R"("a\"b\\c/d")");
  EXPECT_EQ(string_text("\b\f\n\r\t"), R"("\b\f\n\r\t")");
  EXPECT_EQ(string_text(std::string_view("\0\x1f\x7f", 3)), "\"\\u0000\\u001f\x7f\"");
}

TEST(JsonWriter, KeepsValidUtf8) {
  EXPECT_EQ(string_text("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"),
            "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
}

TEST(JsonWriter, ReplacesEachByteThatIsNotUtf8) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(string_text("\xff"), "\"" + r + "\"");
  EXPECT_EQ(string_text("a\xc3"), "\"a" + r + "\"") << "cut sequence";
  EXPECT_EQ(string_text("\xc0\xaf"), "\"" + r + r + "\"") << "overlong slash";
  EXPECT_EQ(string_text("\xed\xa0\x80"), "\"" + r + r + r + "\"") << "surrogate";
  EXPECT_EQ(string_text("\xf4\x90\x80\x80"), "\"" + r + r + r + r + "\"") << "above U+10FFFF";
  EXPECT_EQ(string_text("\xe0\x9f\xbf"), "\"" + r + r + r + "\"") << "overlong of three";
  EXPECT_EQ(string_text("\xc3"
                        "a"),
            "\"" + r + "a\"");
}

TEST(JsonWriter, WritesTheShortestTextThatReadsBack) {
  EXPECT_EQ(number_text(0.1F), "0.1");
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(static_cast<double>(0.1F)), "0.10000000149011612");
  EXPECT_EQ(number_text(3.0F), "3");
  EXPECT_EQ(number_text(-0.0F), "-0");
  EXPECT_EQ(number_text(-8388607.0F), "-8388607");
  EXPECT_EQ(number_text(std::numeric_limits<float>::denorm_min()), "1e-45");
  EXPECT_EQ(number_text(std::numeric_limits<float>::lowest()), "-3.4028235e+38");
  EXPECT_EQ(number_text(-std::numeric_limits<double>::min()), "-2.2250738585072014e-308");
}

TEST(JsonWriter, WritesNullForNumbersThatJsonCannotSay) {
  EXPECT_EQ(number_text(std::numeric_limits<float>::quiet_NaN()), "null");
  EXPECT_EQ(number_text(-std::numeric_limits<double>::infinity()), "null");
}

TEST(JsonWriter, SaysWhenTheBufferIsFullAndWritesNothingFromThereOn) {
  constexpr std::string_view kWhole = "{\"ab\":\"c\\n\xef\xbf\xbd\",\"d\":1.5}";
  for (size_t size = 1; size < 20; ++size) {
    std::string buffer(size + 8, '#');
    JsonWriter writer(std::span<char>(buffer.data(), size));
    writer.begin_object().key("ab").string("c\n\xff").key("d").number(1.5).end_object();
    EXPECT_TRUE(writer.overflowed()) << size;
    EXPECT_LE(writer.text().size(), size);
    EXPECT_TRUE(kWhole.starts_with(writer.text())) << writer.text();
    EXPECT_NE(writer.text().back(), '\\') << "no half of an escape";
    EXPECT_EQ(buffer.substr(size), "########") << size;
  }
}

}  // namespace
}  // namespace lumen::wire
