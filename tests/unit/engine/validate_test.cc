// Checks of a request's tensors: each refusal names the tensor, what was got and what was wanted.
#include <lumen/engine/validate.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lumen::engine {
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

TEST(CheckInput, AcceptsWhatFits) {
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

TEST(FindTensor, FindsByTheWholeName) {
  EXPECT_EQ(find_tensor(kModel.inputs, "text"), 1u);
  EXPECT_EQ(find_tensor(kModel.inputs, "tex"), std::nullopt);
  EXPECT_EQ(find_tensor(kModel.inputs, ""), std::nullopt);
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

}  // namespace
}  // namespace lumen::engine
