// The requests of `lumen bench --repeat-ratio`: the same values for the same number, others for
// another, and repeats as often as asked for.
#include <lumen/client/input_variants.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>

namespace lumen::client {
namespace {

InputTensor tensor(ElementType type, size_t elements) {
  return {"x", type, {}, std::string(elements * element_size(type), '\0')};
}

std::string written(const InputVariants& variants, uint64_t number, InputTensor input) {
  variants.write(number, input.bytes.data());
  return input.bytes;
}

TEST(InputVariants, ANumberMeansTheSameValuesAndAnotherNumberOthers) {
  for (const ElementType type : {ElementType::kFp32, ElementType::kFp64, ElementType::kFp16,
                                 ElementType::kBf16, ElementType::kInt64, ElementType::kBool}) {
    const InputTensor input = tensor(type, 64);
    const auto variants = InputVariants::create({input});
    ASSERT_TRUE(variants.ok()) << variants.status().message();
    std::set<std::string> seen;
    for (uint64_t number = 0; number < 1000; ++number) {
      const std::string bytes = written(*variants, number, input);
      EXPECT_EQ(bytes, written(*variants, number, input));
      EXPECT_TRUE(seen.insert(bytes).second) << number;
    }
  }
}

TEST(InputVariants, FloatsStayBelowOneAndIntegersAreSmall) {
  const InputTensor floats = tensor(ElementType::kFp32, 8);
  const auto variants = InputVariants::create({floats});
  const InputTensor integers = tensor(ElementType::kInt32, 32);
  const auto of_integers = InputVariants::create({integers});
  for (uint64_t number = 0; number < 100; ++number) {
    float value[8];
    std::memcpy(value, written(*variants, number, floats).data(), sizeof(value));
    EXPECT_GE(value[0], 0.5f);
    EXPECT_LT(value[0], 1.0f);
    EXPECT_EQ(value[7], 0.0f) << "no more change than have to";
    int32_t integer[32];
    std::memcpy(integer, written(*of_integers, number, integers).data(), sizeof(integer));
    EXPECT_THAT(integer, testing::Each(testing::AllOf(testing::Ge(0), testing::Le(7))));
  }
}

TEST(InputVariants, TakesTheFirstInputOfFloats) {
  const auto variants =
      InputVariants::create({tensor(ElementType::kInt64, 100), tensor(ElementType::kFp32, 4),
                             tensor(ElementType::kFp32, 8)});
  ASSERT_TRUE(variants.ok());
  EXPECT_EQ(variants->input(), 1u);
}

TEST(InputVariants, RefusesInputsThatHaveTooFewValues) {
  for (const InputTensor& input :
       {tensor(ElementType::kFp32, 2), tensor(ElementType::kInt64, 21),
        InputTensor{"s", ElementType::kBytes, {}, std::string(1000, '\0')}}) {
    const auto variants = InputVariants::create({input});
    ASSERT_FALSE(variants.ok());
    EXPECT_THAT(std::string(variants.status().message()), testing::HasSubstr("--input FILE.npy"));
  }
}

TEST(VariantChooser, RepeatsAsOftenAsAskedForAndOnlySentRequests) {
  for (const double ratio : {0.0, 0.25, 0.8, 1.0}) {
    VariantChooser chooser(ratio, 77);
    std::map<uint64_t, int> sent;
    constexpr int kRequests = 20'000;
    int repeats = 0;
    for (int i = 0; i < kRequests; ++i) repeats += sent[chooser.next()]++ > 0 ? 1 : 0;
    EXPECT_NEAR(repeats / double{kRequests}, ratio, 0.02) << ratio;
  }
}

}  // namespace
}  // namespace lumen::client
