// The reason of a library's failure, as a Status has it. Threads: one. Memory: the heap. Errors: by
// gtest.
#include "backends/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lumen::backends {
namespace {

std::string text_of(const std::string& thrown) {
  return std::string(failed(Code::kUnavailable, "loading", "m", thrown.c_str()).message());
}

TEST(FailureTest, HasTheReasonOnOneLine) {
  EXPECT_EQ(text_of(" a\n\tb  c\r\n"), "loading model 'm': a b c");
  EXPECT_EQ(text_of(""), "loading model 'm': ");
}

TEST(FailureTest, LeavesOutPositionsInTheLibrarysOwnSource) {
  EXPECT_EQ(text_of("Exception: /onnxruntime_src/core/text.cc:235 no such locale"),
            "loading model 'm': Exception: no such locale");
  EXPECT_EQ(text_of("failed at src/core/x.cpp:12: bad file models/a.onnx"),
            "loading model 'm': failed at bad file models/a.onnx");
}

// Was: the first 500 bytes, and the words that help stand at the end.
TEST(FailureTest, KeepsTheEndOfALongReason) {
  std::string words;
  for (int i = 0; i < 2000; ++i) words += "word ";
  const std::string text = text_of(words + "install the locale");
  EXPECT_THAT(text, testing::StartsWith("loading model 'm': ... word "));
  EXPECT_THAT(text, testing::EndsWith("word install the locale"));
  const std::string shorter = text_of(words.substr(0, 1000) + "install the locale");
  EXPECT_THAT(shorter, testing::EndsWith("word install the locale"));
  EXPECT_LT(shorter.size(), 300u);
  EXPECT_EQ(text_of(std::string(1000, 'x')).size(), 263u);
  EXPECT_EQ(text_of(std::string(10000, 'x')).size(), 263u);
}

}  // namespace
}  // namespace lumen::backends
