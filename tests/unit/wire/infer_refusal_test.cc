// Infer requests that are wrong: each is refused with the code and a message that names the
// culprit.
#include "unit/wire/wire_support.h"

namespace lumen::wire {
namespace {

using test::concat;
using test::ParsedRequest;

struct Refused {
  std::string json;
  std::string_view says;  // must stand in the message
  Code code = Code::kInvalidArgument;
};

void expect_refused(const Refused& row) {
  const ParsedRequest request(row.json);
  ASSERT_FALSE(request.result.ok()) << row.json.substr(0, 300);
  EXPECT_EQ(request.result.status().code(), row.code) << row.json.substr(0, 300);
  EXPECT_NE(request.result.status().message().find(row.says), std::string_view::npos)
      << row.json.substr(0, 300) << "\n  says: " << request.result.status().message();
}

std::string input(std::string_view members) {
  return R"({"inputs":[{)" + std::string(members) + "}]}";
}

std::string with_data(std::string_view type, std::string_view shape, std::string_view data) {
  return input(R"("name":"x","shape":)" + std::string(shape) + R"(,"datatype":")" +
               std::string(type) + R"(","data":)" + std::string(data));
}

TEST(InferRefusal, SaysWhereTheGrammarBreaks) {
  for (const Refused& row : {
           Refused{"", "ends at byte 0"},
           {"   ", "ends at byte 3"},
           {"null", "wanted the request's object"},
           {"[]", "wanted the request's object"},
           {"\"x\"", "wanted the request's object"},
           {"{", "ends at byte 1"},
           {"}", "byte 0"},
           {R"({"inputs":[]}x)", "byte 13: got 'x', wanted nothing after"},
           {R"({"inputs":[]}{})", "wanted nothing after"},
           {R"({"inputs":[]},)", "wanted nothing after"},
           {R"({"inputs":[],})", "wanted a key in quotes"},
           {R"({,"inputs":[]})", "wanted a key in quotes"},
           {R"({"inputs":[]])", "wanted ',' or '}'"},
           {R"({"inputs":[})", "wanted an object in 'inputs'"},
           {R"({"inputs":[{]}]})", "wanted a key in quotes"},
           {R"({inputs:[]})", "wanted a key in quotes"},
           {R"({'inputs':[]})", "wanted a key in quotes"},
           {R"({"inputs" []})", "wanted ':' after a key"},
           {R"({"inputs":})", "wanted an array as 'inputs'"},
           {R"({"inputs":null})", "wanted an array as 'inputs'"},
           {R"({"inputs":{}})", "wanted an array as 'inputs'"},
           {R"({"inputs":[])", "is it cut off"},
           {R"({"inputs":[)", "is it cut off"},
           {R"({"inputs)", "closing quote"},
           {R"({"inputs\)", "closing quote"},
           {R"({"inputs\")", "closing quote"},
           {"\xef\xbb\xbf{}", "the request has no 'inputs'"},
           {"\xef\xbb\xbf\xef\xbb\xbf{}", "byte 0: got byte 0xef"},
           {std::string("\xff\xfe{\0", 4), "the JSON is UTF-16 or UTF-32; wanted UTF-8"},
           {std::string("{\0}\0", 4), "the JSON is UTF-16 or UTF-32; wanted UTF-8"},
           {std::string("\0{\0}", 4), "the JSON is UTF-16 or UTF-32; wanted UTF-8"},
           {"{\"a\":1 /* c */}", "wanted ',' or '}'"},
           {std::string("{\"inputs\":[]}\0", 14), "byte 13: got byte 0x00"},
           {std::string("{\0\"inputs\":[]}", 14), "got byte 0x00"},
       }) {
    expect_refused(row);
  }
}

TEST(InferRefusal, HoldsIgnoredValuesToTheGrammarToo) {
  for (const std::string_view bad : {"tru",
                                     "True",
                                     "nul",
                                     "NaN",
                                     "Infinity",
                                     "-Infinity",
                                     "-",
                                     "+1",
                                     "01",
                                     "-01",
                                     ".5",
                                     "1.",
                                     "1.e5",
                                     "1e",
                                     "1e+",
                                     "0x1",
                                     "1_0",
                                     "[1,]",
                                     "[,1]",
                                     "[1 2]",
                                     "[1",
                                     "{\"a\"}",
                                     "{\"a\":}",
                                     "{\"a\":1,}",
                                     "{1:2}",
                                     "[}",
                                     "{]",
                                     "\"\\x\"",
                                     "\"\\u12g4\"",
                                     "\"\\ud800\"",
                                     "\"\\udc00\"",
                                     "\"\\ud800\\u0041\"",
                                     "\"\\ud800\\ud800\"",
                                     "\"\\ud8",
                                     "\"a\nb\"",
                                     "\"a\tb\"",
                                     "'a'",
                                     "",
                                     "undefined",
                                     "1,2"}) {
    expect_refused({R"({"inputs":[],"z":)" + std::string(bad) + "}", ""});
  }
}

TEST(InferRefusal, RefusesAKeyThatComesTwice) {
  for (const std::string_view json :
       {R"({"inputs":[],"inputs":[]})", R"({"inputs":[],"z":1,"z":1})",
        R"({"inputs":[],"\u007a":1,"z":2})", R"({"inputs":[],"z":{"deep":[{"a":1,"b":2,"a":3}]}})",
        R"({"inputs":[{"name":"x","name":"y"}]})", R"({"inputs":[],"parameters":{"a":1,"a":1}})",
        R"({"inputs":[{"name":"x","parameters":{"binary_data_size":1,"binary_data_size":2}}]})",
        R"({"outputs":[{"name":"x","name":"x"}],"inputs":[]})",
        R"({"inputs":[],"a-long-key-with-the-same-ends":1,"a-long-key-with-the-same-ends":1})"}) {
    expect_refused({std::string(json), "twice"});
  }
  EXPECT_TRUE(
      ParsedRequest(R"({"inputs":[],"z":[{"a":1},{"a":1}],"a":{"a":{"a":1}}})").result.ok());
}

TEST(InferRefusal, CapsKeysDepthAndCounts) {
  std::string keys = R"({"inputs":[])";
  for (int i = 0; i < 300; ++i) keys += ",\"k" + std::to_string(i) + "\":1";
  expect_refused({keys + "}", "more than 256 keys"});
  std::string open;
  for (int level = 0; level < 90; ++level) {
    open += '{';
    for (int i = 0; i < 20; ++i) open += "\"k" + std::to_string(i) + "\":1,";
    open += "\"z\":";
  }
  expect_refused({R"({"inputs":[],"z":)" + open + "1", "more than 1024"});
  expect_refused({R"({"z":)" + std::string(200000, '['), "nested deeper than 100"});
  std::string objects = "{";
  for (int i = 0; i < 100000; ++i) objects += "\"a\":{";
  expect_refused({objects, "nested deeper than 100"});
  std::string inputs = R"({"inputs":[)";
  std::string outputs = R"({"inputs":[],"outputs":[)";
  for (size_t i = 0; i <= limits::kMaxTensors; ++i) {
    inputs +=
        R"({"name":"x)" + std::to_string(i) + R"(","shape":[1],"datatype":"INT8","data":[1]},)";
    outputs += R"({"name":"y)" + std::to_string(i) + R"("},)";
  }
  expect_refused({inputs, "more than 4096 inputs"});
  expect_refused({outputs, "more than 4096 outputs"});
}

TEST(InferRefusal, RefusesTextThatIsNotUtf8) {
  for (const std::string_view bad :
       {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc3"}) {
    expect_refused({R"({"inputs":[],"z":")" + std::string(bad) + "\"}", "not valid UTF-8"});
  }
}

TEST(InferRefusal, NamesMembersThatAreMissingOrOfTheWrongKind) {
  for (const Refused& row : {
           Refused{"{}", "no 'inputs'"},
           {R"({"inputs":[1]})", "wanted an object in 'inputs'"},
           {R"({"inputs":[],"id":1})", "wanted a string as 'id'"},
           {R"({"inputs":[],"id":5})", "wanted a string as 'id'"},
           {R"({"inputs":[],"id":nul})", "wanted a string as 'id'"},
           {R"({"inputs":[],"parameters":{"non_finite":"no"}})", "wanted \"null\", \"bare\""},
           {R"({"inputs":[],"id":")" + std::string(1025, 'a') + "\"}", "'id' has 1025 bytes"},
           {R"({"inputs":[],"parameters":[]})", "wanted an object as 'parameters'"},
           {R"({"inputs":[],"parameters":{"timeout":-1}})", "as 'timeout'"},
           {R"({"inputs":[],"parameters":{"timeout":1.5}})", "as 'timeout'"},
           {R"({"inputs":[],"parameters":{"timeout":18446744073709551616}})", "as 'timeout'"},
           {R"({"inputs":[],"parameters":{"priority":"high"}})", "as 'priority'"},
           {R"({"inputs":[],"parameters":{"ttl_ms":0}})", "'ttl_ms' is 0; wanted 1 or more"},
           {R"({"inputs":[],"parameters":{"ttl_ms":-1}})", "as 'ttl_ms'"},
           {R"({"inputs":[],"parameters":{"ttl_ms":1.5}})", "as 'ttl_ms'"},
           {R"({"inputs":[],"parameters":{"ttl_ms":"5"}})", "as 'ttl_ms'"},
           {R"({"inputs":[],"parameters":{"no_cache":1}})", "true or false as 'no_cache'"},
           {R"({"inputs":[],"parameters":{"sequence_id":-1}})", "as 'sequence_id'"},
           {R"({"inputs":[],"parameters":{"sequence_start":1}})", "true or false"},
           {R"({"inputs":[],"parameters":{"binary_data_output":"yes"}})", "'binary_data_output'"},
           {R"({"inputs":[],"outputs":{}})", "wanted an array as 'outputs'"},
           {R"({"inputs":[],"outputs":[{}]})", "output 0: 'name' is missing"},
           {R"({"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":1}}]})",
            "output 'y': "},
           {input(""), "input 0: 'name' is missing"},
           {input(R"("name":"")"), "input 0: a 'name' of 0 bytes"},
           {input(R"("name":")" + std::string(129, 'n') + "\""), "input 0: a 'name' of 129 bytes"},
           {input(R"("name":7)"), "input 0: 'name' is 7; wanted a string"},
           {input(R"("name":"x","shape":[1])"), "input 'x': 'datatype' is missing"},
           {input(R"("name":"x","datatype":"FP32")"), "input 'x': 'shape' is missing"},
           {input(R"("name":"x","datatype":"float32")"),
            "input 'x': datatype 'float32' is unknown; wanted BOOL"},
           {input(R"("name":"x","datatype":"fp32")"), "datatype 'fp32' is unknown"},
           {input(R"("name":"x","shape":[1],"datatype":"FP32")"), "input 'x': has no data"},
           {input(R"("name":"x","datatype":5)"), "input 'x': 'datatype' is 5; wanted a string"},
           {input(R"("name":"x","shape":[2,-1])"), "input 'x': dimension 1 of 'shape' is -1"},
           {input(R"("name":"x","shape":[1,1,1,1,1,1,1,1,1])"),
            "input 'x': 'shape' has more than 8 dimensions"},
       }) {
    expect_refused(row);
  }
}

// "wanted an integer in 'shape'" alone left a client with many inputs to guess which one it was.
TEST(InferRefusal, AShapeThatIsNoListOfSizesNamesItsInput) {
  for (const Refused& row : {
           Refused{input(R"("name":"x","shape":5)"),
                   "input 'x': 'shape' is 5; wanted an array of integers, as [1,256]"},
           {input(R"("name":"x","shape":"[2,4]")"), R"(input 'x': 'shape' is "[2,4]"; wanted an)"},
           {input(R"("name":"x","shape":null)"), "input 'x': 'shape' is null; wanted an array"},
           {input(R"("name":"x","shape":{"rows":2})"), R"(input 'x': 'shape' is {"rows":2}; wan)"},
           {input(R"("name":"x","shape":[1.0])"),
            "input 'x': dimension 0 of 'shape' is 1.0; wanted an integer of 0 or more"},
           {input(R"("name":"x","shape":[2,"1"])"),
            R"('x': dimension 1 of 'shape' is "1"; wanted)"},
           {input(R"("name":"x","shape":[1e9])"), "'x': dimension 0 of 'shape' is 1e9; wanted"},
           {input(R"("name":"x","shape":[01])"), "input 'x': the JSON is malformed at byte"},
           {input(R"("name":"x","shape":[[2]])"), "'x': dimension 0 of 'shape' is [2]; wanted"},
           {input(R"("name":"x","shape":[true])"), "'x': dimension 0 of 'shape' is true; wanted"},
           {input(R"("name":"x","shape":[9223372036854775808])"),
            "input 'x': dimension 0 of 'shape' is 9223372036854775808; wanted"},
           {input(R"("name":"x","shape":)" + concat({"\"", std::string(900, 'a'), "\""})),
            "aaa...; wanted an array"},
           {input(R"("name":"x","shape":[)"), "input 'x': "},
           {input(R"("shape":"2","name":"x")"), R"(input 0: 'shape' is "2"; wanted an array)"},
           {input(R"("shape":[2.5],"name":"x")"), "input 0: dimension 0 of 'shape' is 2.5; wanted"},
           {R"({"inputs":[{"name":"a","shape":[1],"datatype":"INT8","data":[1]},{"shape":""}]})",
            "input 1: 'shape' is \"\""},
       }) {
    expect_refused(row);
  }
}

// The same fault elsewhere: any fault inside of an input or output names it.
TEST(InferRefusal, EveryFaultInsideATensorNamesIt) {
  for (const Refused& row : {
           Refused{input(R"("name":"x","shape":[1],"datatype":"FP32","data":[1}])"), "input 'x': "},
           {input(R"("name":"x","shape":[1],"datatype":"BOOL","data":[1])"), "input 'x': "},
           {input(R"("name":"x","shape":[1],"datatype":"BYTES","data":[1])"), "input 'x': "},
           {input(R"("name":"x","shape":[1],"datatype":"BYTES","data":["\q"])"), "input 'x': "},
           {input(R"("name":"x","parameters":{"binary_data_size":"4"})"), "input 'x': "},
           {input(R"("name":"x","parameters":5)"), "input 'x': "},
           {input(R"("name":"x","name":"y")"), "input 'x': the JSON has the key 'name' twice"},
           {input(R"("datatype":"F32","name":"x")"), "input 0: datatype 'F32' is unknown"},
           {R"({"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":1}}]})",
            "output 'y': "},
           {R"({"inputs":[],"outputs":[{"name":"y","parameters":[]}]})", "output 'y': "},
           {R"({"inputs":[],"outputs":[{"name":5}]})", "output 0: 'name' is 5; wanted a string"},
       }) {
    expect_refused(row);
  }
  const ParsedRequest after(R"({"inputs":[{"name":"x","shape":[1],"datatype":"INT8","data":[1]}],)"
                            R"("outputs":[{"name":"y"}],"id":5})");
  EXPECT_EQ(after.result.status().message().find("put 'x'"), std::string_view::npos);
  EXPECT_EQ(after.result.status().message().find("put 'y'"), std::string_view::npos);
}

TEST(InferRefusal, ABareValueIsNoDataOfATensorWithAxes) {
  for (const std::string_view shape : {"[1]", "[1,1]", "[0]"}) {
    for (const std::string_view bare : {"5", "-1.5", "true", "\"a\"", "{}"}) {
      expect_refused({with_data("FP32", shape, bare), "wanted an array, flat or nested"});
    }
    expect_refused({with_data("FP32", shape, "null"), "input 'x': has no data"});
  }
  expect_refused({with_data("FP32", "[]", "true"), "element 0 of 'data' is not a number"});
  expect_refused({with_data("FP32", "[]", "null"), "input 'x': has no data"});
  expect_refused({with_data("INT32", "[]", "1.5"), "element 0 of 'data' is not an integer"});
  expect_refused({with_data("INT8", "[]", "128"), "element 0 of 'data' is out of the range"});
  expect_refused({with_data("FP32", "[]", "1,2"), "wanted a key in quotes"});
  expect_refused({with_data("FP32", "[]", "1]"), "wanted ',' or '}'"});
  expect_refused({with_data("FP32", "[]", "[]"), "has 0 elements, but FP32 [] needs 1"});
  expect_refused({with_data("FP32", "[]", "[1,2]"), "has more than 1 elements"});
  expect_refused({with_data("FP32", "[]", "[[1]]"), "element 0 of 'data' is not a number"});
}

TEST(InferRefusal, ChecksBinarySizesAgainstShapes) {
  const auto binary = [](std::string_view type, std::string_view shape, std::string_view size) {
    return input(R"("name":"x","shape":)" + std::string(shape) + R"(,"datatype":")" +
                 std::string(type) + R"(","parameters":{"binary_data_size":)" + std::string(size) +
                 "}");
  };
  for (
      const Refused& row : {
          Refused{binary("FP32", "[1,256]", "100"),
                  "input 'x': binary_data_size is 100 bytes, but FP32 [1,256] needs 1024; send "
                  "exactly shape x element size"},
          {binary("FP32", "[1,256]", "1025"), "needs 1024"},
          {binary("FP32", "[]", "0"), "needs 4"},
          {binary("BYTES", "[3]", "11"), "at least 12"},
          {binary("FP32", "[1]", "-4"), "as 'binary_data_size'"},
          {binary("FP32", "[1]", "4.0"), "as 'binary_data_size'"},
          {binary("FP32", "[1]", "\"4\""), "as 'binary_data_size'"},
          {binary("FP32", "[1]", "18446744073709551620"), "as 'binary_data_size'"},
          {binary("FP32", "[4611686018427387904,4]", "0"), "more bytes than can be counted"},
          {binary("FP64", "[4611686018427387904]", "0"), "more bytes than can be counted"},
          {binary("UINT8", "[9223372036854775807,9223372036854775807]", "1"),
           "than can be counted"},
          {input(
               R"("name":"x","shape":[1],"datatype":"INT8","data":[1],"parameters":{"binary_data_size":1})"),
           "input 'x': has both 'data' and 'binary_data_size'"},
      }) {
    expect_refused(row);
  }
  std::string sum = R"({"inputs":[)";
  for (int i = 0; i < 5; ++i) {
    sum += concat({i > 0 ? "," : "", R"({"name":"x)", std::to_string(i),
                   R"(","shape":[4611686018427387903],"datatype":"BYTES","parameters":)"
                   R"({"binary_data_size":18446744073709551612}})"});
  }
  expect_refused({sum + "]}", "overflow"});
}

TEST(InferRefusal, ChecksDataAgainstShapes) {
  for (const Refused& row : {
           Refused{with_data("FP32", "[4]", "[1,2,3]"), "has 3 elements, but FP32 [4] needs 4"},
           {with_data("FP32", "[2]", "[1,2,3]"), "has more than 2 elements, but FP32 [2] needs 2"},
           {with_data("FP32", "[2]", "[]"), "has 0 elements, but FP32 [2] needs 2"},
           {with_data("FP32", "[0]", "[1]"), "has more than 0 elements"},
           {with_data("FP32", "[2,2]", "[[1,2],[3]]"), "has 3 elements"},
           {with_data("FP32", "[2,2]", "[[1,2],[3,4,5]]"), "more than 4 elements"},
           {with_data("FP32", "[2,2]", "[[1,2]]"), "has 2 elements"},
           {with_data("FP32", "[2,2]", "[[1,2],[3,4],[5,6]]"), "more than 4 elements"},
           {with_data("FP32", "[2,2]", "[[1,2],3,4]"), "nested as the shape says"},
           {with_data("FP32", "[2,2]", "[1,2,[3,4]]"), "element 2 of 'data' is not a number"},
           {with_data("FP32", "[2]", "[[1,2]]"), "element 0 of 'data' is not a number"},
           {with_data("FP32", "[2,1]", "[[[1]],[[2]]]"), "is not a number"},
           {with_data("FP32", "[2,2]", "[[1,2][3,4]]"), "wanted ',' or ']'"},
           {with_data("FP32", "[2]", "[1 2]"), "wanted ',' or ']'"},
           {with_data("FP32", "[2]", "[1,2}"), "wanted ',' or ']'"},
           {with_data("FP32", "[2]", "[1,2,]"), "more than 2"},
           {with_data("FP32", "[2]", "[1,]"), "element 1 of 'data' is not a number"},
           {with_data("FP32", "[1]", "1"), "input 'x': 'data' is 1; wanted an array"},
           {with_data("FP32", "[1]", "null"), "input 'x': has no data"},
           {with_data("FP32", "[1000000000]", "[1]"), "too short for FP32 [1000000000]"},
           {with_data("FP32", "[1000000000,1000000000]", "[1]"), "too short for FP32"},
           {with_data("INT8", "[10000000000,10000000000]", "[1]"),
            "more bytes than can be counted"},
           {with_data("FP16", "[1]", "[1]"), "FP16 has no form in JSON; send it as binary"},
           {with_data("BF16", "[1]", "[1]"), "BF16 has no form in JSON"},
       }) {
    expect_refused(row);
  }
}

TEST(InferRefusal, ChecksEveryElement) {
  const auto one = [](std::string_view type, std::string_view element) {
    return with_data(type, "[2]", concat({"[", type == "BOOL" ? "true" : "1", ",", element, "]"}));
  };
  for (const std::string_view bad :
       {"Nan", "Inf", "-NaN", "\"nan\"", "\"Infinity", "nul", "inf", "nan", "01", "-", "+1", ".5",
        "1.", "1.e5", "1..2", "\"1\"", "true", "{}", ""}) {
    expect_refused({one("FP32", bad), "input 'x': element 1 of 'data' is not a number"});
    expect_refused({one("FP64", bad), "input 'x': element 1 of 'data' is not a number"});
  }
  for (const std::string_view bad : {"1e", "1e+", "1f", "1_0", "0x10", "1-2"}) {
    expect_refused({one("FP32", bad), "wanted ',' or ']'"});
  }
  for (const std::string_view bad :
       {"1e400", "-1e400", "3.5e38", "1e39", "1e999999999999999999999"}) {
    expect_refused({one("FP32", bad), "element 1 of 'data' is out of the range"});
  }
  expect_refused({one("FP64", "1e309"), "is out of the range"});
  EXPECT_TRUE(ParsedRequest(one("FP64", "1e39")).result.ok());
  for (const auto& [type, bad] : std::vector<std::pair<std::string_view, std::string_view>>{
           {"UINT8", "256"},
           {"UINT8", "-1"},
           {"INT8", "128"},
           {"INT8", "-129"},
           {"UINT16", "65536"},
           {"INT16", "-32769"},
           {"UINT32", "4294967296"},
           {"INT32", "2147483648"},
           {"INT64", "9223372036854775808"},
           {"INT64", "-9223372036854775809"},
           {"UINT64", "18446744073709551616"},
           {"UINT64", "-1"},
           {"INT64", "99999999999999999999999999"}}) {
    expect_refused({one(type, bad), "out of the range"});
  }
  for (const std::string_view bad : {"1.0", "1e2", "1E2", "0.5"}) {
    expect_refused({one("INT32", bad), "not an integer"});
  }
  for (const std::string_view bad :
       {"01", "-", "+1", "\"1\"", "true", "null", "[]", "NaN", "Infinity", "\"NaN\""}) {
    expect_refused({one("INT32", bad), "is not a number"});
  }
  for (const std::string_view bad : {"1", "0", "\"true\"", "True", "tru", "null"}) {
    expect_refused({one("BOOL", bad), "true or false"});
  }
  for (const std::string_view bad : {"1", "null", "\"\\ud800\"", "\"\\q\"", "\"a", "[\"a\"]"}) {
    expect_refused({with_data("BYTES", "[2]", "[\"a\"," + std::string(bad) + "]"), ""});
  }
}

TEST(InferRefusal, NamesAPlaceInSharedMemoryThatDoesNotFit) {
  const auto with = [](const std::string& shape, const std::string& type,
                       const std::string& parameters) {
    return input(R"("name":"x","shape":)" + shape + R"(,"datatype":")" + type +
                 R"(","parameters":{"shared_memory_region":"r",)" + parameters + "}");
  };
  const auto size = [](const std::string& bytes) { return "\"shared_memory_byte_size\":" + bytes; };
  expect_refused({with("[1]", "FP32", size("5")), "input 'x': shared_memory_byte_size is 5"});
  expect_refused({with("[1]", "FP32", size("0")), "input 'x': shared_memory_byte_size is 0"});
  expect_refused({with("[1]", "FP32", size("-4")), "unsigned integer"});
  expect_refused({with("[1]", "FP32", size("4.0")), "unsigned integer"});
  expect_refused({with("[1]", "FP32", size("18446744073709551616")), "unsigned integer"});
  expect_refused({with("[1]", "FP32", "\"shared_memory_offset\":\"0\""), "unsigned integer"});
  expect_refused({with("[2]", "BYTES", size("7")), "needs at least 8"});
  expect_refused({with("[1]", "FP32", size("4") + ",\"binary_data_size\":4"), "in one place"});
  expect_refused({with("[1]", "FP32", size("4") + "},\"data\":[1],\"a\":{"), "in one place"});
  expect_refused({input(R"("name":"x","shape":[1],"datatype":"FP32","parameters":)"
                        R"({"shared_memory_region":""})"),
                  "'shared_memory_region' is empty"});
  expect_refused({input(R"("name":"x","shape":[1],"datatype":"FP32","parameters":)"
                        R"({"shared_memory_region":7})"),
                  "a string"});
}

TEST(InferRefusal, ClassesComeInTheReplyOnly) {
  expect_refused({R"({"inputs":[],"outputs":[{"name":"y","parameters":{"shared_memory_region":"r",)"
                  R"("classification":3}}]})",
                  "output 'y': has both"});
}

TEST(InferRefusal, SaysWhenTheRequestsMemoryIsTooSmall) {
  const std::string json = with_data("FP32", "[4]", "[1,2,3,4]");
  EXPECT_TRUE(ParsedRequest(json, 4096).result.ok());
  for (const size_t cap : {size_t{0}, size_t{15}, size_t{16}}) {
    const ParsedRequest request(json, cap);
    ASSERT_FALSE(request.result.ok()) << cap;
    EXPECT_EQ(request.result.status().code(), Code::kTooLarge);
  }
  const ParsedRequest escaped(R"({"\u0069":1,"inputs":[]})", 3);
  EXPECT_EQ(escaped.result.status().code(), Code::kTooLarge);
}

}  // namespace
}  // namespace lumen::wire
