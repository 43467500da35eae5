// See the header.
#include "models/picture_config.h"

#include <lumen/base/limits.h>
#include <lumen/pictures/resize.h>

#include <nlohmann/json.hpp>

#include "models/json_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>

namespace lumen::models {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kExample =
    R"(the model's inputs of pictures, as {"data": {"form": "files", "scale": 255}})";
// A picture of more is refused by its size before it is decoded; a GiB of pixels is no picture.
constexpr uint32_t kMostMostPixels = 1u << 28;
constexpr float kLeastScale = 1e-6f;
constexpr float kMostNumber = 1e6f;

template <typename Value>
struct Word {
  std::string_view word;
  Value value;
};
// clang 16 does not deduce the argument of an aggregate.
template <typename Value>
Word(std::string_view, Value) -> Word<Value>;
constexpr std::array kForms = {Word{"pixels", PictureOptions::Form::kPixels},
                               Word{"files", PictureOptions::Form::kFiles}};
constexpr std::array kChannels = {Word{"rgb", PictureOptions::Channels::kRgb},
                                  Word{"bgr", PictureOptions::Channels::kBgr},
                                  Word{"grey", PictureOptions::Channels::kGrey}};
constexpr std::array kLayouts = {Word{"nchw", PictureOptions::Layout::kChannelsFirst},
                                 Word{"nhwc", PictureOptions::Layout::kChannelsLast}};
constexpr std::array kFilters = {Word{"bilinear", PictureOptions::Filter::kBilinear},
                                 Word{"bicubic", PictureOptions::Filter::kBicubic}};

// The error, or none and the value is set.
template <typename Value, size_t kSize>
std::string read_word(const std::string& path, const Json& value,
                      const std::array<Word<Value>, kSize>& words, Value& out) {
  std::string wanted = "one of";
  for (const Word<Value>& word : words) {
    if (value.is_string() && value.get_ref<const std::string&>() == word.word) {
      out = word.value;
      return {};
    }
    wanted.append(" \"").append(word.word).append("\"");
  }
  return got_wanted(path, value, wanted);
}

std::optional<uint32_t> whole_number(const Json& value, uint32_t most) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<uint64_t>();
  if (number < 1 || number > most) return std::nullopt;
  return static_cast<uint32_t>(number);
}

std::string read_number(const std::string& path, const Json& value, uint32_t most, uint32_t& out) {
  const std::optional<uint32_t> number = whole_number(value, most);
  if (!number) {
    return got_wanted(path, value, "a whole number from 1 to " + std::to_string(most));
  }
  out = *number;
  return {};
}

std::string read_size(const std::string& path, const Json& value, PictureOptions& out) {
  if (value.is_array() && value.size() == 2) {
    const std::optional<uint32_t> height = whole_number(value[0], pictures::kMostSide);
    const std::optional<uint32_t> width = whole_number(value[1], pictures::kMostSide);
    if (height && width) {
      out.height = *height;
      out.width = *width;
      return {};
    }
  }
  return got_wanted(
      path, value,
      "a height and a width from 1 to " + std::to_string(pictures::kMostSide) + ", as [224, 224]");
}

std::string read_floats(const std::string& path, const Json& value, float least_size,
                        std::vector<float>& out) {
  out.clear();
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& item : list) {
    const float number = item.is_number() ? item.get<float>() : HUGE_VALF;
    const bool fits = std::abs(number) >= least_size && std::abs(number) <= kMostNumber;
    if (fits && out.size() < 3) {
      out.push_back(number);
      continue;
    }
    out.clear();
    break;
  }
  if (!out.empty()) return {};
  std::string wanted = "a number, or one for each channel (red, green, blue), of at most 1e6";
  if (least_size > 0) wanted += " and not 0 (at least 1e-6)";
  return got_wanted(path, value, wanted);
}

std::string read_resize(const std::string& path, const Json& value, PictureOptions& out) {
  if (!value.is_boolean()) return got_wanted(path, value, "true or false");
  out.is_resized = value.get<bool>();
  return {};
}

struct Key {
  std::string_view name;
  std::string (*read)(const std::string& path, const Json& value, PictureOptions& out);
};
constexpr std::array kKeys = {
    Key{"form", [](const std::string& path, const Json& value,
                   PictureOptions& out) { return read_word(path, value, kForms, out.form); }},
    Key{"size", read_size},
    Key{"resize", read_resize},
    Key{"shorter_side",
        [](const std::string& path, const Json& value, PictureOptions& out) {
          return read_number(path, value, pictures::kMostSide, out.shorter_side);
        }},
    Key{"filter", [](const std::string& path, const Json& value,
                     PictureOptions& out) { return read_word(path, value, kFilters, out.filter); }},
    Key{"mean", [](const std::string& path, const Json& value,
                   PictureOptions& out) { return read_floats(path, value, 0, out.mean); }},
    Key{"scale",
        [](const std::string& path, const Json& value, PictureOptions& out) {
          return read_floats(path, value, kLeastScale, out.scale);
        }},
    Key{"channels",
        [](const std::string& path, const Json& value, PictureOptions& out) {
          return read_word(path, value, kChannels, out.channels);
        }},
    Key{"layout", [](const std::string& path, const Json& value,
                     PictureOptions& out) { return read_word(path, value, kLayouts, out.layout); }},
    Key{"most_pixels", [](const std::string& path, const Json& value, PictureOptions& out) {
          return read_number(path, value, kMostMostPixels, out.most_pixels);
        }}};

std::string unknown_picture_key(const std::string& path, const std::string& key) {
  std::array<std::string_view, kKeys.size()> names;
  std::ranges::transform(kKeys, names.begin(), &Key::name);
  return unknown_key(path, key, names);
}

std::string read_picture(const std::string& path, const Json& section, PictureOptions& out) {
  if (!section.is_object()) return got_wanted(path, section, std::string(kExample));
  for (const auto& [key, value] : section.items()) {
    const auto* const found = std::ranges::find(kKeys, std::string_view(key), &Key::name);
    if (found == kKeys.end()) return unknown_picture_key(path, key);
    std::string path_of_key = path;
    path_of_key.append(".").append(key);
    const std::string problem = found->read(path_of_key, value, out);
    if (!problem.empty()) return problem;
  }
  const bool asks_to_resize = out.shorter_side != 0 || section.contains("filter");
  if (asks_to_resize && out.form == PictureOptions::Form::kPixels && !out.is_resized) {
    return "key \"" + path +
           "\": \"shorter_side\" and \"filter\" say how pictures are resized, and pixels are not; "
           "add \"resize\": true, or leave them out";
  }
  if (out.form == PictureOptions::Form::kFiles && section.contains("resize") && !out.is_resized) {
    return "key \"" + path +
           ".resize\": got false, and files are resized to the model's size "
           "always; leave it out";
  }
  return {};
}

}  // namespace

std::string read_pictures(const Json& section, PicturesOptions& pictures) {
  if (!section.is_object() || section.empty() || section.size() > limits::kMaxTensors) {
    return got_wanted("pictures", section, std::string(kExample));
  }
  for (const auto& [name, of_input] : section.items()) {
    const std::string problem =
        read_picture("pictures." + name.substr(0, limits::kMaxNameBytes), of_input, pictures[name]);
    if (!problem.empty()) return problem;
  }
  return {};
}

}  // namespace lumen::models
