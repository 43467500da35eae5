// ZipMap at a model's end: cut by bytes, and what the backend then serves; and outputs whose declared
// shapes are not those that come.
#include <lumen/backends/onnxruntime.h>
#include <lumen/engine/model_repository.h>

#include "backends/onnxruntime/zip_map.h"
#include "support/pending_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace lumen::backends::onnxruntime {
namespace {

using engine::Model;
using engine::ModelState;
using engine::PendingRequest;
using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;

const std::filesystem::path kFixtures =
    std::filesystem::path(LUMEN_SOURCE_DIR) / "tests/fixtures/onnxruntime";

std::string file_of(const char* model) {
  std::ifstream stream(kFixtures / model / "1/model.onnx", std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}
std::optional<CutModel> cut(const std::string& file) {
  return cut_zip_maps(std::as_bytes(std::span(file)));
}

TEST(ZipMap, IsCutAndItsLabelsAreRead) {
  const auto strings = cut(file_of("zip_map_strings"));
  ASSERT_TRUE(strings);
  EXPECT_THAT(strings->labels,
              UnorderedElementsAre(Pair("probabilities", ElementsAre("red", "green", "blue"))));
  const auto numbers = cut(file_of("zip_map_numbers"));
  ASSERT_TRUE(numbers);
  EXPECT_THAT(numbers->labels,
              UnorderedElementsAre(Pair("probabilities", ElementsAre("-1", "0", "300"))));
}

TEST(ZipMap, AModelWithoutOneIsLeftAlone) {
  EXPECT_FALSE(cut(file_of("says_one_row")));
  EXPECT_FALSE(cut(""));
  EXPECT_FALSE(cut("this is no model"));
}

TEST(ZipMap, AFileThatEndsAnywhereOrHasAnyByteWrongIsNoTrap) {
  const std::string file = file_of("zip_map_strings");
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(cut(file.substr(0, size)) && size + 30 < file.size()) << size;
  }
  for (size_t i = 0; i < file.size(); ++i) {
    for (const unsigned value : {0x00u, 0x7Fu, 0x80u, 0xFFu}) {
      std::string wrong = file;
      wrong[i] = static_cast<char>(value);
      (void)cut(wrong);  // a verdict; ASan looks at how it is reached
    }
  }
}

class OnnxRuntimeOutputs : public testing::Test {
 protected:
  Model& model(const char* name) {
    if (repository == nullptr) {
      auto opened = engine::ModelRepository::open(kFixtures, make_onnxruntime(), *counters);
      EXPECT_TRUE(opened.ok()) << opened.status().message();
      repository = std::move(*opened);
    }
    Model* found = repository->find(name, "");
    EXPECT_EQ(found->state(), ModelState::kReady) << found->reason();
    return *found;
  }
  static std::vector<float> run(engine::Instance& on, Model& model, int64_t rows) {
    PendingRequest pending(&model);
    std::vector<float> values(static_cast<size_t>(rows) * 3);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    pending.add_input(ElementType::kFp32, {rows, 3}, values);
    EXPECT_EQ(on.start(pending.request, nullptr), engine::StartOutcome::kDone);
    EXPECT_TRUE(pending.request.status.ok()) << pending.request.status.message();
    return pending.output<float>(0);
  }
  std::unique_ptr<engine::Instance> instance_of(Model& model) {
    return std::move(model.loaded()->create_instance({}).value());
  }

  std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<engine::ModelRepository> repository;
};

TEST_F(OnnxRuntimeOutputs, ProbabilitiesComeAsATensorWithLabels) {
  for (const char* name : {"zip_map_strings", "zip_map_numbers"}) {
    SCOPED_TRACE(name);
    Model& zip = model(name);
    const engine::TensorSpec& output = zip.metadata().outputs[0];
    EXPECT_EQ(output.name, "probabilities");
    EXPECT_EQ(output.labels.size(), 3u);
    EXPECT_THAT(output.shape.dimensions(), ElementsAre(Shape::kDynamic, 3));
    EXPECT_THAT(run(*instance_of(zip), zip, 2), ElementsAre(0, 1, 2, 3, 4, 5));
  }
}

// Was: a row count of 1 in the model's document, for any number of rows.
TEST_F(OnnxRuntimeOutputs, AnOutputThatSaysOneRowHasAsManyAsTheInput) {
  Model& sums = model("says_one_row");
  EXPECT_EQ(sums.metadata().outputs[0].shape[0], Shape::kDynamic);
  const auto instance = instance_of(sums);
  EXPECT_THAT(run(*instance, sums, 3), ElementsAre(3, 12, 21));
  EXPECT_THAT(run(*instance, sums, 1), ElementsAre(3));
}

TEST_F(OnnxRuntimeOutputs, AnOutputThatIsNotOfTheSizeThatItSaysComesWhole) {
  Model& twice = model("says_same_size");
  const auto instance = instance_of(twice);
  for (const int64_t rows : {1, 2, 5000}) {
    EXPECT_EQ(run(*instance, twice, rows).size(), static_cast<size_t>(rows) * 6);
  }
}

}  // namespace
}  // namespace lumen::backends::onnxruntime
