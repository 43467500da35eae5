// A model's config.json: every wrong form is refused with its key, the value got and the values
// wanted.
#include "models/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lumen::models {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::string refusal(std::string_view text) {
  const auto parsed = parse_model_config(text, "m/config.json");
  EXPECT_FALSE(parsed.ok()) << text;
  return std::string(parsed.status().message());
}

TEST(ModelConfig, IsAllOptional) {
  const auto parsed = parse_model_config("{}", "f");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->precision, Precision::kF32);
  EXPECT_THAT(parsed->batch_sizes, ElementsAre(1));
}

TEST(ModelConfig, TakesPrecisionAndBatchSizesInAscendingOrder) {
  const auto parsed = parse_model_config(R"({"precision": "bf16", "batch_sizes": [8, 1]})", "f");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->precision, Precision::kBf16);
  EXPECT_THAT(parsed->batch_sizes, ElementsAre(1, 8));
  EXPECT_EQ(parse_model_config(R"({"precision": "auto"})", "f")->precision, Precision::kAuto);
  EXPECT_THAT(parse_model_config(R"({"batch_sizes": []})", "f")->batch_sizes, IsEmpty());
}

TEST(ModelConfig, SaysHowAnswersAreKept) {
  const ResponseCacheOptions defaults = parse_model_config("{}", "f")->response_cache;
  EXPECT_FALSE(defaults.enable);
  EXPECT_EQ(defaults.ttl_ms, 60'000u);
  EXPECT_EQ(defaults.max_bytes, uint64_t{64} << 20);
  EXPECT_EQ(defaults.policy, CachePolicy::kS3Fifo);
  const auto parsed = parse_model_config(
      R"({"response_cache": {"enable": true, "ttl_ms": 5, "max_bytes": 65536, "policy": "lru"}})",
      "f");
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(parsed->response_cache.enable);
  EXPECT_EQ(parsed->response_cache.ttl_ms, 5u);
  EXPECT_EQ(parsed->response_cache.max_bytes, 65536u);
  EXPECT_EQ(parsed->response_cache.policy, CachePolicy::kLru);
  EXPECT_EQ(
      parse_model_config(R"({"response_cache": {"policy": "lfu"}})", "f")->response_cache.policy,
      CachePolicy::kLfu);
}

TEST(ModelConfig, RefusesAnImpossibleCache) {
  const auto refused = [](const std::string& section) {
    return refusal("{\"response_cache\": " + section + "}");
  };
  for (const char* section : {"true", "[]", "null", "\"on\"", "1"}) {
    EXPECT_THAT(refused(section),
                AllOf(HasSubstr("\"response_cache\": got"), HasSubstr("wanted an object")));
  }
  for (const char* ttl : {"0", "-1", "1.5", "\"1\"", "31536000001", "null"}) {
    EXPECT_THAT(
        refused("{\"ttl_ms\": " + std::string(ttl) + "}"),
        AllOf(HasSubstr("\"response_cache.ttl_ms\": got"), HasSubstr("from 1 to 31536000000")));
  }
  for (const char* bytes : {"0", "65535", "68719476737", "\"64M\""}) {
    EXPECT_THAT(refused("{\"max_bytes\": " + std::string(bytes) + "}"),
                AllOf(HasSubstr("\"response_cache.max_bytes\": got"),
                      HasSubstr("from 65536 to 68719476736")));
  }
  EXPECT_THAT(refused(R"({"enable": 1})"), HasSubstr("wanted true or false"));
  EXPECT_THAT(refused(R"({"policy": "lrv"})"), HasSubstr("did you mean \"lru\"?"));
  EXPECT_THAT(refused(R"({"policy": 1})"), HasSubstr("\"s3fifo\""));
  EXPECT_THAT(refused(R"({"tll_ms": 1})"),
              AllOf(HasSubstr("in \"response_cache\""), HasSubstr("did you mean \"ttl_ms\"?")));
  EXPECT_THAT(refused(R"({"ttl_ms": 1, "ttl_ms": 2})"), HasSubstr("given twice"));
}

TEST(ModelConfig, SaysHowAndWhereItsRequestsRun) {
  const ModelScheduling usual = parse_model_config("{}", "f")->scheduling;
  EXPECT_EQ(usual.queue_type, QueueType::kAuto);
  EXPECT_EQ(usual.weight, 1u);
  EXPECT_EQ(usual.priority, 2u);
  EXPECT_FALSE(usual.is_on_some_workers());
  const Result<ModelOptions> parsed = parse_model_config(
      R"({"queue_type": "batched", "weight": 3, "priority": 1, "workers": [2, 0]})", "f");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->scheduling.queue_type, QueueType::kBatched);
  EXPECT_EQ(parsed->scheduling.weight, 3u);
  EXPECT_EQ(parsed->scheduling.priority, 1u);
  EXPECT_THAT(parsed->scheduling.workers, ElementsAre(0u, 2u));
  EXPECT_EQ(parse_model_config(R"({"instances": 2})", "f")->scheduling.instances, 2u);
}

TEST(ModelConfig, RefusesSchedulingThatCanNotBe) {
  EXPECT_THAT(refusal(R"({"queue_type": "lifo"})"),
              AllOf(HasSubstr("\"queue_type\": got \"lifo\""),
                    HasSubstr(R"(wanted one of "mpmc", "batched", "inline", "auto")")));
  EXPECT_THAT(refusal(R"({"queue_type": "naive"})"), HasSubstr("set it with --queue-type"));
  EXPECT_THAT(refusal(R"({"weight": 0})"),
              HasSubstr("\"weight\": got 0, wanted a whole number from 1"));
  EXPECT_THAT(refusal(R"({"priority": 4})"), HasSubstr("\"priority\": got 4, wanted"));
  EXPECT_THAT(refusal(R"({"instances": 0})"), HasSubstr("\"instances\": got 0, wanted"));
  for (const char* workers : {"[]", "1", "[0, 0]", "[256]", "[-1]", "[1.5]"}) {
    EXPECT_THAT(refusal("{\"workers\": " + std::string(workers) + "}"),
                HasSubstr("wanted a list of different numbers of workers, 0 to 255"));
  }
  EXPECT_THAT(refusal(R"({"instances": 1, "workers": [0]})"), HasSubstr("are both given"));
  EXPECT_THAT(refusal(R"({"queue_type": "inline", "workers": [0]})"),
              HasSubstr("\"inline\" runs on the I/O threads"));
  EXPECT_THAT(refusal(R"({"wieght": 2})"), HasSubstr("did you mean \"weight\"?"));
}

TEST(ModelConfig, BoundsTheMemoryForShapesUnlessItIsToldOtherwise) {
  EXPECT_EQ(parse_model_config("{}", "f")->shape_cache, ModelOptions::kDefaultShapeCache);
  EXPECT_EQ(parse_model_config(R"({"shape_cache": 0})", "f")->shape_cache, 0u);
  EXPECT_EQ(parse_model_config(R"({"shape_cache": 5000})", "f")->shape_cache, 5000u);
  for (const char* entries : {"5001", "-1", "1.5", "\"64\"", "[64]", "null"}) {
    EXPECT_THAT(refusal("{\"shape_cache\": " + std::string(entries) + "}"),
                AllOf(HasSubstr("\"shape_cache\": got"), HasSubstr("from 0 to 5000")));
  }
}

TEST(ModelConfig, SaysHowADeviceIsUsed) {
  EXPECT_EQ(parse_model_config("{}", "f")->device, DeviceOptions());
  const auto parsed = parse_model_config(
      R"({"device": {"id": 1, "streams": 4, "batch_sizes": [8, 1], "memory_mb": 512}})", "f");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->device.id, 1u);
  EXPECT_EQ(parsed->device.streams, 4u);
  EXPECT_THAT(parsed->device.batch_sizes, ElementsAre(1u, 8u));
  EXPECT_EQ(parsed->device.memory_mb, 512u);
  EXPECT_THAT(refusal(R"({"device": 0})"), HasSubstr("\"device\": got 0, wanted an object"));
  EXPECT_THAT(refusal(R"({"device": {"id": 256}})"), HasSubstr("\"device.id\": got 256, wanted"));
  EXPECT_THAT(refusal(R"({"device": {"streams": 0}})"),
              HasSubstr("\"device.streams\": got 0, wanted a whole number from 1 to 16"));
  EXPECT_THAT(refusal(R"({"device": {"batch_sizes": [0]}})"),
              HasSubstr("\"device.batch_sizes\": got 0 in [0]"));
  EXPECT_THAT(refusal(R"({"device": {"memory_mb": -1}})"),
              HasSubstr("\"device.memory_mb\": got -1"));
  EXPECT_THAT(refusal(R"({"device": {"stream": 2}})"),
              HasSubstr("unknown key \"stream\" in \"device\"; did you mean \"streams\"?"));
}

TEST(ModelConfig, NamesItsBackend) {
  EXPECT_EQ(parse_model_config("{}", "f")->backend, "");
  EXPECT_EQ(parse_model_config(R"({"backend": "openvino"})", "f")->backend, "openvino");
  EXPECT_EQ(parse_model_config(R"({"backend": ""})", "f")->backend, "") << "protobuf's default";
  for (const char* name : {"7", "null", "[\"openvino\"]"}) {
    EXPECT_THAT(refusal("{\"backend\": " + std::string(name) + "}"),
                AllOf(HasSubstr("\"backend\": got"), HasSubstr("the name of a backend")));
  }
}

TEST(ModelConfig, NamesFileKeyGotWantedAndTheNearestName) {
  EXPECT_THAT(refusal(R"({"batchsizes": [1]})"),
              AllOf(StartsWith("m/config.json: "), HasSubstr("\"batchsizes\""),
                    HasSubstr("did you mean \"batch_sizes\"?")));
  EXPECT_THAT(refusal(R"({"nothing like it": 1})"),
              HasSubstr("valid: \"precision\" \"batch_sizes\""));
  EXPECT_THAT(refusal(R"({"precision": "fp32"})"),
              AllOf(HasSubstr("got \"fp32\""), HasSubstr("did you mean \"f32\"?")));
  EXPECT_THAT(refusal(R"({"precision": 32})"), AllOf(HasSubstr("got 32"), HasSubstr("wanted")));
}

TEST(ModelConfig, RefusesImpossibleBatchSizes) {
  for (const char* sizes :
       {"1", "[0]", "[-1]", "[1.5]", "[\"1\"]", "[1, 1]", "[4097]", "{}", "[[1]]",
        "[99999999999999999999]", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]"}) {
    EXPECT_THAT(refusal("{\"batch_sizes\": " + std::string(sizes) + "}"),
                AllOf(HasSubstr("\"batch_sizes\""), HasSubstr("wanted a list")));
  }
}

TEST(ModelConfig, NamesTheLineThatIsNotJson) {
  EXPECT_THAT(refusal("{\n\"precision\": \"f32\",\n}"), HasSubstr("line 3 is not JSON"));
  EXPECT_THAT(refusal(""), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{} {}"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("wanted an object"));
}

// Was: an exception that nobody caught, so that one model's file ended the server.
TEST(ModelConfig, RefusesANumberBeyondADoubleWhereverItStands) {
  for (const char* text : {R"({"batch_sizes": [1e400]})", R"({"x": {"y": -1e999}})", "1e400"}) {
    EXPECT_THAT(refusal(text), AllOf(StartsWith("m/config.json: "), HasSubstr("too large")));
  }
}

// Was: taken for the end, so that the text behind it was dropped without a word.
TEST(ModelConfig, RefusesANulByteWhereverItStands) {
  for (const std::string_view text :
       {std::string_view("{}\n\0", 4), std::string_view("{}\n\0{\"precision\": \"bf16\"}", 25)}) {
    EXPECT_THAT(refusal(text), HasSubstr("line 2 is not JSON: it holds a NUL byte"));
  }
}

TEST(ModelConfig, RefusesAKeyGivenTwice) {
  EXPECT_THAT(refusal(R"({"precision": "f32", "precision": "bf16"})"), HasSubstr("given twice"));
}

TEST(ModelConfig, RefusesDeepNestingWithoutOverrunningTheStack) {
  std::string text = "{\"batch_sizes\": ";
  text.append(30'000, '[').append(30'000, ']').append("}");
  EXPECT_THAT(refusal(text), HasSubstr("nested"));
}

}  // namespace
}  // namespace lumen::models
