// Messages to and from a model's Python process. A reply is another process's: each word is
// checked.
#include "backends/python/step_message.h"

#include <lumen/tensor/tensor_view.h>

#include "fuzz/fuzz_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace lumen::backends::python {
namespace {

using models::InferRequest;
using models::ModelMetadata;
using testing::HasSubstr;

Shape shape(std::initializer_list<int64_t> sizes) {
  Shape all;
  for (int64_t size : sizes) EXPECT_TRUE(all.append(size));
  return all;
}

class StepMessageTest : public testing::Test {
 protected:
  StepMessageTest() {
    metadata_.name = "m";
    metadata_.outputs = {{.name = "numbers", .type = ElementType::kFp32, .shape = shape({-1, 2})},
                         {.name = "texts", .type = ElementType::kBytes, .shape = shape({-1})}};
    numbers_.type = ElementType::kFp32;
    numbers_.shape = shape({2, 2});
    numbers_.data = reinterpret_cast<std::byte*>(values_.data());
    numbers_.byte_size = sizeof(float) * values_.size();
    texts_.type = ElementType::kBytes;
    texts_.shape = shape({2});
    texts_.data = reinterpret_cast<std::byte*>(letters_.data());
    texts_.byte_size = letters_.size();
  }

  std::vector<std::byte> message() {
    const std::vector<TensorView> tensors = {numbers_, texts_};
    std::vector<std::byte> bytes(message_bytes(tensors));
    write_message(tensors, bytes);
    return bytes;
  }
  Status read(std::span<const std::byte> bytes, std::span<const uint16_t> wanted = {},
              size_t memory_bytes = 4096) {
    memory_.emplace(memory_bytes);
    request_ = InferRequest();
    request_.memory = &*memory_;
    request_.outputs_wanted = wanted;
    return read_reply(bytes, metadata_, request_);
  }
  // With word `index` of the first tensor's row in the table set to `word`.
  std::vector<std::byte> with_word(size_t index, int64_t word) {
    std::vector<std::byte> bytes = message();
    std::memcpy(bytes.data() + index * sizeof(word), &word, sizeof(word));
    return bytes;
  }

  std::vector<float> values_ = {1, 2, 3, 4};
  std::string letters_ = std::string("\1\0\0\0a\2\0\0\0bc", 11);
  TensorView numbers_;
  TensorView texts_;
  ModelMetadata metadata_;
  std::optional<fuzz::Memory> memory_;
  InferRequest request_;
};

TEST_F(StepMessageTest, TensorsComeBackAsTheyWereWritten) {
  const std::vector<std::byte> bytes = message();
  const Status status = read(bytes);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(request_.outputs.size(), 2u);
  EXPECT_EQ(request_.outputs[0].shape, numbers_.shape);
  const std::span numbers(reinterpret_cast<const float*>(request_.outputs[0].data), 4);
  EXPECT_THAT(numbers, testing::ElementsAreArray(values_));
  EXPECT_EQ(request_.outputs[1].byte_size, letters_.size());
  EXPECT_EQ(std::memcmp(request_.outputs[1].data, letters_.data(), letters_.size()), 0);
  EXPECT_NE(request_.outputs[0].data, bytes.data());
}

TEST_F(StepMessageTest, OnlyTheWantedOutputsAreCopiedAlsoTwice) {
  const std::vector<uint16_t> wanted = {1, 0, 1};
  ASSERT_TRUE(read(message(), wanted).ok());
  ASSERT_EQ(request_.outputs.size(), 3u);
  EXPECT_EQ(request_.outputs[0].type, ElementType::kBytes);
  EXPECT_EQ(request_.outputs[1].type, ElementType::kFp32);
  EXPECT_EQ(request_.outputs[2].data, request_.outputs[0].data);
}

TEST_F(StepMessageTest, WordsThatCanNotBeAreRefused) {
  constexpr size_t kBytes = kWordsOfATensor - 1;
  EXPECT_THAT(read(with_word(0, -1)).message(), HasSubstr("a rank that no tensor has"));
  EXPECT_THAT(read(with_word(0, 9)).message(), HasSubstr("a rank that no tensor has"));
  EXPECT_THAT(read(with_word(1, -2)).message(), HasSubstr("a negative size"));
  EXPECT_THAT(read(with_word(1, 3)).message(), HasSubstr("bytes that are not those of the shape"));
  EXPECT_THAT(read(with_word(2, 3)).message(), HasSubstr("got FP32[2,3]"));
  EXPECT_THAT(read(with_word(kBytes, -1)).message(), HasSubstr("behind its end"));
  EXPECT_THAT(read(with_word(kBytes, INT64_MAX)).message(), HasSubstr("behind its end"));
  std::vector<std::byte> half = message();
  half.resize(kWordsOfATensor * sizeof(int64_t));
  EXPECT_THAT(read(half).message(), HasSubstr("too short"));
}

TEST_F(StepMessageTest, NoMemoryForAnOutputIsToldByItsName) {
  EXPECT_THAT(read(message(), {}, 2 * sizeof(TensorView)).message(), HasSubstr("numbers"));
  EXPECT_FALSE(read(message(), {}, 0).ok());
}

TEST_F(StepMessageTest, RandomRepliesAreReadOrRefusedWithinTheirBytes) {
  std::mt19937_64 random(20261129);
  size_t read_well = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes = message();
    for (uint64_t changes = random() % 4; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random() % 4 == 0 ? random() : 0);
    }
    bytes.resize(bytes.size() - random() % 2 * (random() % bytes.size()));
    read_well += read(bytes).ok() ? 1 : 0;
  }
  EXPECT_GT(read_well, 1'000u);
  EXPECT_LT(read_well, 19'000u);
}

}  // namespace
}  // namespace lumen::backends::python
