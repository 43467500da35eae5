// pictures::decode(): a file gives an error or the same pixels each time, whatever stood in the
// memory before, and nothing beside them is written. The first byte of the input is how it is
// resized.
#include <lumen/pictures/decode.h>

#include "fuzz/fuzz_support.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

using lumen::fuzz::Copy;
using lumen::pictures::Filter;
using lumen::pictures::Wanted;

namespace {

// Larger ones only take longer.
constexpr uint32_t kMostPixels = 1u << 16;

std::vector<uint8_t> pixels_of(std::span<const std::byte> file, const Wanted& wanted, uint8_t fill,
                               lumen::Status& status) {
  const auto& size = wanted.fit.size;
  std::vector<uint8_t> pixels(size_t{size.height} * size.width * wanted.channels, fill);
  status = lumen::pictures::decode(file, wanted, pixels);
  return pixels;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const uint8_t how = data[0];
  const Copy copy(std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  const std::span file(reinterpret_cast<const std::byte*>(copy.view().data()), copy.view().size());
  Wanted wanted{.fit = {.size = {1 + how % 5u, 1 + how % 7u}},
                .channels = how % 2 == 0 ? 3u : 1u,
                .most_pixels = kMostPixels};
  if ((how & 4) != 0) wanted.fit.filter = Filter::kBicubic;
  if ((how & 8) != 0) wanted.fit.shorter_side = 9;
  lumen::Status one;
  lumen::Status other;
  const std::vector<uint8_t> pixels = pixels_of(file, wanted, 0, one);
  const std::vector<uint8_t> again = pixels_of(file, wanted, 0xFF, other);
  LUMEN_CHECK(one.code() == other.code() && one.message() == other.message());
  if (one.ok()) LUMEN_CHECK(pixels == again);
  if (!one.ok()) LUMEN_CHECK(!one.message().empty());
  return 0;
}
