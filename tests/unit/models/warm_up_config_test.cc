// "warmup" of a model's config.json: its forms, and the refusal of each wrong one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/model_config.h"

#include <cstring>
#include <string>

namespace lumen::models {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<WarmUpRequest> read(const std::string& section) {
  const auto parsed = parse_model_config("{\"warmup\": " + section + "}", "m/config.json");
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.ok() ? parsed->warm_up : std::vector<WarmUpRequest>();
}

std::string refusal(const std::string& section) {
  const auto parsed = parse_model_config("{\"warmup\": " + section + "}", "m/config.json");
  EXPECT_FALSE(parsed.ok()) << section;
  return std::string(parsed.status().message());
}

// Of one request with one input.
std::string refusal_of_input(const std::string& input) {
  return refusal(R"([{"inputs": [)" + input + "]}]");
}

std::string refusal_of_data(const std::string& type, const std::string& data) {
  return refusal_of_input(R"({"name": "x", "shape": [2], "datatype": ")" + type + R"(", "data": )" +
                          data + "}");
}

template <typename T>
std::vector<T> elements(const WarmUpInput& input) {
  std::vector<T> numbers(input.bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), input.bytes.data(), input.bytes.size());
  return numbers;
}

// As a client would write the data in a request.
WarmUpInput input_of(const std::string& type, const std::string& shape, const std::string& data) {
  return read(R"([{"inputs": [{"name": "x", "datatype": ")" + type + R"(", "shape": )" + shape +
              R"(, "data": )" + data + "}]}]")
      .at(0)
      .inputs.at(0);
}

TEST(WarmUpConfig, IsAListOfRequests) {
  EXPECT_TRUE(read("[]").empty());
  const auto requests = read(
      R"([{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4]}]},
          {"inputs": [{"name": "x", "datatype": "INT8", "shape": [], "data": "zeros"},
                      {"name": "y", "datatype": "FP16", "shape": [3], "data": "random"}],
           "count": 1000}])");
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].count, 1u);
  EXPECT_EQ(requests[0].inputs[0].name, "x");
  EXPECT_THAT(requests[0].inputs[0].shape.dimensions(), ElementsAre(1, 4));
  EXPECT_EQ(requests[0].inputs[0].data, WarmUpInput::Data::kMadeUp);
  EXPECT_EQ(requests[1].count, 1000u);
  EXPECT_EQ(requests[1].inputs[0].data, WarmUpInput::Data::kZeros);
  EXPECT_EQ(requests[1].inputs[1].type, ElementType::kFp16);
}

TEST(WarmUpConfig, TakesTheDataOfARequest) {
  EXPECT_THAT(elements<float>(input_of("FP32", "[2, 2]", "[[1, 2.5], [-3, 1e2]]")),
              ElementsAre(1, 2.5, -3, 100));
  EXPECT_THAT(elements<double>(input_of("FP64", "[1]", "[1e300]")), ElementsAre(1e300));
  EXPECT_THAT(elements<uint8_t>(input_of("BOOL", "[2]", "[true, false]")), ElementsAre(1, 0));
  EXPECT_THAT(elements<int8_t>(input_of("INT8", "[2]", "[-128, 127]")), ElementsAre(-128, 127));
  EXPECT_THAT(elements<int64_t>(input_of("INT64", "[1]", "[-9223372036854775808]")),
              ElementsAre(INT64_MIN));
  EXPECT_THAT(elements<uint64_t>(input_of("UINT64", "[1]", "[18446744073709551615]")),
              ElementsAre(UINT64_MAX));
  const WarmUpInput text = input_of("BYTES", "[2]", R"(["ab", ""])");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(text.bytes.data()), text.bytes.size()),
            std::string("\x02\0\0\0ab\0\0\0\0", 10));
}

TEST(WarmUpConfig, RefusesNumbersThatTheTypeDoesNotHold) {
  struct Case {
    const char* type;
    const char* data;
  };
  for (const Case& one :
       {Case{"INT8", "[1, 128]"}, Case{"INT8", "[1, -129]"}, Case{"UINT8", "[1, 256]"},
        Case{"UINT64", "[1, -1]"}, Case{"INT64", "[1, 9223372036854775808]"},
        Case{"INT32", "[1, 1.5]"}, Case{"INT32", "[1, \"1\"]"}, Case{"FP32", "[1, 1e39]"},
        Case{"FP32", "[1, null]"}, Case{"BOOL", "[true, 1]"}, Case{"BYTES", "[\"a\", 1]"}}) {
    EXPECT_THAT(refusal_of_data(one.type, one.data),
                AllOf(HasSubstr("\"warmup[0].inputs[0].data\": got"),
                      HasSubstr("wanted elements of " + std::string(one.type))))
        << one.data;
  }
  EXPECT_THAT(refusal_of_data("FP32", "[1, 2, 3]"),
              HasSubstr("got 3 elements, wanted 2, as \"shape\" says"));
  EXPECT_THAT(refusal_of_data("FP32", "[[1]]"), HasSubstr("got 1 elements, wanted 2"));
  EXPECT_THAT(refusal_of_data("FP16", "[1, 2]"), HasSubstr("JSON has no FP16"));
  EXPECT_THAT(refusal_of_data("FP32", "\"ones\""), HasSubstr("\"random\", \"zeros\" or a list"));
}

TEST(WarmUpConfig, RefusesEachWrongForm) {
  for (const char* section : {"{}", "true", "1", "null"}) {
    EXPECT_THAT(refusal(section), AllOf(HasSubstr("\"warmup\": got"), HasSubstr("at most 64")));
  }
  std::string many = "[";
  for (int i = 0; i < 65; ++i) many += std::string(i == 0 ? "" : ",") + R"({"inputs": []})";
  EXPECT_THAT(refusal(many + "]"), HasSubstr("at most 64 requests"));
  EXPECT_THAT(refusal("[{}]"), HasSubstr("\"warmup[0].inputs\": got null, wanted a list"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("\"warmup[0]\": got 1, wanted an object"));
  EXPECT_THAT(refusal(R"([{"inputs": [], "runs": 1}])"), HasSubstr("unknown key \"runs\""));
  for (const char* count : {"0", "1001", "-1", "1.5", "\"1\""}) {
    EXPECT_THAT(refusal(R"([{"inputs": [], "count": )" + std::string(count) + "}]"),
                AllOf(HasSubstr("\"warmup[0].count\": got"), HasSubstr("from 1 to 1000")));
  }
  EXPECT_THAT(refusal_of_input("{}"), HasSubstr("inputs[0].name\": got null"));
  EXPECT_THAT(refusal_of_input(R"({"name": "x"})"), HasSubstr("inputs[0].datatype\": got null"));
  EXPECT_THAT(refusal_of_input(R"({"name": "x", "datatype": "FP32"})"),
              HasSubstr("inputs[0].shape\": got null"));
  for (const char* shape : {"[-1]", "[1.5]", "[\"1\"]", "[9223372036854775808]", "4",
                            "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"}) {
    EXPECT_THAT(refusal_of_input(R"({"name": "x", "datatype": "FP32", "shape": )" +
                                 std::string(shape) + "}"),
                HasSubstr("inputs[0].shape\": got"))
        << shape;
  }
  const std::string one = R"({"name": "x", "datatype": "FP32", "shape": [1]})";
  EXPECT_THAT(refusal_of_input(one + "," + one),
              AllOf(HasSubstr("inputs[1].name\": got \"x\""), HasSubstr("each input once")));
}

}  // namespace
}  // namespace lumen::models
