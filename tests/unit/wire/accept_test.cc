// Lists of Accept and Accept-Encoding: names, weights, and elements that can't be read.
#include <lumen/wire/accept.h>

#include <gtest/gtest.h>

#include <string>

namespace lumen::wire {
namespace {

TEST(Accept, AnElementWithoutAWeightIsWantedWholly) {
  EXPECT_EQ(1000, quality_of("gzip", "gzip"));
  EXPECT_EQ(1000, quality_of("gzip, deflate", "deflate"));
  EXPECT_EQ(1000, quality_of(" GZip ;level=1", "gzip"));
  EXPECT_EQ(1000, quality_of("a;version=1.0.0,b;q=0.5", "a"));
}

TEST(Accept, AWeightIsReadToItsThousandth) {
  EXPECT_EQ(500, quality_of("gzip;q=0.5", "gzip"));
  EXPECT_EQ(123, quality_of("gzip; Q = 0.123", "gzip"));
  EXPECT_EQ(0, quality_of("gzip;q=0", "gzip"));
  EXPECT_EQ(0, quality_of("gzip;q=0.000", "gzip"));
  EXPECT_EQ(1000, quality_of("gzip;q=1.000", "gzip"));
  EXPECT_EQ(750, quality_of("a;version=0.0.1;q=0.75", "a"));
  EXPECT_EQ(1000, quality_of("a;q=0.2,b,a", "a"));
}

TEST(Accept, AnotherNameOrAWeightThatIsNoneIsNotListed) {
  EXPECT_EQ(kNotListed, quality_of("", "gzip"));
  EXPECT_EQ(kNotListed, quality_of("gzipx, xgzip, ,;", "gzip"));
  for (const char* weight : {"", "2", "1.001", "0.1234", "-1", ".5", "abc", "0x1"}) {
    const std::string list = std::string("gzip;q=") + weight;
    EXPECT_EQ(kNotListed, quality_of(list, "gzip")) << list;
  }
  EXPECT_EQ(1000, quality_of("gzip;q=1.", "gzip"));
}

}  // namespace
}  // namespace lumen::wire
