// "pictures" of a config.json: its forms, its refusals, and that no option is forgotten where
// compiled forms are told apart.
#include <lumen/models/pictures.h>

#include "models/model_config.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lumen::models {
namespace {

Result<ModelOptions> parse(const std::string& picture) {
  return parse_model_config(R"({"pictures": {"data": )" + picture + "}}", "config.json");
}

std::string refusal_of(const std::string& picture) {
  const Result<ModelOptions> options = parse(picture);
  return options.ok() ? "none" : std::string(options.status().message());
}

TensorSpec net(std::initializer_list<int64_t> sizes, ElementType type = ElementType::kFp32) {
  TensorSpec input{.name = "data", .type = type, .shape = {}};
  for (const int64_t size : sizes) EXPECT_TRUE(input.shape.append(size));
  return input;
}

Result<std::vector<PictureInput>> plan(const std::string& picture, const TensorSpec& input) {
  const Result<ModelOptions> options = parse(picture);
  EXPECT_TRUE(options.ok()) << options.status().message();
  return plan_pictures(options->pictures, {&input, 1});
}

TEST(Pictures, AnEmptyObjectMeansPixelsAsTheModelTakesThem) {
  const auto planned = plan("{}", net({-1, 3, 224, 192}));
  ASSERT_TRUE(planned.ok());
  const PictureInput& picture = planned->front();
  EXPECT_EQ(picture.form, PictureOptions::Form::kPixels);
  EXPECT_TRUE(picture.has_channels_first);
  EXPECT_FALSE(picture.is_resized);
  EXPECT_EQ(picture.height, 224u);
  EXPECT_EQ(picture.width, 192u);
  EXPECT_EQ(picture.mean, std::vector<float>({0, 0, 0}));
  EXPECT_EQ(picture.scale, std::vector<float>({1, 1, 1}));
  EXPECT_EQ(picture.pixel_shape(), net({-1, 224, 192, 3}).shape);
  EXPECT_EQ(picture.model_shape(), net({-1, 3, 224, 192}).shape);
}

TEST(Pictures, TheAxisOfChannelsIsFoundOrAskedFor) {
  EXPECT_FALSE(plan("{}", net({-1, 32, 32, 1}))->front().has_channels_first);
  EXPECT_EQ(plan("{}", net({-1, 32, 32, 1}))->front().channels, 1u);
  EXPECT_FALSE(plan("{}", net({1, 3, 8, 3})).ok());
  EXPECT_TRUE(plan(R"({"layout": "nchw"})", net({1, 3, 8, 3}))->front().has_channels_first);
  EXPECT_FALSE(plan(R"({"layout": "nhwc"})", net({1, 3, 8, 3}))->front().has_channels_first);
}

TEST(Pictures, OneNumberIsForAllChannels) {
  const auto planned = plan(R"({"mean": 127.5, "scale": [1, 2, 4]})", net({-1, 3, 8, 8}));
  ASSERT_TRUE(planned.ok());
  EXPECT_EQ(planned->front().mean, std::vector<float>(3, 127.5f));
  EXPECT_EQ(planned->front().scale, std::vector<float>({1, 2, 4}));
}

TEST(Pictures, NumbersThatAreNoneAreRefused) {
  for (const char* value :
       {"0", "1e-9", "1e300", "[]", "[1, 2, 3, 4]", "\"255\"", "null", "[[1]]"}) {
    const std::string picture = std::string(R"({"scale": )") + value + "}";
    EXPECT_NE(refusal_of(picture), "none") << value;
  }
  EXPECT_EQ(refusal_of(R"({"scale": -255})"), "none");
}

TEST(Pictures, AKeyThatIsGivenTwiceIsRefused) {
  EXPECT_EQ(refusal_of(R"({"scale": 1, "scale": 255})"),
            "config.json: key \"scale\" is given twice; keep one");
}

TEST(Pictures, AModelOfPixelsTakesNoNumbers) {
  const TensorSpec input = net({-1, 8, 8, 3}, ElementType::kUint8);
  EXPECT_TRUE(plan(R"({"form": "files"})", input).ok());
  for (const char* picture : {R"({"mean": 1})", R"({"scale": 255})", R"({"channels": "bgr"})"}) {
    EXPECT_FALSE(plan(picture, input).ok()) << picture;
  }
  EXPECT_FALSE(plan("{}", net({-1, 3, 8, 8}, ElementType::kUint8)).ok());
}

TEST(Pictures, EveryOptionChangesTheIdentityOfWhatIsCompiled) {
  std::set<std::string> identities;
  const std::vector<std::string> all = {"{}",
                                        R"({"form": "files"})",
                                        R"({"size": [8, 9]})",
                                        R"({"size": [9, 8]})",
                                        R"({"resize": true})",
                                        R"({"resize": true, "shorter_side": 9})",
                                        R"({"resize": true, "filter": "bicubic"})",
                                        R"({"mean": 1})",
                                        R"({"mean": [1, 1, 1]})",
                                        R"({"mean": 1.0000001})",
                                        R"({"scale": 1})",
                                        R"({"channels": "rgb"})",
                                        R"({"channels": "bgr"})",
                                        R"({"channels": "grey"})",
                                        R"({"layout": "nchw"})",
                                        R"({"layout": "nhwc"})",
                                        R"({"most_pixels": 9})"};
  for (const std::string& picture : all) identities.insert(identity_of(parse(picture)->pictures));
  EXPECT_EQ(identities.size(), all.size());
  EXPECT_FALSE(identities.contains(""));
}

}  // namespace
}  // namespace lumen::models
