// decode(): PNG and JPEG to pixels, and all that it must refuse. Pillow's pixels are the oracle of
// tests/integration/test_pictures.py; here the encoders of the two libraries are.
#include <lumen/pictures/decode.h>

#include "unit/pictures/picture_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace lumen::pictures {
namespace {

using test::Bytes;
using test::jpeg_file;
using test::png_file;
using test::some_pixels;

constexpr uint32_t kWidth = 37;
constexpr uint32_t kHeight = 23;
constexpr uint32_t kUsualMostPixels = 16u << 20;

struct Decoded {
  Status status;
  std::vector<uint8_t> pixels;
};

Decoded decode_as(const Bytes& file, Size size, uint32_t channels = 3,
                  uint32_t most_pixels = kUsualMostPixels) {
  Decoded decoded;
  decoded.pixels.resize(size_t{size.height} * size.width * channels);
  const Wanted wanted{.fit = {.size = size}, .channels = channels, .most_pixels = most_pixels};
  decoded.status = decode(file, wanted, decoded.pixels);
  return decoded;
}

std::string refusal_of(const Bytes& file, uint32_t most_pixels = kUsualMostPixels) {
  const Decoded decoded = decode_as(file, {8, 8}, 3, most_pixels);
  EXPECT_EQ(decoded.status.code(), Code::kInvalidArgument);
  return std::string(decoded.status.message());
}

Bytes rgb_png(bool is_interlaced = false) {
  return png_file(kWidth, kHeight, SPNG_COLOR_TYPE_TRUECOLOR,
                  some_pixels(size_t{kWidth} * kHeight * 3), is_interlaced);
}

Bytes rgb_jpeg(const test::JpegKind& kind = {}) {
  return jpeg_file(kWidth, kHeight, some_pixels(size_t{kWidth} * kHeight * 3), kind);
}

TEST(DecodePicture, APngOfTheModelsSizeGivesItsOwnPixels) {
  for (const bool is_interlaced : {false, true}) {
    const Decoded decoded = decode_as(rgb_png(is_interlaced), {kHeight, kWidth});
    ASSERT_TRUE(decoded.status.ok()) << decoded.status.message();
    EXPECT_EQ(decoded.pixels, some_pixels(size_t{kWidth} * kHeight * 3));
  }
}

TEST(DecodePicture, AGreyPngGivesThreeEqualChannelsOrOne) {
  const std::vector<uint8_t> grey = some_pixels(size_t{kWidth} * kHeight);
  const Bytes file = png_file(kWidth, kHeight, SPNG_COLOR_TYPE_GRAYSCALE, grey);
  EXPECT_EQ(decode_as(file, {kHeight, kWidth}, 1).pixels, grey);
  const Decoded three = decode_as(file, {kHeight, kWidth});
  ASSERT_TRUE(three.status.ok());
  for (size_t i = 0; i < three.pixels.size(); ++i) ASSERT_EQ(three.pixels[i], grey[i / 3]);
}

TEST(DecodePicture, AnAlphaChannelIsLeftOut) {
  const std::vector<uint8_t> pixels = some_pixels(size_t{kWidth} * kHeight * 4);
  const Bytes file = png_file(kWidth, kHeight, SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, pixels);
  const Decoded decoded = decode_as(file, {kHeight, kWidth});
  ASSERT_TRUE(decoded.status.ok());
  for (size_t i = 0; i < decoded.pixels.size(); ++i) {
    ASSERT_EQ(decoded.pixels[i], pixels[i / 3 * 4 + i % 3]);
  }
}

TEST(DecodePicture, AJpegOfOneColourGivesIt) {
  const std::vector<uint8_t> pixels(size_t{kWidth} * kHeight * 3, 119);
  for (const bool is_progressive : {false, true}) {
    const Bytes file = jpeg_file(kWidth, kHeight, pixels, {.is_progressive = is_progressive});
    const Decoded decoded = decode_as(file, {kHeight, kWidth});
    ASSERT_TRUE(decoded.status.ok()) << decoded.status.message();
    for (const uint8_t value : decoded.pixels) ASSERT_NEAR(value, 119, 1);
  }
}

TEST(DecodePicture, AJpegOfThePressIsRefused) {
  const Bytes file = jpeg_file(kWidth, kHeight, some_pixels(size_t{kWidth} * kHeight * 4),
                               {.colors = JCS_CMYK, .channels = 4});
  EXPECT_EQ(refusal_of(file), "is a JPEG of the colours of print (CMYK), wanted RGB or grey");
}

TEST(DecodePicture, AFileThatIsNeitherSaysItsFirstBytes) {
  EXPECT_EQ(refusal_of({}), "is empty, wanted a JPEG or PNG file");
  const Bytes gif = {std::byte{'G'}, std::byte{'I'}, std::byte{'F'}};
  EXPECT_EQ(refusal_of(gif),
            "has 3 bytes, of which the first are 47 49 46, wanted a JPEG or PNG file");
}

TEST(DecodePicture, EveryCutOfAFileIsRefusedOrGivesTheWholePicture) {
  for (const Bytes& file :
       {rgb_png(), rgb_png(true), rgb_jpeg(), rgb_jpeg({.is_progressive = true})}) {
    const Decoded whole = decode_as(file, {kHeight, kWidth});
    ASSERT_TRUE(whole.status.ok());
    for (size_t size = 0; size < file.size(); ++size) {
      const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
      const Decoded decoded = decode_as(cut, {kHeight, kWidth});
      // Without its last chunk, which holds no pixels, a PNG has them all.
      if (decoded.status.ok()) {
        EXPECT_GE(size + 20, file.size());
        EXPECT_EQ(decoded.pixels, whole.pixels);
      }
    }
  }
}

TEST(DecodePicture, ABitThatIsTurnedInAPngNeverGivesOtherPixels) {
  const Bytes file = rgb_png();
  const Decoded whole = decode_as(file, {kHeight, kWidth});
  for (size_t bit = 0; bit < file.size() * 8; ++bit) {
    Bytes changed = file;
    changed[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    const Decoded decoded = decode_as(changed, {kHeight, kWidth});
    if (decoded.status.ok()) {
      ASSERT_EQ(decoded.pixels, whole.pixels) << "bit " << bit;
    }
  }
}

// The size stands in the head: nothing of the picture has been decoded then.
TEST(DecodePicture, ABombIsRefusedByItsDimensions) {
  const uint32_t side = 3000;
  const std::vector<uint8_t> black(size_t{side} * side, 0);
  const Bytes png = png_file(side, side, SPNG_COLOR_TYPE_GRAYSCALE, black);
  const Bytes jpeg = jpeg_file(side, side, black, {.colors = JCS_GRAYSCALE, .channels = 1});
  EXPECT_EQ(refusal_of(png, 1'000'000),
            "is a PNG of 3000 x 3000, wanted at most 1000000 pixels and sides from 1 to 65535 "
            "(\"most_pixels\" in config.json sets the number)");
  EXPECT_TRUE(refusal_of(jpeg, 1'000'000).starts_with("is a JPEG of 3000 x 3000, wanted"));
  EXPECT_TRUE(decode_as(png, {8, 8}).status.ok());
  EXPECT_TRUE(decode_as(jpeg, {8, 8}).status.ok());
}

TEST(DecodePicture, APngThatClaimsBillionsOfPixelsIsRefused) {
  Bytes file = rgb_png();
  for (const size_t at : {size_t{16}, size_t{20}}) file[at] = std::byte{0x7F};  // width, height
  const std::string refusal = refusal_of(file);
  EXPECT_TRUE(refusal.starts_with("is a PNG")) << refusal;
}

TEST(DecodePicture, AProgressiveJpegOfManyScansIsRefusedByThePixelsThatTheyTouch) {
  const std::vector<uint8_t> pixels = some_pixels(size_t{kWidth} * kHeight * 3);
  const Bytes file = jpeg_file(kWidth, kHeight, pixels, {.is_progressive = true, .scans = 150});
  EXPECT_TRUE(decode_as(file, {8, 8}).status.ok());
  EXPECT_EQ(refusal_of(file, kWidth * kHeight),
            "is a JPEG that can't be decoded: it has more than 16 scans");
}

TEST(DecodePicture, AShortMiddleOfANarrowPictureIsRefused) {
  const Bytes file = png_file(1, 2000, SPNG_COLOR_TYPE_GRAYSCALE, some_pixels(2000));
  std::vector<uint8_t> out(size_t{8} * 8 * 3);
  const Wanted wanted{.fit = {.size = {8, 8}, .shorter_side = 64}, .most_pixels = kUsualMostPixels};
  const Status status = decode(file, wanted, out);
  EXPECT_EQ(status.code(), Code::kTooLarge);
  EXPECT_EQ(status.message(),
            "is a picture of 1 x 2000, which is too narrow: resized to a shorter side of 64 its "
            "longer one is more than 65535");
}

}  // namespace
}  // namespace lumen::pictures
