// See the header.
#include <lumen/pictures/decode.h>

#include "pictures/row_taker.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <new>
#include <utility>

namespace lumen::pictures {
namespace {

constexpr std::array<uint8_t, 3> kJpeg = {0xFF, 0xD8, 0xFF};
constexpr std::array<uint8_t, 8> kPng = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

template <size_t kSize>
bool begins_with(std::span<const std::byte> file, const std::array<uint8_t, kSize>& bytes) {
  return file.size() >= kSize && std::ranges::equal(file.first(kSize), bytes, {}, [](std::byte b) {
           return std::to_integer<uint8_t>(b);
         });
}

Status neither(std::span<const std::byte> file) {
  if (file.empty()) {
    return Status::error(Code::kInvalidArgument, "is empty, wanted a JPEG or PNG file");
  }
  std::array<char, 32> text{};
  size_t size = 0;
  for (const std::byte byte : file.first(std::min<size_t>(file.size(), 8))) {
    size += static_cast<size_t>(std::snprintf(text.data() + size, text.size() - size, " %02x",
                                              std::to_integer<unsigned>(byte)));
  }
  return Status::error(Code::kInvalidArgument,
                       "has %zu bytes, of which the first are%s, wanted a JPEG or PNG file",
                       file.size(), text.data());
}

// ITU-R 601-2, in fixed-point numbers as Pillow has them.
uint8_t grey_of(const uint8_t* pixel) noexcept {
  const uint32_t sum = 19'595u * pixel[0] + 38'470u * pixel[1] + 7'471u * pixel[2] + 0x8000u;
  return static_cast<uint8_t>(sum >> 16);
}

}  // namespace

bool RowTaker::begin(const char* kind, uint64_t height, uint64_t width) {
  if (height == 0 || width == 0 || height > kMostSide || width > kMostSide ||
      height * width > wanted_.most_pixels) {
    refusal_ =
        Status::error(Code::kInvalidArgument,
                      "is a %s of %llu x %llu, wanted at most %u pixels and sides from 1 to %u "
                      "(\"most_pixels\" in config.json sets the number)",
                      kind, static_cast<unsigned long long>(width),
                      static_cast<unsigned long long>(height), wanted_.most_pixels, kMostSide);
    return false;
  }
  const Size size{static_cast<uint32_t>(height), static_cast<uint32_t>(width)};
  Result<Resizer> resizer = Resizer::create(size, wanted_.fit, wanted_.channels);
  if (!resizer.ok()) {
    refusal_ = resizer.status();
    return false;
  }
  resizer_ = std::move(*resizer);
  row_.resize(size_t{size.width} * kDecodedChannels);
  if (wanted_.channels == 1) grey_.resize(size.width);
  return true;
}

void RowTaker::take(const uint8_t* row) noexcept {
  if (wanted_.channels == 1) {
    for (size_t i = 0; i < grey_.size(); ++i) grey_[i] = grey_of(row + i * kDecodedChannels);
    row = grey_.data();
  }
  resizer_->add_row(row);
}

Status decode(std::span<const std::byte> file, const Wanted& wanted,
              std::span<uint8_t> out) noexcept {
  try {
    RowTaker rows(wanted, out);
    if (begins_with(file, kJpeg)) return decode_jpeg(file, rows);
    if (begins_with(file, kPng)) return decode_png(file, rows);
    return neither(file);
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kResourceExhausted, "needs more memory than there is to decode it");
  }
}

}  // namespace lumen::pictures
