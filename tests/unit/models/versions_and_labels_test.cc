// The versions of a model that are served, the classes of its outputs, and the stamp of its files.
#include <lumen/models/model_repository.h>

#include "support/fake_backend.h"
#include "support/temp_repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace lumen::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class VersionsAndLabels : public testing::Test {
 protected:
  void open() {
    repository.reset();
    auto opened = ModelRepository::open(files.path(), make_fake_backend(control), *counters);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    repository = std::move(*opened);
  }
  std::vector<std::string> labels(size_t output = 0) {
    open();
    const Model* model = repository->find("m", "");
    EXPECT_EQ(model->state(), ModelState::kReady) << model->reason();
    return model->metadata().outputs[output].labels;
  }
  std::string reason() {
    open();
    return repository->find("m", "")->reason();
  }
  std::string stamp() {
    const auto all = repository->on_disk();
    for (const auto& one : *all) {
      if (one.name == "m") return one.stamp;
    }
    return {};
  }

  TempRepository files;
  std::shared_ptr<FakeControl> control = std::make_shared<FakeControl>();
  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<ModelRepository> repository;
};

TEST_F(VersionsAndLabels, TheConfigurationSaysWhichVersionsAreServed) {
  for (const char* version : {"1", "2", "9", "10"}) files.add_model("m", version);
  struct Row {
    const char* config;
    std::vector<std::string> served;
  };
  for (const Row& row : {Row{"{}", {"1", "2", "9", "10"}},
                         {R"({"versions": "all"})", {"1", "2", "9", "10"}},
                         {R"({"versions": "latest"})", {"10"}},
                         {R"({"versions": {"latest": 2}})", {"9", "10"}},
                         {R"({"versions": {"latest": 200}})", {"1", "2", "9", "10"}},
                         {R"({"versions": [9, 1]})", {"1", "9"}}}) {
    files.write("m/config.json", row.config);
    open();
    EXPECT_EQ(repository->versions("m"), row.served) << row.config;
  }
}

TEST_F(VersionsAndLabels, AListedVersionThatIsNotThereIsUnavailable) {
  files.add_model("m", "1");
  files.write("m/config.json", R"({"versions": [1, 7]})");
  open();
  EXPECT_EQ(repository->find("m", "1")->state(), ModelState::kReady);
  EXPECT_THAT(repository->find("m", "7")->reason(), HasSubstr("there is no folder"));
}

TEST_F(VersionsAndLabels, WrongVersionsAreNamed) {
  files.add_model("m");
  for (const char* wrong : {"\"newest\"", "[]", "[0]", "[1,1]", "[\"1\"]", "{\"latest\": 0}", "3",
                            "{\"latest\": 1, \"a\": 2}", "{}", "null", "[1.5]", "[-1]"}) {
    files.write("m/config.json", std::string(R"({"versions": )") + wrong + "}");
    EXPECT_THAT(reason(), HasSubstr("\"versions")) << wrong;
  }
}

TEST_F(VersionsAndLabels, LinesOfLabelsTxtAreTheClassesOfAnOutputOfThatSize) {
  files.add_model("m");
  EXPECT_THAT(labels(), IsEmpty());
  files.write("m/labels.txt", "cat\r\ndog\n\nbird, of prey");
  EXPECT_THAT(labels(), ElementsAre("cat", "dog", "", "bird, of prey"));
  files.write("m/1/labels.txt", "a\nb\nc\nd\n");
  EXPECT_THAT(labels(), ElementsAre("a", "b", "c", "d")) << "the version's own";
  files.write("m/config.json", R"({"labels": {"y": ["1", "2", "3", "4"]}})");
  EXPECT_THAT(labels(), ElementsAre("1", "2", "3", "4")) << "the configuration's word";
}

TEST_F(VersionsAndLabels, LabelsThatFitNoOutputMakeTheModelUnavailable) {
  files.add_model("m");
  files.write("m/labels.txt", "cat\ndog\n");
  EXPECT_THAT(reason(), HasSubstr("labels.txt has 2 lines, but no output has a last axis"));
  files.write("m/labels.txt", "");
  EXPECT_THAT(reason(), HasSubstr("is empty"));
  files.write("m/labels.txt", "\xff\n\n\n\n");
  EXPECT_THAT(reason(), HasSubstr("is not UTF-8"));
  files.write("m/labels.txt", std::string(size_t{2} << 20, '\n'));
  EXPECT_THAT(reason(), HasSubstr("larger than"));
  std::filesystem::remove(files.path() / "m/labels.txt");
  files.write("m/config.json", R"({"labels": {"z": ["1", "2", "3", "4"]}})");
  EXPECT_THAT(reason(), HasSubstr("no output 'z'"));
  files.write("m/config.json", R"({"labels": {"y": ["1"]}})");
  EXPECT_THAT(reason(), HasSubstr("got 1 classes, wanted 4"));
  for (const char* wrong : {"[]", "{\"y\": []}", "{\"y\": [1]}", "{\"y\": \"a\"}", "null"}) {
    files.write("m/config.json", std::string(R"({"labels": )") + wrong + "}");
    EXPECT_THAT(reason(), HasSubstr("\"labels\"")) << wrong;
  }
}

TEST_F(VersionsAndLabels, AFreeLastAxisTakesTheLinesWhereItIsTheOnlyOutput) {
  Shape free;
  ASSERT_TRUE(free.append(Shape::kDynamic) && free.append(Shape::kDynamic));
  control->inputs = {{"x", ElementType::kFp32, free}};
  control->outputs = {{"y", ElementType::kFp32, free}};
  files.add_model("m");
  files.write("m/labels.txt", "a\nb\n");
  EXPECT_THAT(labels(), ElementsAre("a", "b"));
  control->inputs.push_back({"x2", ElementType::kFp32, free});
  control->outputs.push_back({"y2", ElementType::kFp32, free});
  EXPECT_THAT(reason(), HasSubstr("no output has a last axis of that size"));
}

TEST_F(VersionsAndLabels, TheStampDiffersOnceAnyFileOfTheVersionHasChanged) {
  files.add_model("m");
  files.write("m/1/weights.bin", "w");
  files.write("m/README.md", "text");
  open();
  const std::string first = stamp();
  EXPECT_EQ(first, stamp()) << "looking changes nothing";
  EXPECT_EQ(repository->find("m", "1")->stamp(), first);
  std::vector<std::string> seen = {first};
  for (const char* file : {"m/1/model.onnx", "m/1/weights.bin", "m/config.json", "m/labels.txt"}) {
    files.write(file, "{\"weight\": 1} and more");
    const std::string now = stamp();
    EXPECT_EQ(std::ranges::count(seen, now), 0) << file;
    seen.push_back(now);
  }
  // The same text again, in a file that took its place.
  files.write("m/1/other", "w");
  std::filesystem::rename(files.path() / "m/1/other", files.path() / "m/1/weights.bin");
  EXPECT_EQ(std::ranges::count(seen, stamp()), 0);
  EXPECT_EQ(repository->find("m", "1")->stamp(), first) << "that of the load";
}

}  // namespace
}  // namespace lumen::models
