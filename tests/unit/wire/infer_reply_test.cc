// Infer replies and error bodies, byte for byte.
#include "unit/wire/wire_support.h"

#include <limits>

namespace lumen::wire {
namespace {

using test::HeapMemory;

// An output that owns its bytes.
class Output {
 public:
  Output(std::string_view name, ElementType type, const std::vector<int64_t>& shape,
         std::string bytes, bool binary = false)
      : bytes_(std::move(bytes)) {
    reply_.name = name;
    reply_.binary = binary;
    reply_.tensor.type = type;
    for (const int64_t d : shape) EXPECT_TRUE(reply_.tensor.shape.append(d));
    reply_.tensor.data = reinterpret_cast<std::byte*>(bytes_.data());
    reply_.tensor.byte_size = bytes_.size();
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  [[nodiscard]] const ReplyOutput& reply() const { return reply_; }

 private:
  std::string bytes_;
  ReplyOutput reply_;
};

template <typename T>
std::string bytes_of(std::vector<T> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

Result<EncodedReply> encode(HeapMemory& memory, std::vector<ReplyOutput> outputs,
                            std::optional<std::string_view> id = std::nullopt) {
  InferReply reply;
  reply.model_name = "m";
  reply.model_version = "1";
  reply.id = id;
  reply.outputs = outputs;
  return encode_infer_reply(reply, memory);
}

std::string data_text(ElementType type, const std::vector<int64_t>& shape, std::string bytes) {
  HeapMemory memory;
  const Output output("y", type, shape, std::move(bytes));
  const Result<EncodedReply> encoded = encode(memory, {output.reply()});
  EXPECT_TRUE(encoded.ok()) << encoded.status().message();
  if (!encoded.ok()) return "";
  const std::string_view json = encoded->json;
  const size_t begin = json.find("\"data\":") + 7;
  return std::string(json.substr(begin, json.size() - 3 - begin));
}

TEST(InferReply, MixesBinaryAndJsonOutputsInOrder) {
  HeapMemory memory;
  const Output a("a", ElementType::kFp32, {1, 2}, bytes_of<float>({1, 2}), true);
  const Output b("b", ElementType::kInt64, {2}, bytes_of<int64_t>({-1, 7}));
  const Output c("c", ElementType::kFp16, {1}, "xy", true);
  const Result<EncodedReply> encoded = encode(memory, {a.reply(), b.reply(), c.reply()}, "id\"1");
  ASSERT_TRUE(encoded.ok()) << encoded.status().message();
  EXPECT_EQ(encoded->json,
            R"({"model_name":"m","model_version":"1","id":"id\"1","outputs":[)"
            R"({"name":"a","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}},)"
            R"({"name":"b","datatype":"INT64","shape":[2],"data":[-1,7]},)"
            R"({"name":"c","datatype":"FP16","shape":[1],"parameters":{"binary_data_size":2}}]})");
  EXPECT_TRUE(encoded->has_binary);
  EXPECT_EQ(encoded->binary_bytes, 10U);
}

TEST(InferReply, LeavesOutTheIdThatWasNotSent) {
  HeapMemory memory;
  const Result<EncodedReply> encoded = encode(memory, {});
  ASSERT_TRUE(encoded.ok());
  EXPECT_EQ(encoded->json, R"({"model_name":"m","model_version":"1","outputs":[]})");
  EXPECT_FALSE(encoded->has_binary);
}

TEST(InferReply, CountsABinaryOutputWithoutBytesAsBinary) {
  HeapMemory memory;
  const Output a("a", ElementType::kFp32, {0}, "", true);
  const Result<EncodedReply> encoded = encode(memory, {a.reply()});
  ASSERT_TRUE(encoded.ok());
  EXPECT_TRUE(encoded->has_binary);
  EXPECT_EQ(encoded->binary_bytes, 0U);
}

TEST(InferReply, WritesEveryTypeAsJsonHasIt) {
  EXPECT_EQ(data_text(ElementType::kBool, {3}, std::string("\1\0\2", 3)), "[true,false,true]");
  EXPECT_EQ(data_text(ElementType::kUint8, {2}, "\xff\x01"), "[255,1]");
  EXPECT_EQ(data_text(ElementType::kInt8, {2}, "\x80\x01"), "[-128,1]");
  EXPECT_EQ(data_text(ElementType::kUint16, {1}, bytes_of<uint16_t>({65535})), "[65535]");
  EXPECT_EQ(data_text(ElementType::kInt16, {1}, bytes_of<int16_t>({-32768})), "[-32768]");
  EXPECT_EQ(data_text(ElementType::kUint32, {1}, bytes_of<uint32_t>({UINT32_MAX})), "[4294967295]");
  EXPECT_EQ(data_text(ElementType::kInt32, {1}, bytes_of<int32_t>({INT32_MIN})), "[-2147483648]");
  EXPECT_EQ(data_text(ElementType::kUint64, {1}, bytes_of<uint64_t>({UINT64_MAX})),
            "[18446744073709551615]");
  EXPECT_EQ(data_text(ElementType::kInt64, {1}, bytes_of<int64_t>({INT64_MIN})),
            "[-9223372036854775808]");
  EXPECT_EQ(data_text(ElementType::kFp32, {2, 2},
                      bytes_of<float>({0.1F, -2, std::numeric_limits<float>::quiet_NaN(), 1e30F})),
            "[0.1,-2,null,1e+30]");
  EXPECT_EQ(data_text(ElementType::kFp64, {1}, bytes_of<double>({0.1})), "[0.1]");
  EXPECT_EQ(data_text(ElementType::kBytes, {3}, std::string("\2\0\0\0a\"\0\0\0\0\1\0\0\0\xff", 15)),
            "[\"a\\\"\",\"\",\"\xef\xbf\xbd\"]");
  EXPECT_EQ(data_text(ElementType::kFp32, {0}, ""), "[]");
}

TEST(InferReply, WritesNanAndInfinityAsTheRequestWants) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Output output(
      "y", ElementType::kFp32, {3},
      bytes_of<float>({std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}));
  const std::pair<NonFinite, std::string_view> forms[] = {
      {NonFinite::kNull, "[null,null,null]"},
      {NonFinite::kBare, "[NaN,Infinity,-Infinity]"},
      {NonFinite::kString, R"(["NaN","Infinity","-Infinity"])"}};
  for (const auto& [form, wanted] : forms) {
    HeapMemory memory;
    const ReplyOutput outputs[] = {output.reply()};
    const InferReply reply{
        .model_name = "m", .model_version = "1", .id = {}, .outputs = outputs, .non_finite = form};
    const Result<EncodedReply> encoded = encode_infer_reply(reply, memory);
    ASSERT_TRUE(encoded.ok());
    EXPECT_NE(encoded->json.find(wanted), std::string_view::npos) << encoded->json;
  }
}

TEST(InferReply, FitsItsBoundAtTheLongestTextOfEachType) {
  for (int i = 0; i <= static_cast<int>(ElementType::kBytes); ++i) {
    const auto type = static_cast<ElementType>(i);
    std::string element;
    switch (type) {
      case ElementType::kFp32: element = bytes_of<float>({-1.17549435e-38F}); break;
      case ElementType::kFp64: element = bytes_of<double>({-2.2250738585072014e-308}); break;
      case ElementType::kInt16: element = bytes_of<int16_t>({INT16_MIN}); break;
      case ElementType::kInt32: element = bytes_of<int32_t>({INT32_MIN}); break;
      case ElementType::kInt64: element = bytes_of<int64_t>({INT64_MIN}); break;
      case ElementType::kInt8: element = "\x80"; break;
      case ElementType::kBool: element = std::string(1, '\0'); break;
      case ElementType::kBytes: element = std::string("\1\0\0\0\1", 5); break;
      case ElementType::kFp16:
      case ElementType::kBf16: continue;
      default: element = std::string(element_size(type), '\xff'); break;
    }
    std::string all;
    for (int k = 0; k < 1000; ++k) all += element;
    // The CHECK inside and ASan on the exact block are tested here.
    EXPECT_GT(data_text(type, {1000}, all).size(), 2000U) << element_type_name(type);
  }
}

TEST(InferReply, RefusesHalfFloatsAsJson) {
  HeapMemory memory;
  for (const ElementType type : {ElementType::kFp16, ElementType::kBf16}) {
    const Output output("y", type, {1}, "ab");
    const Result<EncodedReply> encoded = encode(memory, {output.reply()});
    ASSERT_FALSE(encoded.ok());
    EXPECT_EQ(encoded.status().code(), Code::kInvalidArgument);
    EXPECT_NE(encoded.status().message().find("output 'y'"), std::string_view::npos);
    EXPECT_NE(encoded.status().message().find("'binary_data': true"), std::string_view::npos);
  }
}

TEST(InferReply, RefusesAModelsOutputThatDoesNotFitItsShape) {
  HeapMemory memory;
  const Output shorter("y", ElementType::kFp32, {2}, "abcd");
  const Output binary("y", ElementType::kFp32, {2}, "abcd", true);
  for (const Output* output : {&shorter, &binary}) {
    EXPECT_EQ(encode(memory, {output->reply()}).status().code(), Code::kInternal);
  }
  const Output cut("y", ElementType::kBytes, {1}, std::string("\5\0\0\0a", 5));
  EXPECT_FALSE(encode(memory, {cut.reply()}).ok());
}

TEST(InferReply, SaysWhenTheMemoryIsTooSmall) {
  HeapMemory memory(100);
  const Output output("y", ElementType::kFp32, {100}, std::string(400, '\0'));
  EXPECT_EQ(encode(memory, {output.reply()}).status().code(), Code::kTooLarge);
}

std::string error_body(std::string_view message, size_t size = kMaxErrorBodyBytes) {
  std::string out(size, '#');
  const size_t used = write_error_body(out, message);
  EXPECT_LE(used, size);
  return out.substr(0, used);
}

TEST(ErrorBody, IsJsonForAnyMessage) {
  EXPECT_EQ(error_body("no model 'a\"b'\n"), R"({"error":"no model 'a\"b'\n"})");
  EXPECT_EQ(error_body("\xff\x01"), "{\"error\":\"\xef\xbf\xbd\\u0001\"}");
  EXPECT_EQ(error_body(""), R"({"error":""})");
}

TEST(ErrorBody, IsCutBetweenCharacters) {
  // 12 bytes of frame.
  EXPECT_EQ(error_body("abcdef", 16), R"({"error":"abcd"})");
  EXPECT_EQ(error_body("abc\xc3\xa4", 16), R"({"error":"abc"})");
  EXPECT_EQ(error_body("ab\x01", 17), R"({"error":"ab"})");
  EXPECT_EQ(error_body("abc\"d", 16), R"({"error":"abc"})");
  EXPECT_EQ(error_body("abc", 12), R"({"error":""})");
  for (size_t size = 12; size < 60; ++size) {
    const std::string body = error_body("\xe2\x82\xac\xe2\x82\xac\n\n\x02\x02\xff\xff\\\\", size);
    EXPECT_TRUE(body.ends_with("\"}")) << body;
  }
}

}  // namespace
}  // namespace lumen::wire
