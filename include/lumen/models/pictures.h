// Pictures: "pictures" of a model's config.json. Inputs that are pictures in the model's numbers
// become inputs of pixels (UINT8, rows of height x width x channels) or of files (BYTES, JPEG or
// PNG); the server makes the model's numbers of them.
// Threads: any. Memory: the heap, while a model is loaded. Errors: a Status with the key, the value
// got and the values wanted.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/metadata.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace lumen::models {

struct PictureOptions {
  enum class Form : uint8_t { kPixels, kFiles };
  enum class Channels : uint8_t { kAsModel, kRgb, kBgr, kGrey };
  enum class Layout : uint8_t { kAsModel, kChannelsFirst, kChannelsLast };
  enum class Filter : uint8_t { kBilinear, kBicubic };
  // Of a picture, when none is configured: a photograph of a camera has 12 million. Decoding one of
  // so many keeps a worker for 0.1 to 0.3 s.
  static constexpr uint32_t kUsualMostPixels = 16u << 20;
  Form form = Form::kPixels;
  Channels channels = Channels::kAsModel;  // RGB, or grey with a model of one channel
  Layout layout = Layout::kAsModel;
  uint32_t height = 0;  // 0, and the width: the model's own
  uint32_t width = 0;
  bool is_resized = false;  // pictures of any size are; files always are
  // 0: pictures are stretched. Otherwise they are resized until their shorter side is this long,
  // then the middle is taken.
  uint32_t shorter_side = 0;
  Filter filter = Filter::kBilinear;
  uint32_t most_pixels = kUsualMostPixels;
  // The model gets (pixel - mean) / scale: one number for all channels, or one for each, in the
  // order red, green, blue. Empty: 0 and 1.
  std::vector<float> mean = {};
  std::vector<float> scale = {};
  bool operator==(const PictureOptions&) const = default;
};

using PicturesOptions = std::map<std::string, PictureOptions, std::less<>>;  // by the input's name

// An input with all that its options leave open.
struct PictureInput {
  size_t index = 0;  // of the model's inputs
  PictureOptions::Form form{};
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t shorter_side = 0;
  PictureOptions::Filter filter{};
  uint32_t channels = 3;  // 3 or 1
  uint32_t most_pixels = 0;
  bool is_resized = false;
  bool is_bgr = false;             // the model's order
  bool has_channels_first = true;  // the model's layout
  int64_t rows = Shape::kDynamic;  // of the first axis
  bool has_numbers = true;         // FP32; false: the model takes the pixels themselves, UINT8
  // One for each channel, in the order red, green, blue.
  std::vector<float> mean;
  std::vector<float> scale;

  [[nodiscard]] size_t values() const noexcept {  // of one picture
    return size_t{height} * width * channels;
  }
  // Of the pixels that the model is given once they have its size: [rows, height, width, channels].
  [[nodiscard]] Shape pixel_shape() const noexcept;
  // [rows, channels, height, width] or [rows, height, width, channels].
  [[nodiscard]] Shape model_shape() const noexcept;
};

// Holds the options against the inputs of the model as its file has them.
[[nodiscard]] Result<std::vector<PictureInput>> plan_pictures(const PicturesOptions& options,
                                                              std::span<const TensorSpec> inputs);

// Differs where the options do: a part of the identity of compiled forms and of known costs.
[[nodiscard]] std::string identity_of(const PicturesOptions& options);

}  // namespace lumen::models
