// Keys of Triton's ModelConfig in a model's configuration: followed, held against the model, or
// refused with the key's path, the value got and the values wanted.
#include "models/model_config.h"

#include <lumen/models/stated_form.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace lumen::models {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = VersionPolicy::Kind;

ModelOptions options(std::string_view text) {
  auto parsed = parse_model_config(text, "f");
  EXPECT_TRUE(parsed.ok()) << text << ": " << parsed.status().message();
  return parsed.ok() ? std::move(*parsed) : ModelOptions();
}

std::string refusal(std::string_view text) {
  const auto parsed = parse_model_config(text, "f");
  EXPECT_FALSE(parsed.ok()) << text;
  return std::string(parsed.status().message());
}

TEST(TritonKeys, VersionPoliciesAreThoseOfVersions) {
  EXPECT_EQ(options(R"({"version_policy": {"all": {}}})").versions.kind, Kind::kAll);
  const VersionPolicy latest =
      options(R"({"version_policy": {"latest": {"num_versions": "2"}}})").versions;
  EXPECT_EQ(latest.kind, Kind::kLatest);
  EXPECT_EQ(latest.latest, 2u);
  EXPECT_EQ(options(R"({"version_policy": {"latest": {}}})").versions.latest, 1u);
  const VersionPolicy listed =
      options(R"({"version_policy": {"specific": {"versions": ["3", 1]}}})").versions;
  EXPECT_EQ(listed.kind, Kind::kListed);
  EXPECT_THAT(listed.listed, ElementsAre("1", "3"));
  for (const char* wrong :
       {R"({"version_policy": {"latest": {"num_versions": -1}}})",
        R"({"version_policy": {"specific": {"versions": [1, 1]}}})",
        R"({"version_policy": {"specific": {"versions": 3}}})",
        R"({"version_policy": {"specific": {"versions": []}}})", R"({"version_policy": [1]})",
        R"({"version_policy": {"all": {}, "latest": {}}})"}) {
    EXPECT_THAT(refusal(wrong), HasSubstr("key \"version_policy\": got ")) << wrong;
  }
  EXPECT_THAT(refusal(R"({"version_policy": {"all": {}}, "versions": "all"})"),
              HasSubstr("both given"));
}

TEST(TritonKeys, APlatformNamesTheBackend) {
  EXPECT_EQ(options(R"({"platform": "onnxruntime_onnx"})").backend, "onnxruntime");
  EXPECT_EQ(options(R"({"platform": "openvino"})").backend, "openvino");
  EXPECT_EQ(options(R"({"platform": ""})").backend, "");
  EXPECT_EQ(options(R"({"platform": "onnxruntime_onnx", "backend": "auto"})").backend, "auto");
  EXPECT_THAT(refusal(R"({"platform": "onnxruntime_onnx", "backend": "openvino"})"),
              HasSubstr("as \"backend\" says"));
  EXPECT_THAT(refusal(R"({"platform": 1})"), HasSubstr("key \"platform\": got 1"));
}

TEST(TritonKeys, GroupsOfInstancesAreAddedUp) {
  const auto instances = [](std::string_view text) { return options(text).scheduling.instances; };
  EXPECT_EQ(instances(R"({"instance_group": [{"count": 2, "kind": "KIND_CPU"}]})"), 2u);
  EXPECT_EQ(instances(R"({"instance_group": [{"name": "a"}, {"count": 3, "gpus": []}]})"), 4u);
  EXPECT_EQ(instances(R"({"instance_group": [{"count": 256}, {"count": 256}]})"), 256u);
  EXPECT_EQ(instances(R"({"instance_group": []})"), 0u);
  EXPECT_THAT(refusal(R"({"instance_group": [{"kind": "KIND_GPU"}]})"),
              AllOf(HasSubstr("instance_group.kind"), HasSubstr("\"backend\" names a device")));
  EXPECT_THAT(refusal(R"({"instance_group": [{"count": -1}]})"), HasSubstr("wanted a list"));
  EXPECT_THAT(refusal(R"({"instance_group": {"count": 1}})"), HasSubstr("wanted a list"));
  EXPECT_THAT(refusal(R"({"instance_group": [{}], "instances": 1})"), HasSubstr("keep one"));
}

TEST(TritonKeys, WarmUpRequestsHaveTheRowsOfTheirBatch) {
  const ModelOptions read = options(R"({"max_batch_size": 8, "model_warmup": [{"name": "w",
      "batch_size": 4, "count": 2, "inputs": {"x": {"data_type": "TYPE_FP32", "dims": ["3"],
      "zero_data": true}}}]})");
  ASSERT_EQ(read.warm_up.size(), 1u);
  EXPECT_EQ(read.warm_up[0].count, 2u);
  ASSERT_EQ(read.warm_up[0].inputs.size(), 1u);
  const WarmUpInput& input = read.warm_up[0].inputs[0];
  EXPECT_EQ(input.name, "x");
  EXPECT_EQ(input.data, WarmUpInput::Data::kZeros);
  EXPECT_THAT(input.shape.dimensions(), ElementsAre(4, 3));
  const ModelOptions whole = options(R"({"model_warmup": [{"inputs": {"x": {"data_type":
      "TYPE_INT64", "dims": [2, 3], "random_data": true}}}]})");
  EXPECT_THAT(whole.warm_up.at(0).inputs.at(0).shape.dimensions(), ElementsAre(2, 3));
  EXPECT_THAT(refusal(R"({"model_warmup": [{"inputs": {"x": {"data_type": "TYPE_FP32", "dims": [1],
      "input_data_file": "raw"}}}]})"),
              HasSubstr("warmup[0].inputs[0].data"));
  for (const char* wrong :
       {R"({"model_warmup": [{"inputs": [1]}]})", R"({"model_warmup": [1]})",
        R"({"model_warmup": {}})", R"({"model_warmup": [{"inputs": {"x": 1}}]})",
        R"({"max_batch_size": 1, "model_warmup": [{"inputs": {"x":
                               {"data_type": "TYPE_FP32", "dims": {"a": 1}}}}]})"}) {
    EXPECT_THAT(refusal(wrong), HasSubstr("warmup")) << wrong;
  }
}

TEST(TritonKeys, DefaultsOfKeysThatCanNotBeFollowedAreTaken) {
  EXPECT_TRUE(parse_model_config(R"({"optimization": {"priority": "PRIORITY_DEFAULT",
      "input_pinned_memory": {"enable": true}, "gather_kernel_buffer_threshold": 0},
      "runtime": "", "metric_tags": {}, "batch_input": [], "sequence_batching": null,
      "dynamic_batching": {"preferred_batch_size": [4], "max_queue_delay_microseconds": 100},
      "model_transaction_policy": {"decoupled": false}, "default_model_filename": "model.onnx",
      "parameters": {"precision": {"string_value": "bf16"}}})",
                                 "f")
                  .ok());
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {R"({"ensemble_scheduling": {"step": []}})", "key \"ensemble_scheduling.step\""},
      {R"({"ensemble_scheduling": {"step": [{"model": "a"}]}})", "valid: \"model_name\""},
      {R"({"ensemble_scheduling": {"step": [{"model_name": "a", "input_map": {"x": 1}}]}})",
       "key \"ensemble_scheduling.step[0].input_map\""},
      {R"({"ensemble_scheduling": {"step": [{"model_name": "a"}]}, "instance_group": [{"count": 2}]})",
       "an ensemble runs other models"},
      {R"({"platform": "ensemble"})", "key \"platform\""},
      {R"({"sequence_batching": {"max_sequence_idle_microseconds": 5}})",
       "\"sequence_batching.state\""},
      {R"({"optimization": {"cuda": {"graphs": true}}})", "key \"optimization.cuda\""},
      {R"({"dynamic_batching": {"priority_levels": 2}})", "\"dynamic_batching.priority_levels\""},
      {R"({"model_transaction_policy": {"decoupled": true}})", "one reply a request"},
      {R"({"default_model_filename": "a.onnx"})", "wanted \"model.onnx\""},
      {R"({"parameters": {"threads": {"string_value": "4"}}})", "key \"parameters.threads\""},
      {R"({"parameters": {"precision": {"string_value": "f8"}}})", "key \"parameters.precision\""},
      {R"({"max_batch_size": -1})", "key \"max_batch_size\": got -1"},
      {R"({"name": 1})", "key \"name\": got 1"},
      {R"({"input": [{"name": "x", "data_type": "FP32", "dims": [1]}]})", "input[0].data_type"},
      {R"({"input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-2]}]})", "input[0].dims"},
      {R"({"input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [1], "reshape":
          {"shape": [1]}}]})",
       "input[0].reshape"},
      {R"({"output": {}})", "key \"output\": got {}"},
  };
  for (const auto& [text, words] : wrong) EXPECT_THAT(refusal(text), HasSubstr(words)) << text;
}

ModelMetadata rows_of_three() {
  ModelMetadata metadata;
  metadata.name = "m";
  TensorSpec tensor;
  tensor.name = "x";
  tensor.type = ElementType::kFp32;
  for (const int64_t size : {-1, 3}) EXPECT_TRUE(tensor.shape.append(size));
  metadata.inputs = {tensor};
  tensor.name = "y";
  metadata.outputs = {tensor};
  return metadata;
}

std::string problem(std::string_view text) {
  return std::string(check_stated(options(text).stated, rows_of_three()).message());
}

TEST(TritonKeys, StatedTensorsAreHeldAgainstTheModel) {
  EXPECT_THAT(problem("{}"), IsEmpty());
  EXPECT_THAT(problem(R"({"name": "m", "max_batch_size": 8, "input": [{"name": "x", "data_type":
      "TYPE_FP32", "dims": [3]}], "output": [{"name": "y", "data_type": "TYPE_FP32", "dims":
      ["3"]}]})"),
              IsEmpty());
  EXPECT_THAT(problem(R"({"input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4, 3]}]})"),
              IsEmpty())
      << "a size that is stated fits a free axis";
  EXPECT_THAT(problem(R"({"name": "n"})"), HasSubstr("is of model 'n', and this is model 'm'"));
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {R"({"input": [{"name": "z", "data_type": "TYPE_FP32", "dims": [3]}]})", "none of that name"},
      {R"({"input": [{"name": "x", "data_type": "TYPE_INT8", "dims": [-1, 3]}]})",
       "input 'x' is INT8[-1,3]; the model has FP32[-1,3]"},
      {R"({"input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [3]}]})", "is FP32[3]; the"},
      {R"({"max_batch_size": 1, "output": [{"name": "y", "data_type": "TYPE_FP32", "dims":
          [-1, 3]}]})",
       "output 'y' is FP32[-1,3] behind a free axis of rows"},
      {R"({"input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, -1]}]})", "FP32[-1,3]"},
  };
  for (const auto& [text, words] : wrong) EXPECT_THAT(problem(text), HasSubstr(words)) << text;
}

}  // namespace
}  // namespace lumen::models
