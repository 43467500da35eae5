// The repository on disk: the entries that are found and skipped, and how broken ones are named.
#include <lumen/models/model_repository.h>

#include "support/fake_backend.h"
#include "support/temp_repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lumen::models {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ModelRepositoryTest : public testing::Test {
 protected:
  void open(const LoadOptions& options = {}) {
    repository.reset();  // it has counters that the next one needs
    auto opened =
        ModelRepository::open(files.path(), make_fake_backend(control), *counters, options);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    repository = std::move(*opened);
  }
  void expect_unavailable(const char* name, const char* version,
                          const testing::Matcher<std::string>& reason) {
    const Model* model = repository->find(name, version);
    ASSERT_NE(model, nullptr) << name;
    EXPECT_EQ(model->state(), ModelState::kUnavailable);
    EXPECT_THAT(model->reason(), reason);
  }

  TempRepository files;
  std::shared_ptr<FakeControl> control = std::make_shared<FakeControl>();
  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<ModelRepository> repository;
};

TEST_F(ModelRepositoryTest, FindsModelsByNameAndVersion) {
  files.add_model("b");
  files.add_model("a", "2");
  files.add_model("a", "10");
  open();
  ASSERT_EQ(repository->models().size(), 3u);
  EXPECT_EQ(repository->find("a", "2")->metadata().version, "2");
  EXPECT_EQ(repository->find("a", "3"), nullptr);
  EXPECT_EQ(repository->find("c", ""), nullptr);
  EXPECT_EQ(repository->find("", ""), nullptr);
}

TEST_F(ModelRepositoryTest, TakesTheHighestVersionAsANumber) {
  files.add_model("a", "9");
  files.add_model("a", "10");
  open();
  EXPECT_EQ(repository->find("a", "")->metadata().version, "10");
  EXPECT_THAT(repository->versions("a"), ElementsAre("9", "10"));
}

TEST_F(ModelRepositoryTest, GivesEachModelAnIndexAndCountersOfItsOwn) {
  files.add_model("a");
  files.add_model("b");
  open();
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(repository->models()[i]->index(), i);
    telemetry::CounterWriter(*counters).add(i, "inference", i + 1);
    EXPECT_EQ(repository->models()[i]->counters().total("inference"), i + 1);
  }
}

TEST_F(ModelRepositoryTest, SkipsFilesAndDirectoriesThatHoldNoVersion) {
  files.write("README.md", "text");
  files.write("tools/make.py", "text");
  files.write(".git/1/model.onnx", "text");
  files.write("__pycache__/x.pyc", "text");
  files.add_model("a");
  open();
  EXPECT_EQ(repository->models().size(), 1u);
}

// As Hugging Face's and other tools leave them: nothing was said, and requests got "not in the
// repository".
TEST_F(ModelRepositoryTest, AFileBesideNoVersionIsUnavailableWithTheMoveThatMendsIt) {
  files.write("resnet/model.onnx", "x");
  files.write("loose.onnx", "x");
  open();
  ASSERT_EQ(repository->models().size(), 2u);
  expect_unavailable("resnet", "", HasSubstr("resnet/1/model.onnx"));
  expect_unavailable("loose", "", HasSubstr("loose/1/model.onnx"));
}

TEST_F(ModelRepositoryTest, AFileBesideAVersionIsLeftAlone) {
  files.add_model("m");
  files.write("m/model.onnx", "x");
  open();
  ASSERT_EQ(repository->models().size(), 1u);
  EXPECT_EQ(repository->find("m", "")->state(), ModelState::kReady);
}

TEST_F(ModelRepositoryTest, ARepositoryThatIsOneLevelOffSaysWhichFolderIsWanted) {
  files.write("1/model.onnx", "x");
  files.write("deeper/m/1/model.onnx", "x");
  open();
  expect_unavailable("1", "", HasSubstr("is a version of a model"));
  expect_unavailable("deeper", "", AllOf(HasSubstr("holds the model 'm'"), HasSubstr("deeper as")));
}

TEST_F(ModelRepositoryTest, AcceptsAnEmptyDirectoryAndRefusesAMissingOne) {
  open();
  EXPECT_TRUE(repository->models().empty());
  const auto missing =
      ModelRepository::open(files.path() / "none", make_fake_backend(control), *counters);
  EXPECT_THAT(std::string(missing.status().message()),
              AllOf(HasSubstr("none"), HasSubstr("No such file")));
}

TEST_F(ModelRepositoryTest, NamesTheReasonOfAModelThatDoesNotLoadAndServesTheOthers) {
  control->models_that_fail_to_load = {"bad"};
  files.add_model("bad");
  files.add_model("good");
  open();
  expect_unavailable("bad", "1", HasSubstr("fails to load"));
  EXPECT_EQ(repository->find("good", "")->state(), ModelState::kReady);
}

TEST_F(ModelRepositoryTest, RefusesVersionsThatAreNotPlainNumbers) {
  for (const char* version : {"v1", "01", "0", "1234567890123456789", "-1", "1.0"}) {
    files.add_model("a", version);
  }
  open();
  EXPECT_EQ(repository->models().size(), 6u);
  for (const auto& model : repository->models()) {
    EXPECT_EQ(model->state(), ModelState::kUnavailable);
    EXPECT_THAT(model->reason(),
                AllOf(HasSubstr("'" + model->metadata().version + "'"), HasSubstr("whole number")));
  }
}

TEST_F(ModelRepositoryTest, RefusesNamesThatAUrlCouldNotAddress) {
  files.add_model("with space");
  files.add_model("tab\tname");
  files.add_model("caf\xc3\xa9");
  open();
  ASSERT_EQ(repository->models().size(), 3u);
  for (const auto& model : repository->models()) {
    EXPECT_THAT(model->reason(), HasSubstr("model name"));
  }
  // The form that a JSON reply can carry.
  EXPECT_EQ(repository->models()[0]->metadata().name, "caf??");
}

// As Kubernetes mounts a ConfigMap (..data), and as a volume is put together by links.
TEST_F(ModelRepositoryTest, FollowsSymbolicLinksThatStayBelowTheRepository) {
  files.add_model("real");
  files.write("mounted/1/..2026_01/model.onnx", "x");
  std::filesystem::create_directory_symlink("..2026_01", files.path() / "mounted/1/..data");
  std::filesystem::create_symlink("..data/model.onnx", files.path() / "mounted/1/model.onnx");
  std::filesystem::create_directory(files.path() / "version");
  std::filesystem::create_directory_symlink("../real/1", files.path() / "version/1");
  std::filesystem::create_directory_symlink("real", files.path() / "model");
  files.add_model("absolute");
  std::filesystem::remove(files.path() / "absolute/1/model.onnx");
  std::filesystem::create_symlink(files.path() / "real/1/model.onnx",
                                  files.path() / "absolute/1/model.onnx");
  open();
  for (const char* name : {"real", "mounted", "version", "model", "absolute"}) {
    ASSERT_NE(repository->find(name, "1"), nullptr) << name;
    EXPECT_EQ(repository->find(name, "1")->state(), ModelState::kReady)
        << name << ": " << repository->find(name, "1")->reason();
  }
}

TEST_F(ModelRepositoryTest, FollowsSymbolicLinksOutOfTheRepositoryOnlyWhereThatIsSaid) {
  const TempRepository elsewhere;
  elsewhere.add_model("other");
  elsewhere.write("config.json", "{}");
  const std::filesystem::path other = elsewhere.path() / "other";
  for (const char* name : {"file", "config"}) files.add_model(name);
  std::filesystem::remove(files.path() / "file/1/model.onnx");
  std::filesystem::create_symlink(other / "1/model.onnx", files.path() / "file/1/model.onnx");
  std::filesystem::create_symlink(elsewhere.path() / "config.json",
                                  files.path() / "config/config.json");
  std::filesystem::create_directory(files.path() / "version");
  std::filesystem::create_directory_symlink(other / "1", files.path() / "version/1");
  std::filesystem::create_directory_symlink(other, files.path() / "model");
  files.write("weights/1/model.xml", "x");
  std::filesystem::create_symlink(other / "1/model.onnx", files.path() / "weights/1/model.bin");
  open();
  for (const char* name : {"file", "config", "version", "model", "weights"}) {
    expect_unavailable(name, "", HasSubstr("leads out of the model repository"));
    expect_unavailable(name, "", HasSubstr("--follow-links"));
  }
  open({.cache = {}, .follow_links = true});
  for (const char* name : {"file", "config", "version", "model", "weights"}) {
    ASSERT_NE(repository->find(name, ""), nullptr) << name;
    EXPECT_EQ(repository->find(name, "")->state(), ModelState::kReady) << name;
  }
}

TEST_F(ModelRepositoryTest, ALinkThatLeadsNowhereIsNamed) {
  files.add_model("file");
  std::filesystem::remove(files.path() / "file/1/model.onnx");
  std::filesystem::create_symlink("gone.onnx", files.path() / "file/1/model.onnx");
  std::filesystem::create_directory(files.path() / "version");
  std::filesystem::create_symlink("gone", files.path() / "version/1");
  std::filesystem::create_symlink("gone", files.path() / "model");
  for (const bool follow_links : {false, true}) {
    open({.cache = {}, .follow_links = follow_links});
    for (const char* name : {"file", "version", "model"}) {
      expect_unavailable(name, "", HasSubstr("leads nowhere"));
    }
  }
}

TEST_F(ModelRepositoryTest, WantsExactlyOneModelFile) {
  files.write("none/1/weights.bin", "x");
  files.write("both/1/model.onnx", "x");
  files.write("both/1/model.xml", "x");
  files.write("three/1/model.onnx", "x");
  files.write("three/1/model.py", "x");
  files.write("empty/1/model.onnx", "");
  std::filesystem::create_directories(files.path() / "folder/1/model.onnx");
  open();
  expect_unavailable("none", "1", HasSubstr("holds no file of a model"));
  expect_unavailable("both", "1", HasSubstr("holds model.onnx and model.xml; wanted one of"));
  expect_unavailable("three", "1", HasSubstr("holds model.onnx and model.py; wanted one of"));
  expect_unavailable("empty", "1", HasSubstr("is empty"));
  expect_unavailable("folder", "1", HasSubstr("regular file"));
}

TEST_F(ModelRepositoryTest, NamesTheFileAndKeyOfAWrongConfig) {
  files.add_model("a");
  files.write("a/config.json", R"({"precison": "f32"})");
  files.add_model("b");
  open();
  expect_unavailable("a", "1",
                     AllOf(HasSubstr("a/config.json"), HasSubstr("\"precison\""),
                           HasSubstr("did you mean \"precision\"?")));
  EXPECT_EQ(repository->find("b", "")->state(), ModelState::kReady);
}

TEST_F(ModelRepositoryTest, RefusesAConfigThatIsHuge) {
  files.add_model("a");
  files.write("a/config.json", std::string(70'000, ' '));
  open();
  expect_unavailable("a", "1", HasSubstr("larger than 65536 bytes"));
}

TEST_F(ModelRepositoryTest, RefusesAModelWithMoreTensorsThanARequestMayHave) {
  control->inputs.assign(limits::kMaxTensors + 1, control->inputs[0]);
  files.add_model("a");
  open();
  expect_unavailable("a", "1", HasSubstr("has 4097 inputs; wanted 0 to 4096"));
}

TEST_F(ModelRepositoryTest, RefusesAnInputWithANameThatNoRequestCanCarry) {
  const std::string most(limits::kMaxNameBytes, 'n');
  files.add_model("a");
  for (const std::string& name : {std::string(), most + "n", std::string("caf\xe9")}) {
    control->inputs[0].name = name;
    open();
    expect_unavailable("a", "1",
                       AllOf(HasSubstr("the name of input 0 has " + std::to_string(name.size())),
                             HasSubstr("wanted 1 to 128 bytes of UTF-8; rename it")));
  }
  for (const std::string& name : {most, std::string("caf\u00e9")}) {
    control->inputs[0].name = name;
    open();
    EXPECT_EQ(repository->find("a", "")->state(), ModelState::kReady) << name;
  }
}

TEST_F(ModelRepositoryTest, RefusesMoreVersionsThanThereAreCounters) {
  for (size_t i = 0; i <= limits::kMaxModels; ++i) files.add_model("a", std::to_string(i + 1));
  const auto opened = ModelRepository::open(files.path(), make_fake_backend(control), *counters);
  EXPECT_EQ(opened.status().code(), Code::kTooLarge);
}

}  // namespace
}  // namespace lumen::models
