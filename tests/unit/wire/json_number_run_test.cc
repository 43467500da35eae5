// Runs of numbers against json_number.h, which reads them one by one. One thread.
#include "wire/json_number_run.h"

#include <lumen/wire/oip.h>

#include "support/stress.h"
#include "wire/json_number.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lumen::wire {
namespace {

class Texts {
 public:
  explicit Texts(uint64_t seed) : random_(seed) {}
  uint64_t below(uint64_t bound) { return random_() % bound; }
  template <typename T>
  const T& one_of(const std::vector<T>& all) {
    return all[below(all.size())];
  }
  // Of any length and shape, as programs write numbers.
  std::string number() {
    const double magnitude = static_cast<double>(random_() >> 11) * 0x1p-53;
    constexpr std::array<double, 6> kScales = {1, 10, 1e4, 1e8, 1e-3, 1e-8};
    const double value = (below(2) == 0 ? -1 : 1) * magnitude * kScales[below(kScales.size())];
    std::array<char, 64> text;
    const auto precision = static_cast<int>(below(20));
    char* end = text.data();
    switch (below(6)) {
      case 0: end = std::to_chars(end, end + 64, value).ptr; break;
      case 1: end = std::to_chars(end, end + 64, static_cast<float>(value)).ptr; break;
      case 2: end = std::to_chars(end, end + 64, static_cast<int64_t>(value)).ptr; break;
      case 3: end += std::snprintf(end, 64, "%.*e", precision, value); break;
      default: end += std::snprintf(end, 64, "%.*f", precision, value); break;
    }
    return {text.data(), end};
  }
  // The middle of two floats, to the last digit or a little beside it.
  std::string near_a_middle() {
    const float below_it =
        std::bit_cast<float>(static_cast<uint32_t>(0x3a000000 + below(0x10000000)));
    const float above_it = std::bit_cast<float>(std::bit_cast<uint32_t>(below_it) + 1);
    const double middle = (static_cast<double>(below_it) + static_cast<double>(above_it)) / 2;
    std::array<char, 64> text;
    const int size =
        std::snprintf(text.data(), 64, "%.*f", static_cast<int>(8 + below(20)), middle);
    return {text.data(), static_cast<size_t>(size)};
  }
  std::string of(std::string_view alphabet, size_t most) {
    std::string text(below(most + 1), ' ');
    for (char& c : text) c = alphabet[below(alphabet.size())];
    return text;
  }

 private:
  std::mt19937_64 random_;
};

// -0.0 is.
template <typename T>
bool is_below(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::signbit(value);
  } else if constexpr (std::is_signed_v<T>) {
    return value < 0;
  } else {
    return false;
  }
}

// Each number that read_number_run() has read must be as the slow way reads it.
template <typename T>
size_t expect_as_the_slow_way(const std::string& array, const std::string& behind) {
  std::string memory = array + behind;
  memory.resize(array.size() + kFloatReadAhead, '7');
  const char* const end = memory.data() + array.size();
  const char* at = memory.data();
  std::vector<T> values(array.size() + 1);
  const size_t read = read_number_run(at, end, values.data(), values.size());
  const char* place = memory.data();
  for (size_t i = 0; i < read; ++i) {
    EXPECT_EQ(*place, ',') << array;
    place += place[1] == ' ' ? 2 : 1;
    const Number<T> number = read_number<T>(place, end);
    EXPECT_EQ(number.error, NumberError::kNone) << array << " number " << i;
    EXPECT_TRUE(number.value == values[i] && is_below(number.value) == is_below(values[i]))
        << array << " number " << i << ": " << values[i] << ", wanted " << number.value;
    place = number.end;
    if (place == nullptr || testing::Test::HasFailure()) return read;
  }
  EXPECT_EQ(place, at) << array;
  return read;
}

template <typename T>
class JsonNumberRun : public testing::Test {};
using Types = testing::Types<float, double, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t,
                             int64_t, uint64_t>;
TYPED_TEST_SUITE(JsonNumberRun, Types);

TYPED_TEST(JsonNumberRun, NumbersAreThoseOfTheSlowWay) {
  Texts texts(test::stress_seed());
  for (int trial = 0; trial < 30'000 && !this->HasFailure(); ++trial) {
    const std::string gap = texts.one_of<std::string>({",", ", "});
    std::string array;
    const uint64_t count = texts.below(40);
    for (uint64_t i = 0; i < count; ++i) {
      const bool is_other = texts.below(50) == 0;
      array += is_other ? texts.one_of<std::string>({",", ", ", ",  ", " ,"}) : gap;
      array += texts.below(10) == 0 ? texts.near_a_middle() : texts.number();
    }
    array += texts.one_of<std::string>({"]", " ]", "", ",", "]]"});
    expect_as_the_slow_way<TypeParam>(array, texts.of("0123456789,.-e ]\x01\xff", 64));
  }
}

TYPED_TEST(JsonNumberRun, TextsThatAreNoNumbersAreNotRead) {
  Texts texts(test::stress_seed());
  const std::vector<std::string> words = {"-",     ".",     "",     "1.",    ".5",    "-.5",  "01",
                                          "-01.5", "00",    "+1",   "1..2",  "1.2.3", "1-2",  "--1",
                                          "1e",    "1e+",   "1.e5", "0x1",   "NaN",   "null", "1,",
                                          "1 2",   "\"1\"", "1a",   "1_000", "-,"};
  for (int trial = 0; trial < 30'000 && !this->HasFailure(); ++trial) {
    std::string array;
    for (uint64_t i = 0; i < 8; ++i) {
      array += texts.one_of<std::string>({",", ", "});
      switch (texts.below(3)) {
        case 0: array += texts.one_of(words); break;
        case 1: array += texts.of("0123456789.-+eE ", 20); break;
        default: array += texts.number();
      }
    }
    expect_as_the_slow_way<TypeParam>(array + "]", texts.of("0123456789,.", 64));
  }
}

// Not through the slow way, as all usual arrays: otherwise it would only be slow, which no other
// test sees.
TYPED_TEST(JsonNumberRun, UsualNumbersAreReadToTheEnd) {
  std::vector<std::string> numbers = {"0", "7", "101"};
  if (std::is_signed_v<TypeParam>) numbers.insert(numbers.end(), {"-5", "-0", "-128"});
  if (std::is_floating_point_v<TypeParam>) {
    numbers.insert(numbers.end(), {"-0.5", "123.75", "0.1234567", "-12345678.25"});
  }
  if (std::is_integral_v<TypeParam> && sizeof(TypeParam) == 8)
    numbers.insert(numbers.end(), {"4294967296", "900719925474099"});
  for (const std::string gap : {",", ", "}) {
    for (const std::string& one : numbers) {
      std::string array;
      for (int i = 0; i < 300; ++i) array += gap + one;
      EXPECT_EQ(expect_as_the_slow_way<TypeParam>(array + "]", ""), 300u) << one;
    }
  }
}

// The slow way says which.
TYPED_TEST(JsonNumberRun, ANumberBeyondTheTypeIsNotRead) {
  if (std::is_floating_point_v<TypeParam>) return;
  using Limits = std::numeric_limits<TypeParam>;
  const std::string least = std::to_string(Limits::min()), most = std::to_string(Limits::max());
  EXPECT_EQ(expect_as_the_slow_way<TypeParam>("," + least + "," + most + ",1]", ""), 3u);
  for (const std::string& beyond : {most + "0", std::string("-") + most + "0", std::string("1.0"),
                                    std::string("18446744073709551616")}) {
    EXPECT_EQ(expect_as_the_slow_way<TypeParam>(",1," + beyond + ",2]", ""), 1u) << beyond;
  }
  if (std::is_unsigned_v<TypeParam>) {
    EXPECT_EQ(expect_as_the_slow_way<TypeParam>(",1,-1,2]", ""), 1u);
  }
}

TYPED_TEST(JsonNumberRun, NoMoreThanAskedForAreRead) {
  const std::string array = ",1,2,3,4]" + std::string(kFloatReadAhead, ',');
  std::array<TypeParam, 4> values{};
  const char* at = array.data();
  EXPECT_EQ(read_number_run(at, array.data() + 9, values.data(), 2), 2u);
  EXPECT_EQ(at, array.data() + 4);
  EXPECT_EQ(values[2], 0);
  EXPECT_EQ(read_number_run(at, array.data() + 9, values.data(), 0), 0u);
  EXPECT_EQ(at, array.data() + 4);
}

}  // namespace
}  // namespace lumen::wire
