// A model's metadata, inputs made from it, and the request that carries them.
#include <lumen/client/model_info.h>
#include <lumen/memory/request_memory.h>
#include <lumen/tensor/type_text.h>
#include <lumen/wire/grpc_infer.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <string>

namespace lumen::client {
namespace {

constexpr std::string_view kMetadata = R"({"name":"m","versions":["1"],"platform":"openvino",
  "inputs":[{"name":"a","datatype":"FP32","shape":[-1,3]},
            {"name":"b","datatype":"INT64","shape":[2]}],
  "outputs":[{"name":"c","datatype":"FP32","shape":[-1,3]}]})";

TEST(ModelInfo, ReadsTheInputsOfTheMetadata) {
  const auto info = parse_model_info(kMetadata);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->name, "m");
  ASSERT_EQ(info->inputs.size(), 2u);
  EXPECT_EQ(info->inputs[0].name, "a");
  EXPECT_EQ(type_text(info->inputs[0].type, info->inputs[0].shape), "FP32[-1,3]");
  EXPECT_EQ(type_text(info->inputs[1].type, info->inputs[1].shape), "INT64[2]");
}

TEST(ModelInfo, RefusesADocumentThatIsNoMetadata) {
  for (const char* text :
       {"", "<html>", "[]", "{}", R"({"name":"m"})", R"({"name":1,"inputs":[]})",
        R"({"name":"m","inputs":[{"name":"a"}]})",
        R"({"name":"m","inputs":[{"name":"a","datatype":"FP33","shape":[1]}]})",
        R"({"name":"m","inputs":[{"name":"a","datatype":"FP32","shape":["x"]}]})"}) {
    EXPECT_FALSE(parse_model_info(text).ok()) << text;
  }
}

TEST(GrpcRequest, IsOneThatTheServersReaderReadsAndSaysWhereItsInputsAre) {
  const auto info = parse_model_info(kMetadata);
  ASSERT_TRUE(info.ok());
  for (const size_t rows : {0u, 1u, 40u}) {
    std::vector<InputTensor> inputs = {random_input(info->inputs[0], 1),
                                       random_input(info->inputs[1], 2)};
    inputs[0].bytes.assign(rows * 12, 'x');
    inputs[0].shape = Shape();
    ASSERT_TRUE(inputs[0].shape.append(static_cast<int64_t>(rows)) && inputs[0].shape.append(3));
    Target target;
    target.is_grpc = true;
    const std::string request = build_grpc_request(*info, inputs);
    for (size_t i = 0; i < 2; ++i) {
      const size_t at = input_at(target, request, inputs, i);
      EXPECT_EQ(request.substr(at, inputs[i].bytes.size()), inputs[i].bytes);
    }
    auto memory = RequestMemory::create(1 << 20);
    ASSERT_TRUE(memory.ok());
    const auto read =
        wire::parse_grpc_infer(std::string_view(request).substr(wire::kGrpcPrefixBytes), *memory);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->model, "m");
    ASSERT_EQ(read->head.inputs.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      const wire::InferInput& input = read->head.inputs[i];
      EXPECT_EQ(input.name, inputs[i].name);
      EXPECT_EQ(input.tensor.byte_size, inputs[i].bytes.size());
      EXPECT_EQ(input.tensor.shape, inputs[i].shape);
    }
  }
}

TEST(HttpRequest, SaysWhereItsInputsAre) {
  const auto info = parse_model_info(kMetadata);
  ASSERT_TRUE(info.ok());
  const std::vector<InputTensor> inputs = {random_input(info->inputs[0], 1),
                                           random_input(info->inputs[1], 2)};
  const Target target;
  const std::string request = build_request(target, *info, inputs, {}, ConnectionUse::kKept);
  for (size_t i = 0; i < 2; ++i) {
    const size_t at = input_at(target, request, inputs, i);
    EXPECT_EQ(request.substr(at, inputs[i].bytes.size()), inputs[i].bytes);
  }
}

TEST(RandomInput, MakesFreeAxesOneAndIsTheSameForTheSameSeed) {
  const auto info = parse_model_info(kMetadata);
  ASSERT_TRUE(info.ok());
  const InputTensor one = random_input(info->inputs[0], 7);
  EXPECT_EQ(type_text(one.type, one.shape), "FP32[1,3]");
  ASSERT_EQ(one.bytes.size(), 12u);
  EXPECT_EQ(one.bytes, random_input(info->inputs[0], 7).bytes);
  EXPECT_NE(one.bytes, random_input(info->inputs[0], 8).bytes);
}

TEST(RandomInput, KeepsEachTypeInItsRange) {
  TensorInfo info{"x", ElementType::kFp32, {}};
  ASSERT_TRUE(info.shape.append(1000));
  const std::string floats = random_input(info, 1).bytes;
  for (size_t i = 0; i < 1000; ++i) {
    float value = 0;
    std::memcpy(&value, floats.data() + 4 * i, 4);
    EXPECT_GE(value, 0.0f);
    EXPECT_LT(value, 1.0f);
  }
  info.type = ElementType::kInt64;
  const std::string integers = random_input(info, 1).bytes;
  for (size_t i = 0; i < 1000; ++i) {
    int64_t value = 0;
    std::memcpy(&value, integers.data() + 8 * i, 8);
    EXPECT_GE(value, 0);
    EXPECT_LT(value, 8);
  }
  info.type = ElementType::kBool;
  for (const char value : random_input(info, 1).bytes) EXPECT_LE(value, 1);
  info.type = ElementType::kBytes;
  EXPECT_EQ(random_input(info, 1).bytes.size(), 1000u * 12);
}

TEST(InputOfFile, TakesAnArrayThatFitsTheModel) {
  const auto info = parse_model_info(kMetadata);
  ASSERT_TRUE(info.ok());
  NpyFile file{ElementType::kFp32, {}, std::string(24, '\0')};
  ASSERT_TRUE(file.shape.append(2) && file.shape.append(3));
  const auto input = input_of_file(info->inputs[0], file, "x.npy");
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(type_text(input->type, input->shape), "FP32[2,3]");
}

TEST(InputOfFile, RefusesAnotherTypeAndSaysHowToConvertIt) {
  const auto info = parse_model_info(kMetadata);
  ASSERT_TRUE(info.ok());
  NpyFile file{ElementType::kFp64, {}, std::string(24, '\0')};
  ASSERT_TRUE(file.shape.append(1) && file.shape.append(3));
  const auto input = input_of_file(info->inputs[0], file, "x.npy");
  ASSERT_FALSE(input.ok());
  EXPECT_EQ(input.status().message(),
            "x.npy holds FP64[1,3]; input 'a' wants FP32[-1,3]: arr.astype('float32')");
}

TEST(InputOfFile, RefusesAnotherShape) {
  const auto info = parse_model_info(kMetadata);
  ASSERT_TRUE(info.ok());
  NpyFile file{ElementType::kFp32, {}, std::string(16, '\0')};
  ASSERT_TRUE(file.shape.append(1) && file.shape.append(4));
  const auto input = input_of_file(info->inputs[0], file, "x.npy");
  ASSERT_FALSE(input.ok());
  EXPECT_EQ(input.status().message(),
            "x.npy holds FP32[1,4]; input 'a' wants FP32[-1,3], -1 being any");
}

TEST(BuildRequest, PutsTheTensorsBehindAJsonHeadOfTheStatedLength) {
  const auto target = parse_target("http://127.0.0.1:1/base");
  const auto info = parse_model_info(kMetadata);
  ASSERT_TRUE(target.ok() && info.ok());
  const std::vector<InputTensor> inputs = {random_input(info->inputs[0], 1),
                                           random_input(info->inputs[1], 2)};
  const std::string request = build_request(*target, *info, inputs, "i1", ConnectionUse::kKept);
  const size_t end = request.find("\r\n\r\n");
  ASSERT_NE(end, std::string::npos);
  const std::string head = request.substr(0, end + 2);
  const std::string body = request.substr(end + 4);
  EXPECT_TRUE(head.starts_with("POST /base/v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1:1\r\n"));
  EXPECT_EQ(head.find("Connection"), std::string::npos);
  EXPECT_NE(head.find("\r\nContent-Length: " + std::to_string(body.size()) + "\r\n"),
            std::string::npos);
  const size_t json_bytes = body.size() - 12 - 16;
  EXPECT_NE(head.find("Inference-Header-Content-Length: " + std::to_string(json_bytes) + "\r\n"),
            std::string::npos);
  const auto json = nlohmann::json::parse(body.substr(0, json_bytes));
  EXPECT_EQ(json["id"], "i1");
  EXPECT_EQ(json["inputs"][0]["shape"], nlohmann::json({1, 3}));
  EXPECT_EQ(json["inputs"][1]["parameters"]["binary_data_size"], 16);
  EXPECT_EQ(json["parameters"]["binary_data_output"], true);
  EXPECT_EQ(body.substr(json_bytes), inputs[0].bytes + inputs[1].bytes);
}

TEST(BuildRequest, AsksToCloseWhereAConnectionServesOneRequest) {
  const auto target = parse_target("unix:/run/a.sock");
  const auto info = parse_model_info(kMetadata);
  ASSERT_TRUE(target.ok() && info.ok());
  const std::string request = build_request(*target, *info, {}, "", ConnectionUse::kOneRequest);
  EXPECT_NE(request.find("\r\nConnection: close\r\n"), std::string::npos);
  EXPECT_NE(request.find("\r\nHost: localhost\r\n"), std::string::npos);
  EXPECT_EQ(request.find("\"id\""), std::string::npos);
}

}  // namespace
}  // namespace lumen::client
