// See the header.
#include "models/picture_steps.h"

#include <lumen/base/check.h>
#include <lumen/pictures/decode.h>

#include <cstring>
#include <new>
#include <span>

namespace lumen::models {
namespace {

constexpr size_t kAlignment = 64;  // that backends bind tensors at

Status no_room(const std::string& name, size_t bytes) {
  return Status::error(Code::kTooLarge,
                       "input '%.128s': its pictures take %zu bytes more than a request may have",
                       name.c_str(), bytes);
}

Result<TensorView> allocate(ElementType type, Shape shape, int64_t rows, const std::string& name,
                            Allocator& memory) {
  TensorView view;
  view.type = type;
  shape[0] = rows;
  view.shape = shape;
  size_t bytes = 0;
  if (__builtin_mul_overflow(shape.element_count().value_or(SIZE_MAX), element_size(type),
                             &bytes)) {
    return no_room(name, SIZE_MAX);
  }
  view.byte_size = bytes;
  view.data = static_cast<std::byte*>(memory.allocate(bytes, kAlignment));
  if (view.data == nullptr) return no_room(name, bytes);
  return view;
}

std::span<uint8_t> picture_at(const TensorView& pixels, size_t index, size_t values) {
  return {reinterpret_cast<uint8_t*>(pixels.data) + index * values, values};
}

pictures::Fit fit_of(const PictureInput& picture) noexcept {
  const bool is_bicubic = picture.filter == PictureOptions::Filter::kBicubic;
  return {.size = {picture.height, picture.width},
          .shorter_side = picture.shorter_side,
          .filter = is_bicubic ? pictures::Filter::kBicubic : pictures::Filter::kBilinear};
}

Status in_element(const std::string& name, size_t index, const Status& status) {
  return Status::error(status.code(), "input '%.128s': element %zu %s", name.c_str(), index,
                       status.c_message());
}

// The lengths have been checked (check_bytes_tensor).
Status decode_all(const PictureInput& picture, const std::string& name, const TensorView& files,
                  const TensorView& pixels) noexcept {
  const pictures::Wanted wanted{
      .fit = fit_of(picture), .channels = picture.channels, .most_pixels = picture.most_pixels};
  const std::byte* file = files.data;
  for (size_t i = 0; i < static_cast<size_t>(files.shape[0]); ++i) {
    uint32_t length = 0;
    std::memcpy(&length, file, sizeof(length));
    file += sizeof(length);
    LUMEN_CHECK(file + length <= files.data + files.byte_size);
    const Status status =
        pictures::decode({file, length}, wanted, picture_at(pixels, i, picture.values()));
    if (!status.ok()) return in_element(name, i, status);
    file += length;
  }
  return {};
}

Status resize_all(const PictureInput& picture, const std::string& name, const TensorView& input,
                  const TensorView& pixels) noexcept {
  const auto side = [&](size_t axis) { return static_cast<uint64_t>(input.shape[axis]); };
  if (side(1) > pictures::kMostSide || side(2) > pictures::kMostSide ||
      side(1) * side(2) > picture.most_pixels) {
    return Status::error(
        Code::kInvalidArgument,
        "input '%.128s': got pictures of %llu x %llu, wanted at most %u pixels and "
        "sides of at most %u (\"most_pixels\" in config.json sets the number)",
        name.c_str(), static_cast<unsigned long long>(side(2)),
        static_cast<unsigned long long>(side(1)), picture.most_pixels, pictures::kMostSide);
  }
  const pictures::Size from{static_cast<uint32_t>(side(1)), static_cast<uint32_t>(side(2))};
  const size_t row_bytes = size_t{from.width} * picture.channels;
  const auto* row = reinterpret_cast<const uint8_t*>(input.data);
  try {
    for (size_t i = 0; i < side(0); ++i) {
      Result<pictures::Resizer> resizer =
          pictures::Resizer::create(from, fit_of(picture), picture.channels);
      if (!resizer.ok()) return in_element(name, i, resizer.status());
      for (uint32_t y = 0; y < from.height; ++y, row += row_bytes) resizer->add_row(row);
      resizer->write(picture_at(pixels, i, picture.values()));
    }
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kResourceExhausted, "input '%.128s': no memory to resize it",
                         name.c_str());
  }
  return {};
}

}  // namespace

PixelNumbers::PixelNumbers(const PictureInput& picture)
    : of_channel_(picture.channels),
      places_(size_t{picture.height} * picture.width),
      is_bgr_(picture.is_bgr),
      has_channels_first_(picture.has_channels_first) {
  for (size_t channel = 0; channel < of_channel_.size(); ++channel) {
    for (size_t value = 0; value < of_channel_[channel].size(); ++value) {
      of_channel_[channel][value] =
          (static_cast<float>(value) - picture.mean[channel]) / picture.scale[channel];
    }
  }
}

void PixelNumbers::convert(const std::byte* pixels, size_t pictures, float* out) const noexcept {
  const size_t channels = of_channel_.size();
  const size_t values = places_ * channels;
  // Between two pixels' numbers of one channel, and between two channels of one pixel.
  const size_t step = has_channels_first_ ? 1 : channels;
  const size_t channel_step = has_channels_first_ ? places_ : 1;
  for (size_t i = 0; i < pictures; ++i, pixels += values, out += values) {
    for (size_t channel = 0; channel < channels; ++channel) {
      const std::array<float, 256>& numbers = of_channel_[channel];
      const std::byte* from = pixels + channel;
      float* to = out + (is_bgr_ ? channels - 1 - channel : channel) * channel_step;
      for (size_t place = 0; place < places_; ++place, from += channels, to += step) {
        *to = numbers[std::to_integer<size_t>(*from)];
      }
    }
  }
}

Result<TensorView> to_pixels(const PictureInput& picture, const std::string& name,
                             const TensorView& input, Allocator& memory) noexcept {
  const bool is_files = picture.form == PictureOptions::Form::kFiles;
  if (!is_files && !picture.is_resized) return input;
  Result<TensorView> pixels =
      allocate(ElementType::kUint8, picture.pixel_shape(), input.shape[0], name, memory);
  if (!pixels.ok()) return pixels;
  const Status status = is_files ? decode_all(picture, name, input, *pixels)
                                 : resize_all(picture, name, input, *pixels);
  if (!status.ok()) return status;
  return pixels;
}

Result<TensorView> to_numbers(const PictureInput& picture, const std::string& name,
                              const PixelNumbers& numbers, const TensorView& pixels,
                              Allocator& memory) noexcept {
  Result<TensorView> out =
      allocate(ElementType::kFp32, picture.model_shape(), pixels.shape[0], name, memory);
  if (!out.ok()) return out;
  numbers.convert(pixels.data, static_cast<size_t>(pixels.shape[0]),
                  reinterpret_cast<float*>(out->data));
  return out;
}

}  // namespace lumen::models
