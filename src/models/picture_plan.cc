// See the header.
#include <lumen/models/pictures.h>

#include <lumen/pictures/decode.h>
#include <lumen/tensor/type_text.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <optional>
#include <utility>

namespace lumen::models {
namespace {

constexpr size_t kPictureRank = 4;

[[gnu::format(printf, 2, 3)]] Status refuse(const std::string& name, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const Status reason = Status::verror(Code::kInvalidArgument, format, args);
  va_end(args);
  return reason.at("config.json: key \"pictures." + name.substr(0, 100) + "\"");
}

bool may_be_channels(int64_t size) noexcept { return size == 1 || size == 3; }

std::string text_of(const TensorSpec& input) { return type_text(input.type, input.shape); }

// Which axis holds the channels; nullopt: the shape does not say.
std::optional<bool> has_channels_first(const PictureOptions& options, const Shape& shape) {
  using Layout = PictureOptions::Layout;
  if (options.layout != Layout::kAsModel) return options.layout == Layout::kChannelsFirst;
  const bool first = may_be_channels(shape[1]);
  if (first == may_be_channels(shape[3])) return std::nullopt;
  return first;
}

uint32_t channels_of(const PictureOptions& options, int64_t of_model) noexcept {
  if (options.channels == PictureOptions::Channels::kGrey) return 1;
  if (options.channels != PictureOptions::Channels::kAsModel) return 3;
  return of_model == 1 ? 1 : 3;
}

Status set_size(PictureInput& picture, const std::string& name, const PictureOptions& options,
                const TensorSpec& input) {
  const size_t height_axis = picture.has_channels_first ? 2 : 1;
  const int64_t height = input.shape[height_axis];
  const int64_t width = input.shape[height_axis + 1];
  if (options.height == 0) {
    if (height < 1 || width < 1) {
      return refuse(name, "the model takes any height and width (%s); give it \"size\"",
                    text_of(input).c_str());
    }
    if (std::max(height, width) > pictures::kMostSide) {
      return refuse(name, "the model takes %s, wanted sides of at most %u", text_of(input).c_str(),
                    pictures::kMostSide);
    }
    picture.height = static_cast<uint32_t>(height);
    picture.width = static_cast<uint32_t>(width);
  } else {
    const auto fits = [](int64_t of_model, uint32_t wanted) {
      return of_model < 0 || of_model == int64_t{wanted};
    };
    if (!fits(height, options.height) || !fits(width, options.width)) {
      return refuse(name, "got \"size\": [%u, %u], and the model takes %s", options.height,
                    options.width, text_of(input).c_str());
    }
    picture.height = options.height;
    picture.width = options.width;
  }
  const uint32_t longest = std::max(picture.height, picture.width);
  if (options.shorter_side != 0 && options.shorter_side < longest) {
    return refuse(name, "got \"shorter_side\": %u, wanted at least %u, the longer side of the size",
                  options.shorter_side, longest);
  }
  picture.shorter_side = options.shorter_side;
  picture.filter = options.filter;
  return {};
}

// `given`: one for all channels, or one for each.
std::optional<std::vector<float>> spread(const std::vector<float>& given, uint32_t channels,
                                         float usual) {
  if (given.empty()) return std::vector<float>(channels, usual);
  if (given.size() == channels) return given;
  if (given.size() != 1) return std::nullopt;
  return std::vector<float>(channels, given.front());
}

Status set_numbers(PictureInput& picture, const std::string& name, const PictureOptions& options) {
  std::optional<std::vector<float>> mean = spread(options.mean, picture.channels, 0);
  std::optional<std::vector<float>> scale = spread(options.scale, picture.channels, 1);
  if (!mean || !scale) {
    return refuse(name, "got %zu numbers of \"mean\" and %zu of \"scale\", wanted 1 or %u",
                  options.mean.size(), options.scale.size(), picture.channels);
  }
  picture.mean = std::move(*mean);
  picture.scale = std::move(*scale);
  return {};
}

Result<PictureInput> plan(const std::string& name, const PictureOptions& options,
                          const TensorSpec& input) {
  const bool has_type = input.type == ElementType::kFp32 || input.type == ElementType::kUint8;
  if (!has_type || input.shape.rank() != kPictureRank) {
    return refuse(name,
                  "the model takes %s, wanted FP32 or UINT8 with four axes: rows, channels, height "
                  "and width, or rows, height, width and channels",
                  text_of(input).c_str());
  }
  PictureInput picture{.form = options.form, .mean = {}, .scale = {}};
  const std::optional<bool> first = has_channels_first(options, input.shape);
  if (!first) {
    return refuse(name,
                  "the model takes %s, where the second or the fourth axis may be that of channels;"
                  " say it by \"layout\": \"nchw\" or \"nhwc\"",
                  text_of(input).c_str());
  }
  picture.has_channels_first = *first;
  const int64_t channels = input.shape[*first ? 1 : 3];
  picture.channels = channels_of(options, channels);
  if (channels != Shape::kDynamic && channels != int64_t{picture.channels}) {
    return refuse(name, "the model takes %s, wanted %u channels there", text_of(input).c_str(),
                  picture.channels);
  }
  picture.is_bgr = options.channels == PictureOptions::Channels::kBgr;
  picture.rows = input.shape[0];
  picture.most_pixels = options.most_pixels;
  picture.is_resized = options.is_resized || options.form == PictureOptions::Form::kFiles;
  picture.has_numbers = input.type == ElementType::kFp32;
  LUMEN_RETURN_IF_ERROR(set_size(picture, name, options, input));
  LUMEN_RETURN_IF_ERROR(set_numbers(picture, name, options));
  if (picture.has_numbers) return picture;
  if (!options.mean.empty() || !options.scale.empty() || picture.is_bgr || *first) {
    return refuse(name,
                  "the model takes the pixels themselves (%s), which \"mean\", \"scale\", \"bgr\" "
                  "and channels before the height do not go with; leave them out",
                  text_of(input).c_str());
  }
  return picture;
}

}  // namespace

Shape PictureInput::pixel_shape() const noexcept {
  Shape shape;
  for (const int64_t size : {rows, int64_t{height}, int64_t{width}, int64_t{channels}}) {
    (void)shape.append(size);  // four of eight
  }
  return shape;
}

Shape PictureInput::model_shape() const noexcept {
  Shape shape = pixel_shape();
  if (!has_channels_first) return shape;
  shape[1] = int64_t{channels};
  shape[2] = int64_t{height};
  shape[3] = int64_t{width};
  return shape;
}

Result<std::vector<PictureInput>> plan_pictures(const PicturesOptions& options,
                                                std::span<const TensorSpec> inputs) {
  std::vector<PictureInput> planned;
  for (const auto& [name, of_input] : options) {
    const auto found = std::ranges::find(inputs, name, &TensorSpec::name);
    if (found == inputs.end()) {
      std::string names;
      for (const TensorSpec& input : inputs) {
        names.append(names.empty() ? "\"" : ", \"").append(input.name).append("\"");
      }
      return refuse(name, "the model has no such input, wanted one of %s", names.c_str());
    }
    Result<PictureInput> picture = plan(name, of_input, *found);
    if (!picture.ok()) return picture.status();
    picture->index = static_cast<size_t>(found - inputs.begin());
    planned.push_back(std::move(*picture));
  }
  return planned;
}

std::string identity_of(const PicturesOptions& options) {
  std::string text;
  const auto add = [&text](auto number) { text.append(1, ' ').append(std::to_string(number)); };
  const auto add_floats = [&text](const std::vector<float>& numbers) {
    char part[32];
    for (const float number : numbers) {
      text.append(part, static_cast<size_t>(
                            std::snprintf(part, sizeof(part), " %a", static_cast<double>(number))));
    }
    text += ';';
  };
  for (const auto& [name, one] : options) {
    text.append(" picture ").append(std::to_string(name.size())).append(":").append(name);
    for (const auto number : {static_cast<uint32_t>(one.form), static_cast<uint32_t>(one.channels),
                              static_cast<uint32_t>(one.layout), one.height, one.width,
                              static_cast<uint32_t>(one.is_resized), one.shorter_side,
                              static_cast<uint32_t>(one.filter), one.most_pixels}) {
      add(number);
    }
    add_floats(one.mean);
    add_floats(one.scale);
  }
  return text;
}

}  // namespace lumen::models
