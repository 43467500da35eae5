// Shapes and element types: products that overflow, patterns, names.
#include <lumen/tensor/shape.h>
#include <lumen/tensor/tensor_view.h>

#include <gtest/gtest.h>

#include <initializer_list>
#include <set>
#include <string>

namespace lumen {
namespace {

Shape shape_of(std::initializer_list<int64_t> dimensions) {
  Shape shape;
  for (const int64_t d : dimensions) EXPECT_TRUE(shape.append(d));
  return shape;
}

TEST(Shape, MultipliesItsDimensions) {
  EXPECT_EQ(Shape().element_count(), 1U) << "a scalar";
  EXPECT_EQ(shape_of({2, 3, 4}).element_count(), 24U);
  EXPECT_EQ(shape_of({2, 0, 4}).element_count(), 0U);
}

TEST(Shape, HasNoCountWhenItOverflowsOrADimensionIsNegative) {
  EXPECT_EQ(shape_of({1LL << 32, 1LL << 32}).element_count(), std::nullopt);
  EXPECT_EQ(shape_of({INT64_MAX, 3}).element_count(), std::nullopt);
  EXPECT_EQ(shape_of({2, -1}).element_count(), std::nullopt);
  EXPECT_EQ(shape_of({INT64_MAX, 2}).element_count(), 2 * static_cast<size_t>(INT64_MAX));
}

TEST(Shape, RefusesMoreDimensionsThanItHolds) {
  Shape shape;
  for (size_t i = 0; i < limits::kMaxRank; ++i) EXPECT_TRUE(shape.append(1));
  EXPECT_FALSE(shape.append(1));
  EXPECT_EQ(shape.rank(), limits::kMaxRank);
}

TEST(Shape, AcceptsAnySizeWhereItIsDynamic) {
  const Shape pattern = shape_of({Shape::kDynamic, 3});
  EXPECT_FALSE(pattern.is_static());
  EXPECT_TRUE(pattern.accepts(shape_of({0, 3})));
  EXPECT_TRUE(pattern.accepts(shape_of({7, 3})));
  EXPECT_FALSE(pattern.accepts(shape_of({7, 4})));
  EXPECT_FALSE(pattern.accepts(shape_of({3})));
  EXPECT_FALSE(pattern.accepts(shape_of({7, 3, 1})));
}

TEST(Shape, ComparesRankAndSizes) {
  EXPECT_EQ(shape_of({1, 2}), shape_of({1, 2}));
  EXPECT_FALSE(shape_of({1, 2}) == shape_of({1}));
  EXPECT_FALSE(shape_of({1, 2}) == shape_of({2, 1}));
  Shape changed = shape_of({1, 2});
  changed[0] = 5;
  EXPECT_EQ(changed, shape_of({5, 2}));
}

TEST(ElementType, HasANameOfItsOwnThatReadsBack) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(ElementType::kBytes); ++i) {
    const auto type = static_cast<ElementType>(i);
    EXPECT_EQ(parse_element_type(element_type_name(type)), type);
    names.insert(element_type_name(type));
  }
  EXPECT_EQ(names.size(), 14U);
  for (const std::string_view unknown : {"", "fp32", "FP3", "FP321", "STRING", "TYPE_FP32"}) {
    EXPECT_EQ(parse_element_type(unknown), std::nullopt) << unknown;
  }
}

TEST(ElementType, SaysHowManyBytesAnElementTakes) {
  EXPECT_EQ(element_size(ElementType::kBool), 1U);
  EXPECT_EQ(element_size(ElementType::kBf16), 2U);
  EXPECT_EQ(element_size(ElementType::kFp32), sizeof(float));
  EXPECT_EQ(element_size(ElementType::kInt64), 8U);
  EXPECT_EQ(element_size(ElementType::kBytes), 0U) << "no fixed size";
}

TEST(TensorView, GivesItsBytes) {
  std::byte bytes[12]{};
  TensorView view;
  EXPECT_TRUE(view.bytes().empty());
  view.data = bytes;
  view.byte_size = sizeof(bytes);
  EXPECT_EQ(view.bytes().data(), bytes);
  EXPECT_EQ(view.bytes().size(), 12U);
}

}  // namespace
}  // namespace lumen
