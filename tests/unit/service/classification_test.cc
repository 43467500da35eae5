// The best classes of an output against a sort of all of them.
#include <lumen/service/classification.h>

#include <lumen/tensor/bytes_tensor.h>

#include "unit/service/service_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace lumen::service {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> texts_of(const TensorView& tensor) {
  EXPECT_TRUE(check_bytes_tensor("y", tensor).ok());
  std::vector<std::string> texts;
  for (size_t at = 0; at < tensor.byte_size;) {
    uint32_t length = 0;
    std::memcpy(&length, tensor.data + at, sizeof(length));
    texts.emplace_back(reinterpret_cast<const char*>(tensor.data) + at + sizeof(length), length);
    at += sizeof(length) + length;
  }
  return texts;
}

template <typename T>
TensorView view_of(ElementType type, std::vector<T>& values,
                   std::initializer_list<int64_t> dimensions) {
  return tensor_of(type, dimensions, values.size() * sizeof(T),
                   reinterpret_cast<std::byte*>(values.data()));
}

template <typename T>
std::vector<std::string> by_sorting(std::span<const T> row, size_t most) {
  std::vector<size_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const auto is_nan = [&](size_t i) { return std::isnan(static_cast<double>(row[i])); };
  std::ranges::sort(order, [&](size_t a, size_t b) {
    if (is_nan(a) != is_nan(b)) return is_nan(b);
    if (!is_nan(a) && row[a] != row[b]) return row[a] > row[b];
    return a < b;
  });
  order.resize(std::min(order.size(), most));
  std::vector<std::string> texts;
  for (const size_t i : order) {
    char text[400];
    if constexpr (std::is_floating_point_v<T>) {
      std::snprintf(text, sizeof(text), "%f", static_cast<double>(row[i]));
    } else {
      std::snprintf(text, sizeof(text), "%s", std::to_string(row[i]).c_str());
    }
    texts.push_back(std::string(text) + ":" + std::to_string(i));
  }
  return texts;
}

template <typename T>
void compare(ElementType type, std::mt19937_64& random) {
  const size_t rows = random() % 4;
  const size_t classes = 1 + random() % 40;
  const size_t most = 1 + random() % 50;
  std::vector<T> values(rows * classes);
  for (T& value : values) {
    if constexpr (std::is_floating_point_v<T>) {
      const uint64_t kind = random() % 12;
      value = kind == 0   ? std::numeric_limits<T>::quiet_NaN()
              : kind == 1 ? std::numeric_limits<T>::infinity()
              : kind == 2 ? std::numeric_limits<T>::lowest()
              : kind == 3 ? T{-0.0}
                          : static_cast<T>(static_cast<double>(random() % 64) / 7 - 3);
    } else {
      value = static_cast<T>(random() % 3 == 0 ? random() : random() % 5);
    }
  }
  const TensorView output =
      view_of(type, values, {static_cast<int64_t>(rows), static_cast<int64_t>(classes)});
  Arena memory = make_arena(size_t{1} << 22);
  const auto got = best_classes("y", output, true, static_cast<uint32_t>(most), {}, memory);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got->shape[0], static_cast<int64_t>(rows));
  EXPECT_EQ(got->shape[1], static_cast<int64_t>(std::min(classes, most)));
  std::vector<std::string> wanted;
  for (size_t row = 0; row < rows; ++row) {
    const auto part = by_sorting<T>(std::span(values).subspan(row * classes, classes), most);
    wanted.insert(wanted.end(), part.begin(), part.end());
  }
  EXPECT_EQ(texts_of(*got), wanted);
}

TEST(Classification, TheBestOfRandomRowsAreThoseOfASort) {
  std::mt19937_64 random(20261127);
  for (int i = 0; i < 300; ++i) {
    compare<float>(ElementType::kFp32, random);
    compare<double>(ElementType::kFp64, random);
    compare<uint8_t>(ElementType::kUint8, random);
    compare<int16_t>(ElementType::kInt16, random);
    compare<int32_t>(ElementType::kInt32, random);
    compare<int64_t>(ElementType::kInt64, random);
    compare<uint64_t>(ElementType::kUint64, random);
  }
}

TEST(Classification, HalfFloatsAreReadAsTheirValues) {
  // 1, -2, the largest, the smallest denormal, infinity, NaN
  std::vector<uint16_t> halves = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x7c00, 0x7e00};
  Arena memory = make_arena();
  auto got = best_classes("y", view_of(ElementType::kFp16, halves, {6}), false, 9, {}, memory);
  ASSERT_TRUE(got.ok());
  EXPECT_THAT(texts_of(*got), ElementsAre("inf:4", "65504.000000:2", "1.000000:0", "0.000000:3",
                                          "-2.000000:1", "nan:5"));
  std::vector<uint16_t> brains = {0x3f80, 0xc000};  // 1, -2
  got = best_classes("y", view_of(ElementType::kBf16, brains, {2}), false, 1, {}, memory);
  ASSERT_TRUE(got.ok());
  EXPECT_THAT(texts_of(*got), ElementsAre("1.000000:0"));
}

TEST(Classification, LabelsStandBehindTheIndexAsFarAsThereAreAny) {
  std::vector<float> values = {1, 3, 2};
  const std::vector<std::string> labels = {"cat", "a:b"};
  Arena memory = make_arena();
  const auto got =
      best_classes("y", view_of(ElementType::kFp32, values, {1, 3}), true, 3, labels, memory);
  ASSERT_TRUE(got.ok());
  EXPECT_THAT(texts_of(*got), ElementsAre("3.000000:1:a:b", "2.000000:2", "1.000000:0:cat"));
}

TEST(Classification, WithoutRowsAllElementsAreOneRow) {
  std::vector<float> values = {1, 4, 3, 2};
  Arena memory = make_arena();
  const auto got =
      best_classes("y", view_of(ElementType::kFp32, values, {2, 2}), false, 2, {}, memory);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->shape.rank(), 1u);
  EXPECT_THAT(texts_of(*got), ElementsAre("4.000000:1", "3.000000:2"));
}

TEST(Classification, TextsHaveNoOrderAndLargeAnswersNoRoom) {
  std::vector<float> values(64, 1.0f);
  Arena memory = make_arena(4096);
  const auto full =
      best_classes("y", view_of(ElementType::kFp32, values, {1, 64}), true, 64, {}, memory);
  EXPECT_EQ(full.status().code(), Code::kTooLarge);
  EXPECT_THAT(std::string(full.status().message()), HasSubstr("output 'y'"));
  for (const ElementType type : {ElementType::kBytes, ElementType::kBool}) {
    const auto none = best_classes("y", tensor_of(type, {0}, 0), true, 1, {}, memory);
    EXPECT_EQ(none.status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace lumen::service
