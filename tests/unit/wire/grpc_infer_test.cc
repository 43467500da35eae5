// parse_grpc_infer and encode_grpc_reply: messages of clients, broken ones, and one cut at each
// byte.
#include <lumen/wire/grpc_infer.h>

#include "support/grpc_client.h"
#include "unit/wire/wire_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>

namespace lumen::wire {
namespace {

using lumen::test::grpc_infer;
using lumen::test::proto_field;
using test::ExactCopy;
using test::HeapMemory;
using testing::HasSubstr;

std::string number(uint32_t field, uint64_t value) {
  std::string bytes(1, static_cast<char>(field << 3));
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string tensor(std::string_view type, std::string_view shape, const std::string& contents) {
  return proto_field(1, "x") + proto_field(2, type) + proto_field(3, shape) +
         (contents.empty() ? std::string() : proto_field(5, contents));
}

std::string parameter(std::string_view name, const std::string& value) {
  return proto_field(1, name) + proto_field(2, value);
}

Shape one_by_two() {
  Shape shape;
  EXPECT_TRUE(shape.append(1) && shape.append(2));
  return shape;
}

class ParseGrpcInfer : public testing::Test {
 protected:
  // The message lies where nothing may be read behind it.
  Result<GrpcInferRequest> parse(const std::string& message) {
    copies_.push_back(std::make_unique<ExactCopy>(message));
    return parse_grpc_infer(copies_.back()->view(), memory_);
  }
  std::string refusal(const std::string& message) {
    const Result<GrpcInferRequest> parsed = parse(message);
    return parsed.ok() ? "accepted" : std::string(parsed.status().message());
  }
  // Of one input with typed contents.
  std::string packed(const std::string& input) {
    const Result<GrpcInferRequest> parsed = parse(proto_field(1, "m") + proto_field(5, input));
    if (!parsed.ok()) return std::string(parsed.status().message());
    const TensorView& read = parsed->head.inputs[0].tensor;
    return {reinterpret_cast<const char*>(read.data), read.byte_size};
  }
  HeapMemory memory_{size_t{1} << 20};
  std::vector<std::unique_ptr<ExactCopy>> copies_;
};

TEST_F(ParseGrpcInfer, LeavesRawTensorsWhereTheyLie) {
  const std::string bytes = "abcdefgh";
  const auto parsed = parse(grpc_infer("m", "x", bytes) + proto_field(3, "the id"));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->model, "m");
  EXPECT_EQ(parsed->version, "");
  EXPECT_EQ(parsed->head.id, "the id");
  ASSERT_EQ(parsed->head.inputs.size(), 1u);
  const InferInput& input = parsed->head.inputs[0];
  EXPECT_EQ(input.name, "x");
  EXPECT_EQ(input.tensor.type, ElementType::kFp32);
  EXPECT_EQ(input.tensor.shape, one_by_two());
  const std::string_view message = copies_.back()->view();
  EXPECT_EQ(reinterpret_cast<const char*>(input.tensor.data), message.data() + message.find(bytes));
  EXPECT_EQ(input.tensor.byte_size, 8u);
}

TEST(GrpcTensorOffset, IsThatOfTheLargestTensorWhoseLengthIsThere) {
  const std::string first = proto_field(1, "model") + proto_field(7, "small");
  const std::string message =
      first + proto_field(7, std::string(1000, 'x')) + number(12, 5) + proto_field(7, "another");
  const size_t small = first.size() - 5;
  const size_t large = first.size() + 3;  // behind a tag and a length of two bytes
  for (size_t bytes = 0; bytes <= message.size(); ++bytes) {
    const ExactCopy begin(message.substr(0, bytes));
    const size_t wanted = bytes >= large ? large : bytes >= small ? small : 0;
    ASSERT_EQ(wanted, grpc_tensor_offset(begin.view())) << bytes;
  }
}

TEST(GrpcTensorOffset, IsNoneOfAMessageWithoutRawTensors) {
  EXPECT_EQ(0u, grpc_tensor_offset(proto_field(1, "model") + number(7, 9)));
  EXPECT_EQ(0u, grpc_tensor_offset(proto_field(7, "")));
}

TEST_F(ParseGrpcInfer, PacksTypedContents) {
  const std::string two("\x02", 1);
  const auto bytes = [](auto... values) {
    std::string all;
    (all.append(reinterpret_cast<const char*>(&values), sizeof(values)), ...);
    return all;
  };
  EXPECT_EQ(packed(tensor("BOOL", two, proto_field(1, std::string("\x01\x00", 2)))),
            std::string("\x01\x00", 2));
  // Negative numbers take ten bytes; one at a time, as proto2 writes them.
  EXPECT_EQ(packed(tensor("INT8", two, number(2, 5) + number(2, static_cast<uint64_t>(-3)))),
            bytes(int8_t{5}, int8_t{-3}));
  EXPECT_EQ(packed(tensor("INT64", two, number(3, 1) + number(3, UINT64_MAX))),
            bytes(int64_t{1}, int64_t{-1}));
  EXPECT_EQ(packed(tensor("UINT16", two, number(4, 65535) + number(4, 0))),
            bytes(uint16_t{65535}, uint16_t{0}));
  EXPECT_EQ(packed(tensor("FP32", two, proto_field(6, bytes(1.5f, -2.0f)))), bytes(1.5f, -2.0f));
  EXPECT_EQ(packed(tensor("FP64", two, proto_field(7, bytes(1.5, -2.0)))), bytes(1.5, -2.0));
  EXPECT_EQ(packed(tensor("BYTES", two, proto_field(8, "ab") + proto_field(8, ""))),
            bytes(uint32_t{2}) + "ab" + bytes(uint32_t{0}));
}

TEST_F(ParseGrpcInfer, RefusesContentsThatDoNotFit) {
  const std::string two("\x02", 1);
  EXPECT_THAT(packed(tensor("INT8", two, number(2, 5))), HasSubstr("another number of elements"));
  EXPECT_THAT(packed(tensor("INT8", two, number(2, 5) + number(2, 128))), HasSubstr("out of its"));
  EXPECT_THAT(packed(tensor("BOOL", two, number(1, 1) + number(1, 2))), HasSubstr("out of its"));
  EXPECT_THAT(packed(tensor("FP32", two, proto_field(6, "1234567"))), HasSubstr("broken"));
  EXPECT_THAT(packed(tensor("FP32", two, proto_field(7, "12345678"))),
              HasSubstr("another datatype"));
  EXPECT_THAT(packed(tensor("FP16", two, proto_field(6, "12345678"))), HasSubstr("raw_input"));
  // A shape of 2^40 elements takes no memory for a message of a few bytes.
  const std::string huge("\x80\x80\x80\x80\x80\x20", 6);
  EXPECT_THAT(packed(tensor("FP32", huge, proto_field(6, "12345678"))),
              HasSubstr("another number of elements"));
}

TEST_F(ParseGrpcInfer, ReadsParameters) {
  const std::string message =
      grpc_infer("m", "x", "abcd") + proto_field(4, parameter("timeout", number(2, 250))) +
      proto_field(4, parameter("priority", number(5, 3))) +
      proto_field(4, parameter("sequence_id", proto_field(3, "s"))) +
      proto_field(4, parameter("sequence_start", number(1, 1))) +
      proto_field(4, parameter("sequence_end", number(1, 0))) +
      proto_field(4, parameter("no_cache", number(1, 1))) +
      proto_field(4, parameter("mine", proto_field(3, "a\"b"))) +
      proto_field(6,
                  proto_field(1, "y") + proto_field(2, parameter("classification", number(2, 5))));
  const auto parsed = parse(message);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const InferHead& head = parsed->head;
  EXPECT_EQ(head.timeout_us, 250u);
  EXPECT_EQ(head.priority, 3u);
  EXPECT_TRUE(head.no_cache);
  EXPECT_EQ(head.sequence.text, "s");
  EXPECT_TRUE(head.sequence.starts);
  EXPECT_FALSE(head.sequence.ends);
  ASSERT_EQ(head.parameters.size(), 1u);
  EXPECT_EQ(head.parameters[0].name, "mine");
  EXPECT_EQ(head.parameters[0].value, R"("a\"b")");
  ASSERT_EQ(head.outputs.size(), 1u);
  EXPECT_EQ(head.outputs[0].name, "y");
  EXPECT_EQ(head.outputs[0].classes, 5u);
  EXPECT_THAT(refusal(grpc_infer("m", "x", "abcd") +
                      proto_field(4, parameter("timeout", number(2, static_cast<uint64_t>(-1))))),
              HasSubstr("'timeout': wanted"));
  EXPECT_THAT(refusal(grpc_infer("m", "x", "abcd") +
                      proto_field(4, parameter("priority", proto_field(3, "1")))),
              HasSubstr("'priority': wanted"));
}

TEST_F(ParseGrpcInfer, RefusesTensorsAndBytesThatDoNotMatch) {
  const std::string input = proto_field(5, tensor("FP32", "\x02", {}));
  EXPECT_THAT(refusal(proto_field(1, "m")), HasSubstr("no 'inputs'"));
  EXPECT_THAT(refusal(input), HasSubstr("input 'x' has no data"));
  EXPECT_THAT(refusal(input + proto_field(7, "1234567")), HasSubstr("has 7 bytes, but"));
  EXPECT_THAT(refusal(input + proto_field(7, "12345678") + proto_field(7, "")),
              HasSubstr("got 2 raw_input_contents, wanted 1"));
  EXPECT_THAT(refusal(proto_field(5, tensor("FP32", "\x02", proto_field(6, "12345678"))) +
                      proto_field(7, "12345678")),
              HasSubstr("both raw_input_contents and 'contents'"));
  EXPECT_THAT(refusal(proto_field(5, tensor("FP33", "\x02", {})) + proto_field(7, "12345678")),
              HasSubstr("datatype 'FP33' is unknown"));
  EXPECT_THAT(refusal(proto_field(5, tensor("FP32", "\x80", {})) + proto_field(7, "12345678")),
              HasSubstr("shape"));
  // A dimension of -1.
  const std::string minus("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10);
  EXPECT_THAT(refusal(proto_field(5, tensor("FP32", minus, {})) + proto_field(7, "12345678")),
              HasSubstr("is -1"));
  EXPECT_THAT(refusal(grpc_infer("m", "x", "abcd") + proto_field(3, "\xff")), HasSubstr("UTF-8"));
}

TEST_F(ParseGrpcInfer, RefusesAMessageThatIsCutAnywhere) {
  const std::string whole = grpc_infer("model", "x", "12345678") +
                            proto_field(6, proto_field(1, "y")) +
                            proto_field(4, parameter("timeout", number(2, 250)));
  ASSERT_TRUE(parse(whole).ok());
  size_t accepted = 0;
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    accepted += parse(whole.substr(0, bytes)).ok() ? 1 : 0;
  }
  // Where a field that is optional ends.
  EXPECT_EQ(accepted, 2u);
}

TEST_F(ParseGrpcInfer, ReadsNothingOutsideOfAMessageOfRandomBytes) {
  std::mt19937 random(5);
  const std::string whole = grpc_infer("model", "x", "12345678") + proto_field(3, "id");
  for (int round = 0; round < 20'000; ++round) {
    std::string message = whole;
    for (int changes = 0; changes < 3; ++changes) {
      message[random() % message.size()] = static_cast<char>(random());
    }
    HeapMemory memory(size_t{1} << 16);
    const ExactCopy copy(message);
    (void)parse_grpc_infer(copy.view(), memory);
  }
}

TEST_F(ParseGrpcInfer, SaysWhereMemoryIsMissing) {
  HeapMemory little(16);
  const std::string message = grpc_infer("m", "x", "abcd");
  const auto parsed = parse_grpc_infer(message, little);
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().code(), Code::kTooLarge);
}

std::string joined(const Result<GrpcMessage>& message) {
  if (!message.ok()) return std::string(message.status().message());
  std::string bytes;
  for (const std::string_view piece : message->pieces) bytes += piece;
  EXPECT_EQ(message->bytes, bytes.size());
  return bytes;
}

TEST(EncodeGrpcReply, HasAllOutputsInRawContents) {
  std::array<float, 2> values = {1.5f, -2.0f};
  const TensorView floats{.type = ElementType::kFp32,
                          .shape = one_by_two(),
                          .data = reinterpret_cast<std::byte*>(values.data()),
                          .byte_size = sizeof(values)};
  const std::array outputs = {ReplyOutput{.name = "a", .tensor = floats},
                              ReplyOutput{.name = "b", .tensor = floats, .is_elsewhere = true}};
  HeapMemory memory(4096);
  const auto encoded = encode_grpc_reply(
      {.model_name = "m", .model_version = "3", .id = "i", .outputs = outputs}, memory);
  ASSERT_TRUE(encoded.ok());
  std::string bytes;
  for (const std::string_view piece : encoded->pieces) bytes += piece;
  const std::string shape("\x01\x02", 2);
  const auto described = [&](std::string_view name) {
    return proto_field(5, proto_field(1, name) + proto_field(2, "FP32") + proto_field(3, shape));
  };
  const std::string wanted =
      proto_field(1, "m") + proto_field(2, "3") + proto_field(3, "i") + described("a") +
      described("b") +
      proto_field(6, {reinterpret_cast<const char*>(values.data()), sizeof(values)}) +
      proto_field(6, "");
  EXPECT_EQ(bytes, lumen::test::grpc_message(wanted));
  EXPECT_EQ(encoded->bytes, bytes.size());

  const std::string in_stream = joined(encode_grpc_stream_reply(
      {.model_name = "m", .model_version = "3", .id = "i", .outputs = outputs}, false, memory));
  EXPECT_EQ(in_stream, lumen::test::grpc_message(proto_field(2, wanted)));
}

TEST(EncodeGrpcReply, SaysInAStreamThatItIsTheLastOneWhereThatIsAsked) {
  HeapMemory memory(4096);
  const std::string entry =
      proto_field(1, "triton_final_response") + proto_field(2, std::string("\x08\x01", 2));
  const std::string reply = proto_field(1, "m") + proto_field(2, "3") + proto_field(4, entry);
  EXPECT_EQ(joined(encode_grpc_stream_reply(
                {.model_name = "m", .model_version = "3", .id = {}, .outputs = {}}, true, memory)),
            lumen::test::grpc_message(proto_field(2, reply)));
}

TEST(EncodeGrpcReply, HasAnErrorInAStreamWithTheIdOfItsRequest) {
  HeapMemory memory(4096);
  const std::string long_error(300, 'e');
  EXPECT_EQ(
      joined(encode_grpc_stream_error(long_error, "i", memory)),
      lumen::test::grpc_message(proto_field(1, long_error) + proto_field(2, proto_field(3, "i"))));
  EXPECT_EQ(joined(encode_grpc_stream_error("e", std::nullopt, memory)),
            lumen::test::grpc_message(proto_field(1, "e")));
}

}  // namespace
}  // namespace lumen::wire
