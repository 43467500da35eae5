// Checks of a request's tensors: each refusal names the tensor, the value got and the value wanted.
#include <lumen/base/limits.h>
#include <lumen/models/tensor_names.h>
#include <lumen/models/validate.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace lumen::models {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Shape shape(std::initializer_list<int64_t> dimensions) {
  Shape result;
  for (const int64_t d : dimensions) EXPECT_TRUE(result.append(d));
  return result;
}

const ModelMetadata kModel = {
    "m",
    "1",
    "fake",
    {{"x", ElementType::kFp32, shape({-1, 4})}, {"text", ElementType::kBytes, shape({2})}},
    {{"y", ElementType::kFp32, shape({-1, 4})}}};

std::string refusal(ElementType type, Shape actual, size_t bytes) {
  const TensorView view{.type = type, .shape = actual, .data = nullptr, .byte_size = bytes};
  return std::string(check_input(kModel, kModel.inputs[0], view).message());
}

TEST(CheckInput, AcceptsAnInputThatFits) {
  EXPECT_EQ(refusal(ElementType::kFp32, shape({3, 4}), 48), "");
  const TensorView text{
      .type = ElementType::kBytes, .shape = shape({2}), .data = nullptr, .byte_size = 99};
  EXPECT_TRUE(check_input(kModel, kModel.inputs[1], text).ok());
}

TEST(CheckInput, NamesTheDatatypeGotAndWanted) {
  EXPECT_THAT(refusal(ElementType::kInt64, shape({1, 4}), 32),
              AllOf(HasSubstr("'x'"), HasSubstr("got datatype INT64"), HasSubstr("wanted FP32")));
}

TEST(CheckInput, NamesTheShapeGotAndWanted) {
  for (const Shape& wrong : {shape({1, 5}), shape({4}), shape({1, 4, 1}), shape({})}) {
    EXPECT_THAT(refusal(ElementType::kFp32, wrong, 16),
                AllOf(HasSubstr("got shape ["), HasSubstr("wanted [-1,4] (-1: any size)")));
  }
}

TEST(CheckInput, RefusesEmptyNegativeAndOverflowingShapes) {
  EXPECT_THAT(refusal(ElementType::kFp32, shape({0, 4}), 0), HasSubstr(">= 1"));
  EXPECT_THAT(refusal(ElementType::kFp32, shape({-1, 4}), 16), HasSubstr(">= 1"));
  EXPECT_THAT(refusal(ElementType::kFp32, shape({INT64_MAX, 4}), 16), HasSubstr("64 bits"));
  EXPECT_THAT(refusal(ElementType::kFp32, shape({INT64_MAX / 4, 4}), 16),
              HasSubstr("got 16 bytes"));
}

TEST(CheckInput, NamesTheBytesGotAndWanted) {
  EXPECT_THAT(refusal(ElementType::kFp32, shape({2, 4}), 31),
              AllOf(HasSubstr("got 31 bytes"), HasSubstr("wanted 32 for FP32 [2,4]")));
}

TEST(CheckInput, TakesAnEmptyTensorWhereTheBackendDoes) {
  TensorView empty{
      .type = ElementType::kFp32, .shape = shape({0, 4}), .data = nullptr, .byte_size = 0};
  EXPECT_FALSE(check_input(kModel, kModel.inputs[0], empty).ok());
  EXPECT_TRUE(check_input(kModel, kModel.inputs[0], empty, true).ok());
  empty.shape = shape({2, 0});
  EXPECT_FALSE(check_input(kModel, kModel.inputs[0], empty, true).ok()) << "that axis is not free";
}

TEST(TensorNamesTest, FindsByTheWholeNameAfterAnyGuess) {
  const TensorNames names(kModel.inputs);
  for (const size_t guess : {size_t{0}, size_t{1}, size_t{2}, SIZE_MAX}) {
    EXPECT_EQ(names.find("x", guess), 0u);
    EXPECT_EQ(names.find("text", guess), 1u);
    EXPECT_EQ(names.find("tex", guess), std::nullopt);
    EXPECT_EQ(names.find("", guess), std::nullopt);
  }
  EXPECT_EQ(TensorNames().find("x", 0), std::nullopt);
}

TEST(TensorNamesTest, FindsEachOfAsManyAsAModelMayHave) {
  std::vector<TensorSpec> specs(limits::kMaxTensors);
  for (size_t i = 0; i < specs.size(); ++i) specs[i].name = "c" + std::to_string(i * 7919 % 4096);
  const TensorNames names(specs);
  for (size_t i = 0; i < specs.size(); ++i) EXPECT_EQ(names.find(specs[i].name, i + 1), i);
}

TEST(UnknownTensor, ListsTheValidNames) {
  EXPECT_EQ(unknown_tensor(kModel, "input", kModel.inputs, "z").message(),
            "model 'm' has no input 'z'; wanted one of: x, text");
}

TEST(UnknownTensor, CutsALongListAndLongNames) {
  std::vector<TensorSpec> many(64);
  for (size_t i = 0; i < many.size(); ++i) many[i].name = "tensor_" + std::to_string(i);
  const Status status = unknown_tensor(kModel, "output", many, std::string(5'000, 'z'));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("tensor_0, tensor_1"), HasSubstr(", ...")));
  EXPECT_LT(status.message().size(), Status::kMaxMessage);
}

TEST(CheckRequest, WantsEveryInputWithDataAndOutputsThatExist) {
  std::byte data[32] = {};
  TensorView x{.type = ElementType::kFp32, .shape = shape({2, 4}), .data = data, .byte_size = 32};
  TensorView text{.type = ElementType::kBytes, .shape = shape({2}), .data = data, .byte_size = 8};
  std::vector<TensorView> inputs = {x, text};
  InferRequest request;
  request.inputs = inputs;
  EXPECT_TRUE(check_request(kModel, request).ok());
  const uint16_t wanted[] = {1};
  request.outputs_wanted = wanted;
  EXPECT_THAT(std::string(check_request(kModel, request).message()), HasSubstr("output number 1"));
  request.outputs_wanted = {};
  inputs[1].data = nullptr;
  EXPECT_THAT(std::string(check_request(kModel, request).message()), HasSubstr("got no data"));
  request.inputs = request.inputs.first(1);
  EXPECT_THAT(std::string(check_request(kModel, request).message()),
              HasSubstr("got 1 inputs, wanted 2"));
}

TEST(CheckTies, NamesBothInputsAndTheirShapes) {
  const ModelMetadata model = {
      "m",
      "1",
      "fake",
      {{"a", ElementType::kFp32, shape({-1, -1})}, {"b", ElementType::kFp32, shape({4, -1})}},
      {{"y", ElementType::kFp32, shape({-1})}},
      {{0, 0, 0, 1}, {0, 1, 1, 1}}};
  const auto refusal_of = [&model](Shape a, Shape b) {
    const std::array<TensorView, 2> inputs = {TensorView{.type = ElementType::kFp32, .shape = a},
                                              TensorView{.type = ElementType::kFp32, .shape = b}};
    const Status status = check_ties(model, inputs);
    EXPECT_EQ(status.code(), status.ok() ? Code::kOk : Code::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(refusal_of(shape({2, 2}), shape({4, 2})), "");
  EXPECT_THAT(refusal_of(shape({2, 2}), shape({4, 3})),
              AllOf(HasSubstr("'a' and 'b'"), HasSubstr("[2,2] and [4,3]"), HasSubstr("axis 1")));
  EXPECT_THAT(refusal_of(shape({2, 3}), shape({4, 3})),
              AllOf(HasSubstr("input 'a'"), HasSubstr("[2,3]"), HasSubstr("axis 0 and axis 1")));
}

TEST(ShapesRefused, NamesInputsWithFreeAxesUntilTheTextIsFull) {
  ModelMetadata model = {"m", "1", "fake", {}, {}};
  std::vector<TensorView> inputs;
  for (int i = 0; i < 64; ++i) {
    const bool fixed = i == 1;
    model.inputs.push_back({std::string(100, static_cast<char>('a' + i % 26)) + std::to_string(i),
                            ElementType::kFp32, fixed ? shape({2}) : shape({-1})});
    inputs.push_back({.type = ElementType::kFp32, .shape = shape({2})});
  }
  const std::string all(shapes_refused(model, inputs, false).message());
  EXPECT_THAT(all, AllOf(HasSubstr("...; send shapes that fit together"), HasSubstr("' [2]")));
  model.inputs.resize(3);
  model.inputs[0].name = "x";
  model.inputs[1].name = "fixed";
  model.inputs[2].name = "z";
  inputs.resize(3);
  EXPECT_THAT(std::string(shapes_refused(model, inputs, false).message()),
              HasSubstr("'x' [2], 'z' [2];"));
  EXPECT_THAT(std::string(shapes_refused(model, inputs, true).message()),
              AllOf(HasSubstr("'fixed' [2]"), HasSubstr("with the numbers they hold")));
}

}  // namespace
}  // namespace lumen::models
