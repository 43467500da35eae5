// The setting execution_providers: the forms that it takes, and each that it refuses with got and
// wanted.
#include <lumen/models/execution_provider.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace lumen::models {
namespace {

using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

std::string refusal(const std::string& json) {
  const auto parsed = parse_execution_providers(json);
  EXPECT_FALSE(parsed.ok()) << json;
  return parsed.ok() ? "" : std::string(parsed.status().message());
}

TEST(ExecutionProviders, TakesNameLibraryDeviceAndOptions) {
  EXPECT_TRUE(parse_execution_providers("[]")->empty());
  const auto parsed = parse_execution_providers(
      R"([{"name": "cuda", "device_id": 1, "options": {"use_tf32": 1, "a": "b", "c": true}},)"
      R"( {"name": "npu-2", "library": "/opt/npu.so"}])");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  ASSERT_EQ(parsed->size(), 2u);
  EXPECT_EQ((*parsed)[0].name, "cuda");
  EXPECT_EQ((*parsed)[0].device_id, 1u);
  EXPECT_THAT((*parsed)[0].options,
              UnorderedElementsAre(Pair("use_tf32", "1"), Pair("a", "b"), Pair("c", "true")));
  EXPECT_EQ((*parsed)[1].name, "npu-2");
  EXPECT_EQ((*parsed)[1].library, "/opt/npu.so");
}

TEST(ExecutionProviders, SaysWhatItGotAndWanted) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "got '', which is no JSON, wanted a list"},
      {"{}", "got an object, wanted a list"},
      {"[1]", "got 1, wanted objects"},
      {"[{}]", "wanted a \"name\" in it"},
      {R"([{"name": "GPU 1"}])", "got \"GPU 1\" as \"name\", wanted 1 to 32 of a-z"},
      {R"([{"name": 7}])", "got 7 as \"name\""},
      {R"([{"name": "openvino", "library": "x"}])", "which is a backend already"},
      {R"([{"name": "auto", "library": "x"}])", "which is a backend already"},
      {R"([{"name": "npu"}])", "without \"library\", wanted the path of a plugin"},
      {R"([{"name": "cuda", "library": "x"}])", "\"library\" for cuda"},
      {R"([{"name": "npu", "library": ""}])", "as \"library\", wanted the path"},
      {R"([{"name": "cuda", "device_id": -1}])", "got -1 as \"device_id\""},
      {R"([{"name": "cuda", "device_id": 256}])", "got 256 as \"device_id\""},
      {R"([{"name": "cuda", "options": []}])", "got a list as \"options\""},
      {R"([{"name": "cuda", "options": {"a": {}}}])", "got an object as option \"a\""},
      {R"([{"name": "cuda", "devices": 1}])", "the key \"devices\""},
      {R"([{"name": "cuda", "devise_id": 1}])", "did you mean \"device_id\"?"},
      {R"([{"name": "cuda"}, {"name": "cuda"}])", "got \"cuda\" twice"},
      {"[{},{},{},{},{},{},{},{},{}]", "wanted a list of at most 8"}};
  for (const auto& [json, wanted] : cases) EXPECT_THAT(refusal(json), HasSubstr(wanted)) << json;
}

// With a captured graph ONNX Runtime would read the tensors of another request.
TEST(ExecutionProviders, OptionsByWhichAnswersWouldBeWrongAreRefused) {
  for (const char* key : {"enable_cuda_graph", "trt_cuda_graph_enable", "has_user_compute_stream",
                          "user_compute_stream", "gpu_external_alloc"}) {
    const std::string name = std::string(R"([{"name": "cuda", "options": {")") + key;
    for (const char* value : {"\"1\"", "1", "true"}) {
      EXPECT_THAT(refusal(name + "\": " + value + "}}]"),
                  testing::AllOf(HasSubstr(key), HasSubstr("wanted \"0\" or none")));
    }
    EXPECT_TRUE(parse_execution_providers(name + "\": 0}}]").ok());
  }
}

TEST(ExecutionProviders, ADeepTextIsRefusedAndNotPrinted) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(refusal(deep), HasSubstr("got a list, wanted objects"));
}

}  // namespace
}  // namespace lumen::models
