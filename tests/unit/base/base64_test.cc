// Base64: RFC 4648's own examples, and forms that are not canonical.
#include <lumen/base/base64.h>

#include <gtest/gtest.h>

#include <utility>

namespace lumen {
namespace {

TEST(Base64, DecodesTheExamplesOfItsStandard) {
  const std::pair<const char*, const char*> rows[] = {{"", ""},
                                                      {"Zg==", "f"},
                                                      {"Zm8=", "fo"},
                                                      {"Zm9v", "foo"},
                                                      {"Zm9vYg==", "foob"},
                                                      {"Zm9vYmE=", "fooba"},
                                                      {"Zm9vYmFy", "foobar"}};
  for (const auto& [text, bytes] : rows) EXPECT_EQ(decode_base64(text), bytes) << text;
  EXPECT_EQ(decode_base64("/+8A"), std::string("\xff\xef\0", 3));
}

TEST(Base64, RefusesEveryOtherForm) {
  for (const char* text : {"Z", "Zg", "Zg=", "Zg===", "====", "=", "Zh==", "Zm9=", "Zm 8=", "Zm8-",
                           "Zm8_", "Zg==Zg==", "Zm\n8", "Zm8=\n", "Z=g="}) {
    EXPECT_EQ(decode_base64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace lumen
