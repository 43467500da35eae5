// ModelNeed: enough for the largest request of a body of that size, and no more than it must be.
// Threads: the test's. Memory: none. Errors: by gtest.
#include <lumen/service/memory_need.h>

#include "support/fake_backend.h"
#include "support/temp_repository.h"

#include <lumen/models/model_repository.h>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>

namespace lumen::service {
namespace {

models::TensorSpec tensor(ElementType type, std::initializer_list<int64_t> dimensions) {
  models::TensorSpec spec{.name = "x", .type = type, .shape = {}};
  for (const int64_t one : dimensions) EXPECT_TRUE(spec.shape.append(one));
  return spec;
}

models::ModelMetadata model(models::TensorSpec input, models::TensorSpec output) {
  return {.name = "m",
          .version = "1",
          .platform = "test",
          .inputs = {std::move(input)},
          .outputs = {std::move(output)}};
}

TEST(MemoryNeed, OfASmallModelIsSmall) {
  const auto mlp =
      model(tensor(ElementType::kFp32, {-1, 256}), tensor(ElementType::kFp32, {-1, 1}));
  const MemoryNeed need = ModelNeed(mlp).of({.binary_bytes = 1024});
  EXPECT_GE(need.body_bytes, 1024u);
  EXPECT_LE(need.body_bytes + need.reply_bytes, 16u * 1024);
}

TEST(MemoryNeed, CountsEachRowThatTheBodyCouldHave) {
  const auto wide =
      model(tensor(ElementType::kFp32, {-1, 1}), tensor(ElementType::kFp32, {-1, 1000}));
  const MemoryNeed need = ModelNeed(wide).of({.binary_bytes = 4 * 100});
  EXPECT_GE(need.reply_bytes, 100u * 1000 * 4);
}

TEST(MemoryNeed, OfTextIsThatOfTheShortestNumbersOfTheLongestType) {
  const auto big = model(tensor(ElementType::kFp64, {-1}), tensor(ElementType::kFp64, {1}));
  constexpr size_t kText = 10'000;  // "1,1,1,...": half as many numbers of eight bytes
  EXPECT_GE(ModelNeed(big).of({.text_bytes = kText}).body_bytes, kText / 2 * 8);
  EXPECT_GE(ModelNeed(big).of({.text_bytes = kText, .collected_bytes = kText}).body_bytes,
            kText + kText / 2 * 8);
}

TEST(MemoryNeed, AnOutputWhoseShapeOnlyTheRunKnowsCountsAsMuchAsTheInputs) {
  const auto found =
      model(tensor(ElementType::kFp32, {1, 3, -1, -1}), tensor(ElementType::kInt64, {-1, -1, 4}));
  EXPECT_EQ(ModelNeed(found).of({.binary_bytes = 1 << 20}).reply_bytes, size_t{1} << 20);
}

TEST(MemoryNeed, AnOutputOfTextsOrOfAnyRankCountsAsMuchAsTheInputs) {
  const auto texts = model(tensor(ElementType::kBytes, {-1}), tensor(ElementType::kBytes, {-1}));
  EXPECT_EQ(ModelNeed(texts).of({.binary_bytes = 1 << 20}).reply_bytes, size_t{1} << 20);
  auto any_rank = model(tensor(ElementType::kFp32, {-1}), tensor(ElementType::kFp32, {}));
  any_rank.outputs[0].has_rank = false;
  EXPECT_EQ(ModelNeed(any_rank).of({.binary_bytes = 1 << 20}).reply_bytes, size_t{1} << 20);
}

TEST(MemoryNeed, OfAnEnsembleHasTheTensorsBetweenItsSteps) {
  const models::TempRepository files;
  for (const char* name : {"one", "two", "three"}) files.add_model(name);
  files.write("chain/config.json", R"({"ensemble": {"steps": [
      {"model": "one", "outputs": {"y": "b"}},
      {"model": "two", "inputs": {"x": "b"}, "outputs": {"y": "c"}},
      {"model": "three", "inputs": {"x": "c"}}]}})");
  const auto counters = std::make_unique<telemetry::Counters>();
  const auto repository = models::ModelRepository::open(
      files.path(), models::make_fake_backend(std::make_shared<models::FakeControl>()), *counters);
  ASSERT_TRUE(repository.ok());
  constexpr size_t kBytes = size_t{1'000} * 4 * sizeof(float);
  const auto need_of = [&](const char* name) {
    return ModelNeed(*(*repository)->find(name, "")).of({.binary_bytes = kBytes});
  };
  EXPECT_GE(need_of("chain").reply_bytes, need_of("one").reply_bytes + 2 * kBytes);
  EXPECT_LE(need_of("chain").reply_bytes, need_of("one").reply_bytes + 3 * kBytes);
  EXPECT_GT(need_of("chain").body_bytes, need_of("one").body_bytes);
}

TEST(MemoryNeed, DoesNotOverflow) {
  const auto huge =
      model(tensor(ElementType::kFp32, {-1}), tensor(ElementType::kFp64, {-1, INT64_MAX / 4}));
  EXPECT_EQ(ModelNeed(huge).of({.binary_bytes = SIZE_MAX}).body_bytes, SIZE_MAX);
  EXPECT_EQ(ModelNeed(huge).of({.text_bytes = SIZE_MAX}).body_bytes, SIZE_MAX);
  EXPECT_EQ(ModelNeed(huge).of({.binary_bytes = 1 << 30}).reply_bytes, SIZE_MAX);
}

TEST(MemoryNeed, OfAModelWithoutTensorsIsThatOfItsLists) {
  const models::ModelMetadata none{
      .name = "m", .version = "1", .platform = "test", .inputs = {}, .outputs = {}};
  EXPECT_GT(ModelNeed(none).of({}).body_bytes, 0u);
  EXPECT_EQ(ModelNeed(none).of({}).reply_bytes, 0u);
}

}  // namespace
}  // namespace lumen::service
