// Resizer: what follows from the algorithm alone. That its pixels are Pillow's is shown by
// tests/integration/test_pictures.py.
#include <lumen/pictures/resize.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace lumen::pictures {
namespace {

std::vector<uint8_t> resize(Size from, std::span<const uint8_t> pixels, const Fit& fit,
                            uint32_t channels) {
  Result<Resizer> resizer = Resizer::create(from, fit, channels);
  EXPECT_TRUE(resizer.ok());
  for (uint32_t row = 0; row < from.height; ++row) {
    resizer->add_row(pixels.data() + size_t{row} * from.width * channels);
  }
  std::vector<uint8_t> out(size_t{fit.size.height} * fit.size.width * channels);
  resizer->write(out);
  return out;
}

std::vector<uint8_t> random_pixels(std::mt19937_64& random, size_t count) {
  std::vector<uint8_t> pixels(count);
  std::ranges::generate(pixels, [&] { return static_cast<uint8_t>(random()); });
  return pixels;
}

TEST(Resizer, APictureOfTheWantedSizeStaysAsItIs) {
  std::mt19937_64 random(1);
  const std::vector<uint8_t> pixels = random_pixels(random, 7 * 5 * 3);
  for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
    EXPECT_EQ(resize({7, 5}, pixels, {.size = {7, 5}, .filter = filter}, 3), pixels);
  }
}

TEST(Resizer, APictureOfOneColourKeepsItInAnySize) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 300; ++i) {
    const auto side = [&] { return static_cast<uint32_t>(1 + random() % 60); };
    const Size from{side(), side()};
    const auto colour = static_cast<uint8_t>(random());
    const std::vector<uint8_t> pixels(size_t{from.height} * from.width, colour);
    const Fit fit{.size = {side(), side()},
                  .filter = i % 2 == 0 ? Filter::kBilinear : Filter::kBicubic};
    for (const uint8_t value : resize(from, pixels, fit, 1)) ASSERT_EQ(value, colour);
  }
}

TEST(Resizer, HalfTheSizeIsTheMeanOfTheTriangleAround) {
  // Weights 1 3 3 1 of 8, cut at the edges.
  const std::vector<uint8_t> row = {0, 80, 160, 240};
  const std::vector<uint8_t> half = resize({1, 4}, row, {.size = {1, 2}}, 1);
  EXPECT_NEAR(half[0], (3 * 0 + 3 * 80 + 1 * 160) / 7.0, 0.51);
  EXPECT_NEAR(half[1], (1 * 80 + 3 * 160 + 3 * 240) / 7.0, 0.51);
}

TEST(Resizer, TheMiddleIsAPartOfTheWhole) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 50; ++i) {
    const uint32_t width = 40 + static_cast<uint32_t>(random() % 50);
    const std::vector<uint8_t> pixels = random_pixels(random, size_t{40} * width);
    const uint32_t whole_width = 20 * width / 40;
    const std::vector<uint8_t> whole = resize({40, width}, pixels, {.size = {20, whole_width}}, 1);
    const std::vector<uint8_t> middle =
        resize({40, width}, pixels, {.size = {16, 16}, .shorter_side = 20}, 1);
    // Python's round(): halves go to the even number.
    const auto left = static_cast<uint32_t>(std::nearbyint((whole_width - 16) / 2.0));
    for (uint32_t y = 0; y < 16; ++y) {
      for (uint32_t x = 0; x < 16; ++x) {
        ASSERT_EQ(middle[y * 16 + x], whole[(y + 2) * whole_width + left + x]);
      }
    }
  }
}

TEST(Resizer, AnySizesGiveAResultWithoutReadingBeyondTheRows) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 500; ++i) {
    const auto side = [&](uint32_t most) { return static_cast<uint32_t>(1 + random() % most); };
    const Size from{side(90), side(90)};
    const Fit fit{.size = {side(40), side(40)},
                  .filter = i % 2 == 0 ? Filter::kBilinear : Filter::kBicubic};
    const uint32_t channels = i % 3 == 0 ? 1 : 3;
    const std::vector<uint8_t> pixels =
        random_pixels(random, size_t{from.height} * from.width * channels);
    const auto [least, most] = std::ranges::minmax(pixels);
    for (const uint8_t value : resize(from, pixels, fit, channels)) {
      if (fit.filter == Filter::kBilinear) {
        ASSERT_TRUE(value >= least && value <= most);
      }
    }
  }
}

}  // namespace
}  // namespace lumen::pictures
