// Infer requests that real clients send, in every order and form that the protocol allows.
#include <lumen/tensor/bytes_tensor.h>

#include "unit/wire/wire_support.h"

#include <cmath>
#include <limits>

namespace lumen::wire {
namespace {

using test::concat;
using test::ParsedRequest;
using test::strings;
using test::values;

std::string with_data(std::string_view type, std::string_view shape, std::string_view data) {
  std::string json = R"({"inputs":[{"name":"x","shape":)";
  json.append(shape).append(R"(,"datatype":")").append(type).append(R"(","data":)").append(data);
  return json + "}]}";
}

template <typename T>
std::vector<T> read_values(std::string_view type, std::string_view shape, std::string_view data) {
  const ParsedRequest request(with_data(type, shape, data));
  EXPECT_TRUE(request.result.ok()) << request.result.status().message();
  if (!request.result.ok()) return {};
  return values<T>(request.result->inputs[0].tensor);
}

TEST(InferHead, ReadsTheStockClientsBinaryRequest) {
  const ParsedRequest request(
      R"({"id":"","inputs":[{"name":"x","shape":[1,256],"datatype":"FP32",)"
      R"("parameters":{"binary_data_size":1024}}],"parameters":{"binary_data_output":true}})");
  ASSERT_TRUE(request.result.ok()) << request.result.status().message();
  const InferHead& head = *request.result;
  EXPECT_EQ(head.id, "");
  EXPECT_TRUE(head.binary_data_output);
  EXPECT_EQ(head.binary_bytes, 1024U);
  EXPECT_FALSE(head.timeout_us);
  EXPECT_TRUE(head.outputs.empty());
  ASSERT_EQ(head.inputs.size(), 1U);
  EXPECT_EQ(head.inputs[0].name, "x");
  EXPECT_TRUE(head.inputs[0].is_binary);
  EXPECT_EQ(head.inputs[0].tensor.type, ElementType::kFp32);
  EXPECT_EQ(head.inputs[0].tensor.byte_size, 1024U);
  EXPECT_EQ(head.inputs[0].tensor.data, nullptr);
  EXPECT_EQ(head.inputs[0].tensor.shape.rank(), 2U);
  EXPECT_EQ(head.inputs[0].tensor.shape[1], 256);
}

TEST(InferHead, TellsAnAbsentIdFromAnEmptyOne) {
  const ParsedRequest request(R"({"inputs":[]})");
  ASSERT_TRUE(request.result.ok());
  EXPECT_FALSE(request.result->id);
}

TEST(InferHead, ReadsKeysInAnyOrder) {
  const ParsedRequest request(
      R"({"outputs":[{"parameters":{"binary_data":false},"name":"a"},{"name":"b"}],)"
      R"("inputs":[{"data":[[1,2],[3,4]],"datatype":"INT8","shape":[2,2],"name":"x"},)"
      R"({"parameters":{"binary_data_size":3},"datatype":"UINT8","name":"y","shape":[3]}],)"
      R"("parameters":{"timeout":7,"binary_data_output":true},"id":"q"})");
  ASSERT_TRUE(request.result.ok()) << request.result.status().message();
  const InferHead& head = *request.result;
  EXPECT_EQ(head.id, "q");
  EXPECT_EQ(head.timeout_us, 7U);
  EXPECT_EQ(values<int8_t>(head.inputs[0].tensor), (std::vector<int8_t>{1, 2, 3, 4}));
  EXPECT_EQ(head.inputs[1].tensor.byte_size, 3U);
  EXPECT_EQ(head.binary_bytes, 3U);
  ASSERT_EQ(head.outputs.size(), 2U);
  EXPECT_FALSE(head.outputs[0].binary) << "its own word";
  EXPECT_TRUE(head.outputs[1].binary) << "the request's, though it came later";
}

TEST(InferHead, AcceptsReservedAndForeignParameters) {
  const ParsedRequest request(
      R"({"parameters":{"sequence_id":"s","sequence_start":true,"sequence_end":false,"priority":3,)"
      R"("triton_enable_empty_final_response":true,"mine":{"a":[1,null,{"b":-1.5e+3}]},"headers":{}},)"
      R"("model_name":"m","inputs":[{"name":"x","shape":[0],"datatype":"FP16","extra":[[]],)"
      R"("parameters":{"binary_data_size":0,"custom":"c"}}],)"
      R"("outputs":[{"name":"y","parameters":{"classification":0,"binary_data":true,"z":1}}]})");
  ASSERT_TRUE(request.result.ok()) << request.result.status().message();
  EXPECT_TRUE(request.result->outputs[0].binary);
  EXPECT_EQ(request.result->priority, 3u);
}

TEST(InferHead, APriorityTooLargeForItsNumberIsTheLowest) {
  const ParsedRequest none(R"({"inputs":[]})");
  ASSERT_TRUE(none.result.ok());
  EXPECT_EQ(none.result->priority, 0u);
  const ParsedRequest large(R"({"parameters":{"priority":4294967297},"inputs":[]})");
  ASSERT_TRUE(large.result.ok()) << large.result.status().message();
  EXPECT_EQ(large.result->priority, UINT32_MAX) << "not 1, which would be the first";
}

// A cache of answers has to know of all parameters that might change them, and of nothing else.
TEST(InferHead, KeepsParametersThatItDoesNotKnow) {
  const ParsedRequest request(
      R"({"parameters":{"timeout":3,"mine":{"a": [1]},"priority":3,"no_cache":false,"ttl_ms":5,)"
      R"("headers":"h"},"inputs":[{"parameters":{"binary_data_size":0,"of x":"c"},)"
      R"("name":"x","shape":[0],"datatype":"FP16"}],)"
      R"("outputs":[{"name":"y","parameters":{"classification":0,"binary_data":true,"of y":1}}]})");
  ASSERT_TRUE(request.result.ok()) << request.result.status().message();
  const std::span<const InferParameter> kept = request.result->parameters;
  ASSERT_EQ(kept.size(), 4u);
  const auto expect = [](const InferParameter& one, std::string_view of, std::string_view name,
                         std::string_view value) {
    EXPECT_EQ(one.of, of);
    EXPECT_EQ(one.name, name);
    EXPECT_EQ(one.value, value);
  };
  expect(kept[0], "", "mine", R"({"a": [1]})");
  expect(kept[1], "", "headers", R"("h")");
  expect(kept[2], "x", "of x", R"("c")");
  expect(kept[3], "y", "of y", "1");
}

TEST(InferHead, ReadsPlacesInSharedMemoryAndClasses) {
  const ParsedRequest request(
      R"({"parameters":{"binary_data_output":true},"inputs":[{"parameters":{)"
      R"("shared_memory_offset":18446744073709551615,"shared_memory_byte_size":12,)"
      R"("shared_memory_region":"in"},"name":"x","shape":[3],"datatype":"FP32"},)"
      R"({"name":"t","shape":[2],"datatype":"BYTES","parameters":{)"
      R"("shared_memory_region":"in","shared_memory_byte_size":9}}],)"
      R"("outputs":[{"name":"y","parameters":{"shared_memory_region":"out",)"
      R"("shared_memory_byte_size":7,"binary_data":true}},)"
      R"({"name":"z","parameters":{"classification":5000000000}}]})");
  ASSERT_TRUE(request.result.ok()) << request.result.status().message();
  const InferHead& head = *request.result;
  EXPECT_EQ(head.inputs[0].shared.region, "in");
  EXPECT_EQ(head.inputs[0].shared.offset, UINT64_MAX) << "the region's owner checks it";
  EXPECT_EQ(head.inputs[0].tensor.byte_size, 12u);
  EXPECT_EQ(head.inputs[0].tensor.data, nullptr);
  EXPECT_FALSE(head.inputs[0].is_binary);
  EXPECT_EQ(head.inputs[1].tensor.byte_size, 9u);
  EXPECT_EQ(head.binary_bytes, 0u) << "nothing follows the JSON";
  EXPECT_TRUE(head.parameters.empty()) << "a place is no parameter that changes the answer";
  EXPECT_EQ(head.outputs[0].shared.region, "out");
  EXPECT_EQ(head.outputs[0].shared.byte_size, 7u);
  EXPECT_FALSE(head.outputs[0].binary) << "it is in the region";
  EXPECT_FALSE(head.outputs[1].shared.is_there());
  EXPECT_EQ(head.outputs[1].classes, UINT32_MAX);
}

TEST(InferHead, ReadsTheWishesForTheCache) {
  const ParsedRequest plain(R"({"inputs":[]})");
  EXPECT_FALSE(plain.result->no_cache);
  EXPECT_FALSE(plain.result->sequence.is_said());
  EXPECT_FALSE(plain.result->ttl_ms);
  const ParsedRequest said(R"({"inputs":[],"parameters":{"no_cache":true,"ttl_ms":7}})");
  EXPECT_TRUE(said.result->no_cache);
  EXPECT_EQ(said.result->ttl_ms, 7u);
}

TEST(InferHead, ReadsTheSequenceOfARequest) {
  const auto sequence_of = [](const char* parameters) {
    const ParsedRequest request(R"({"inputs":[],"parameters":{)" + std::string(parameters) + "}}");
    EXPECT_TRUE(request.result.ok()) << parameters;
    const SequenceWishes said = request.result->sequence;
    return std::tuple(said.number, std::string(said.text), said.starts, said.ends);
  };
  using Said = std::tuple<uint64_t, std::string, bool, bool>;
  EXPECT_EQ(sequence_of(R"("sequence_id":7)"), Said(7, "", false, false));
  EXPECT_EQ(sequence_of(R"("sequence_id":"7","sequence_start":true)"), Said(0, "7", true, false));
  EXPECT_EQ(sequence_of(R"("sequence_end":true,"sequence_start":false,"sequence_id":1)"),
            Said(1, "", false, true));
  // None, as Triton has it.
  EXPECT_EQ(sequence_of(R"("sequence_id":0)"), Said(0, "", false, false));
  EXPECT_EQ(sequence_of(R"("sequence_id":"")"), Said(0, "", false, false));
  EXPECT_EQ(sequence_of(R"("sequence_id":null)"), Said(0, "", false, false));
}

TEST(InferHead, RefusesASequenceIdThatIsNone) {
  const auto refused = [](const std::string& id) {
    const ParsedRequest request(R"({"inputs":[],"parameters":{"sequence_id":)" + id + "}}");
    return !request.result.ok();
  };
  EXPECT_TRUE(refused("-1"));
  EXPECT_TRUE(refused("1.5"));
  EXPECT_TRUE(refused("[1]"));
  EXPECT_TRUE(refused('"' + std::string(limits::kMaxSequenceIdBytes + 1, 'a') + '"'));
  EXPECT_FALSE(refused('"' + std::string(limits::kMaxSequenceIdBytes, 'a') + '"'));
}

TEST(InferHead, AcceptsANumberAsSequenceId) {
  EXPECT_TRUE(ParsedRequest(R"({"parameters":{"sequence_id":18446744073709551615},"inputs":[]})")
                  .result.ok());
}

TEST(InferHead, ReadsBlanksWhereverJsonAllowsThem) {
  const ParsedRequest request(
      " \t\r\n{ \"inputs\" : [ { \"name\" : \"x\" , \"shape\" : [ 2 , 2 ] , \"datatype\" : "
      "\"FP32\" ,"
      " \"data\" : [ [ 1 , 2 ] , [ 3 , 4.5 ] ] } ] } \n\n");
  ASSERT_TRUE(request.result.ok()) << request.result.status().message();
  EXPECT_EQ(values<float>(request.result->inputs[0].tensor), (std::vector<float>{1, 2, 3, 4.5F}));
}

TEST(InferHead, ReadsEveryIntegerTypeToItsEnds) {
  EXPECT_EQ(read_values<uint8_t>("UINT8", "[2]", "[0,255]"), (std::vector<uint8_t>{0, 255}));
  EXPECT_EQ(read_values<int8_t>("INT8", "[3]", "[-128,127,-0]"),
            (std::vector<int8_t>{-128, 127, 0}));
  EXPECT_EQ(read_values<uint16_t>("UINT16", "[1]", "[65535]"), (std::vector<uint16_t>{65535}));
  EXPECT_EQ(read_values<int16_t>("INT16", "[1]", "[-32768]"), (std::vector<int16_t>{-32768}));
  EXPECT_EQ(read_values<uint32_t>("UINT32", "[1]", "[4294967295]"),
            (std::vector<uint32_t>{UINT32_MAX}));
  EXPECT_EQ(read_values<int32_t>("INT32", "[1]", "[-2147483648]"),
            (std::vector<int32_t>{INT32_MIN}));
  EXPECT_EQ(read_values<uint64_t>("UINT64", "[1]", "[18446744073709551615]"),
            (std::vector<uint64_t>{UINT64_MAX}));
  EXPECT_EQ(read_values<int64_t>("INT64", "[2]", "[-9223372036854775808,9223372036854775807]"),
            (std::vector<int64_t>{INT64_MIN, INT64_MAX}));
}

TEST(InferHead, ReadsBooleansAsBytes) {
  EXPECT_EQ(read_values<uint8_t>("BOOL", "[3]", "[true,false,true]"),
            (std::vector<uint8_t>{1, 0, 1}));
}

TEST(InferHead, RoundsAFloatOnceAndNotThroughADouble) {
  // Just above the middle between 1 and its neighbour, but the nearest double is that middle, which
  // then rounds to even, to 1.
  EXPECT_EQ(read_values<float>("FP32", "[1]", "[1.00000005960464477540]"),
            (std::vector<float>{std::nextafter(1.0F, 2.0F)}));
  EXPECT_EQ(static_cast<float>(1.00000005960464477540), 1.0F) << "the trap is real";
}

TEST(InferHead, ReadsTheEndsOfTheFloatRange) {
  EXPECT_EQ(read_values<float>("FP32", "[4]", "[3.4028235e38,-3.4028235E+38,1e-45,1.1754944e-38]"),
            (std::vector<float>{
                std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(),
                std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min()}));
  EXPECT_EQ(read_values<double>("FP64", "[2]", "[1.7976931348623157e308,5e-324]"),
            (std::vector<double>{std::numeric_limits<double>::max(),
                                 std::numeric_limits<double>::denorm_min()}));
}

TEST(InferHead, RoundsTooSmallNumbersToZeroOfTheirSign) {
  const std::vector<float> floats = read_values<float>("FP32", "[4]", "[1e-400,-1e-60,0.0e999,-0]");
  EXPECT_EQ(floats, (std::vector<float>{0, 0, 0, 0}));
  EXPECT_TRUE(std::signbit(floats[1]));
  EXPECT_TRUE(std::signbit(floats[3]));
  const std::string tiny = "[0." + std::string(500, '0') + "1]";
  EXPECT_EQ(read_values<double>("FP64", "[1]", tiny), (std::vector<double>{0}));
}

// Python writes them bare, other clients as null or in quotes: missing values of tables.
TEST(InferHead, TakesNumbersThatJsonHasNoFormFor) {
  const std::string_view data =
      R"([1,NaN,Infinity, -Infinity,null,"NaN","Infinity","-Infinity",2])";
  const auto check = [](const auto& read) {
    ASSERT_EQ(read.size(), 9U);
    for (const size_t i : {1U, 4U, 5U}) EXPECT_TRUE(std::isnan(read[i])) << i;
    for (const size_t i : {2U, 6U}) EXPECT_TRUE(std::isinf(read[i]) && read[i] > 0) << i;
    for (const size_t i : {3U, 7U}) EXPECT_TRUE(std::isinf(read[i]) && read[i] < 0) << i;
    EXPECT_EQ(read[0], 1);
    EXPECT_EQ(read[8], 2);
  };
  check(read_values<float>("FP32", "[9]", data));
  check(read_values<double>("FP64", "[9]", data));
  EXPECT_TRUE(std::isnan(read_values<float>("FP32", "[]", "NaN").at(0)));
  const ParsedRequest behind(
      R"({"inputs":[{"data":[[NaN],[-Infinity]],"name":"x","datatype":"FP32","shape":[2,1]}]})");
  EXPECT_TRUE(behind.result.ok()) << "before its shape: " << behind.result.status().message();
}

TEST(InferHead, NullOfAnOptionalMemberIsAsIfItWereAbsent) {
  const ParsedRequest request(
      R"({"id":null,"parameters":null,"outputs":null,"inputs":[{"name":"x","shape":[1],)"
      R"("datatype":"FP32","data":[1],"parameters":null}]})");
  ASSERT_TRUE(request.result.ok()) << request.result.status().message();
  EXPECT_FALSE(request.result->id);
  const ParsedRequest deeper(
      R"({"parameters":{"timeout":null,"binary_data_output":null},"outputs":[{"name":"y",)"
      R"("parameters":null}],"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":null,)"
      R"("parameters":{"binary_data_size":4}}]})");
  ASSERT_TRUE(deeper.result.ok()) << deeper.result.status().message();
  EXPECT_FALSE(deeper.result->timeout_us);
}

TEST(InferHead, SkipsAByteOrderMark) {
  EXPECT_TRUE(ParsedRequest("\xef\xbb\xbf{\"inputs\":[]}").result.ok());
}

TEST(InferHead, ReadsStringsAsLengthAndBytes) {
  const ParsedRequest request(with_data(
      "BYTES", "[2,3]", R"([["","a\"\\\/\b\f\n\r\t"],["\u0000\u00e4\u20ac","\ud83d\ude00"]])"));
  EXPECT_FALSE(request.result.ok()) << "rows of two where the shape says three";
  const ParsedRequest good(with_data(
      "BYTES", "[2,2]", R"([["","a\"\\\/\b\f\n\r\t"],["\u0000\u00e4\u20ac","x\ud83d\ude00y"]])"));
  ASSERT_TRUE(good.result.ok()) << good.result.status().message();
  EXPECT_EQ(
      strings(good.result->inputs[0].tensor),
      (std::vector<std::string>{"", "a\"\\/\b\f\n\r\t", std::string("\0\xc3\xa4\xe2\x82\xac", 6),
                                "x\xf0\x9f\x98\x80y"}));
  EXPECT_TRUE(check_bytes_tensor("x", good.result->inputs[0].tensor).ok());
}

TEST(InferHead, UnescapesNamesAndKeys) {
  const ParsedRequest request(
      R"({"in\u0070uts":[{"n\u0061me":"\u0078","shape":[1],"datatype":"\u0046P32","data":[1]}]})");
  ASSERT_TRUE(request.result.ok()) << request.result.status().message();
  EXPECT_EQ(request.result->inputs[0].name, "x");
}

TEST(InferHead, TakesDataFlatOrNestedAsTheShape) {
  const std::vector<int32_t> expected = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(read_values<int32_t>("INT32", "[2,2,2]", "[1,2,3,4,5,6,7,8]"), expected);
  EXPECT_EQ(read_values<int32_t>("INT32", "[2,2,2]", "[[[1,2],[3,4]],[[5,6],[7,8]]]"), expected);
  EXPECT_EQ(read_values<int32_t>("INT32", "[8,1]", "[[1],[2],[3],[4],[5],[6],[7],[8]]"), expected);
  EXPECT_EQ(read_values<int32_t>("INT32", "[]", "[5]"), (std::vector<int32_t>{5}));
}

TEST(InferHead, TakesABareValueAsTheDataOfAScalar) {
  EXPECT_EQ(read_values<float>("FP32", "[]", "5.5"), (std::vector<float>{5.5F}));
  EXPECT_EQ(read_values<double>("FP64", "[]", " -1e-3 "), (std::vector<double>{-1e-3}));
  EXPECT_EQ(read_values<int64_t>("INT64", "[]", "-7"), (std::vector<int64_t>{-7}));
  EXPECT_EQ(read_values<uint8_t>("BOOL", "[]", "true"), (std::vector<uint8_t>{1}));
  EXPECT_EQ(read_values<int32_t>("INT32", "[]", "[5]"), (std::vector<int32_t>{5}));
  const ParsedRequest text(with_data("BYTES", "[]", "\"a\\n\""));
  ASSERT_TRUE(text.result.ok()) << text.result.status().message();
  EXPECT_EQ(strings(text.result->inputs[0].tensor), (std::vector<std::string>{"a\n"}));
  const ParsedRequest data_first(
      R"({"inputs":[{"data":3,"datatype":"UINT8","shape":[],"name":"x"}],"id":"i"})");
  ASSERT_TRUE(data_first.result.ok()) << data_first.result.status().message();
  EXPECT_EQ(values<uint8_t>(data_first.result->inputs[0].tensor), (std::vector<uint8_t>{3}));
}

TEST(InferHead, TakesTensorsWithoutElements) {
  EXPECT_TRUE(read_values<float>("FP32", "[0]", "[]").empty());
  EXPECT_TRUE(read_values<float>("FP32", "[0,4]", "[]").empty());
  EXPECT_TRUE(read_values<float>("FP32", "[2,0]", "[[],[]]").empty());
  EXPECT_TRUE(read_values<float>("BYTES", "[0]", "[]").empty());
}

TEST(InferHead, AlignsJsonTensorsForTheModel) {
  const ParsedRequest request(with_data("UINT8", "[3]", "[1,2,3]"));
  ASSERT_TRUE(request.result.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(request.result->inputs[0].tensor.data) % 64, 0U);
}

TEST(InferHead, TakesAsManyTensorsAsTheLimitAllows) {
  std::string json = R"({"inputs":[)";
  for (size_t i = 0; i < limits::kMaxTensors; ++i) {
    json += concat({i > 0 ? "," : "", R"({"name":"x)", std::to_string(i),
                    R"(","shape":[1],"datatype":"INT8","data":[1]})"});
  }
  std::string outputs = R"(],"outputs":[)";
  for (size_t i = 0; i < limits::kMaxTensors; ++i) {
    outputs += concat({i > 0 ? "," : "", R"({"name":"y)", std::to_string(i),
                       R"(","parameters":{"binary_data":)", i % 2 == 0 ? "true" : "false", "}}"});
  }
  const ParsedRequest request(json + outputs + R"(],"parameters":{"binary_data_output":true}})");
  ASSERT_TRUE(request.result.ok()) << request.result.status().message();
  EXPECT_EQ(request.result->inputs.size(), limits::kMaxTensors);
  EXPECT_EQ(request.result->inputs[63].name, "x63");
  EXPECT_TRUE(request.result->outputs[62].binary);
  EXPECT_FALSE(request.result->outputs[63].binary);
}

TEST(InferHead, TakesNestingToTheDepthLimit) {
  // The object is one level, so are the value's brackets.
  const auto nested = [](size_t depth) {
    return R"({"inputs":[],"z":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_TRUE(ParsedRequest(nested(limits::kMaxJsonDepth - 1)).result.ok());
  EXPECT_FALSE(ParsedRequest(nested(limits::kMaxJsonDepth)).result.ok());
}

TEST(InferHead, ForgetsTheKeysOfARefusedRequest) {
  JsonParser parser;
  test::HeapMemory memory;
  const test::PaddedJson cut(R"({"inputs":[{"name":"x","shape")");
  const test::PaddedJson good(R"({"inputs":[]})");
  for (int i = 0; i < 2000; ++i) {
    EXPECT_FALSE(parse_infer_head(parser, cut.view(), memory).ok());
    ASSERT_TRUE(parse_infer_head(parser, good.view(), memory).ok()) << i;
  }
}

}  // namespace
}  // namespace lumen::wire
