// ZipMap at a model's end: cut by bytes, and the outputs that the backend then serves; and outputs
// whose declared shapes are not those that come.
#include <lumen/backends/onnxruntime.h>
#include <lumen/models/model_repository.h>

#include <lumen/onnx/graph.h>
#include "backends/onnxruntime/zip_map.h"
#include "support/one_backend.h"
#include "support/source_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <numeric>

namespace lumen::backends::onnxruntime {
namespace {

using models::PendingRequest;
using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;

const std::filesystem::path kFixtures = test::source_path("tests/fixtures/onnxruntime");

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

// Known before there is a session, so that a model is loaded once.
TEST(OnnxFile, TellsWhetherAnInputHasFreeAxes) {
  const auto is_free = [](const std::string& file) {
    const Result<onnx::Model> model = onnx::read_model(std::as_bytes(std::span(file)));
    return model.ok() && onnx::has_free_axes(model->graph);
  };
  EXPECT_TRUE(is_free(file_of("../backend/add_one")));
  EXPECT_TRUE(is_free(file_of("../backend/add_one_free")));
  EXPECT_FALSE(is_free(file_of("../backend/add_one_fixed")));
  EXPECT_FALSE(is_free("this is no model"));
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

class OnnxRuntimeOutputs : public models::OneBackendTest {
 protected:
  OnnxRuntimeOutputs() : OneBackendTest(make_onnxruntime) { open(kFixtures); }

  const models::TensorSpec& output_of(const char* name) {
    return repository->find(name, "")->metadata().outputs[0];
  }
  // `rows` times three numbers that count up.
  std::vector<float> run(models::Instance& on, const char* name, int64_t rows) {
    PendingRequest pending(repository->find(name, ""));
    std::vector<float> values(static_cast<size_t>(rows) * 3);
    std::iota(values.begin(), values.end(), 0.0f);
    pending.add_input(ElementType::kFp32, {rows, 3}, values);
    OneBackendTest::run(on, pending);
    return pending.output<float>(0);
  }
};

TEST_F(OnnxRuntimeOutputs, ProbabilitiesComeAsATensorWithLabels) {
  for (const char* name : {"zip_map_strings", "zip_map_numbers"}) {
    SCOPED_TRACE(name);
    const models::TensorSpec& output = output_of(name);
    EXPECT_EQ(output.name, "probabilities");
    EXPECT_EQ(output.labels.size(), 3u);
    EXPECT_THAT(output.shape.dimensions(), ElementsAre(Shape::kDynamic, 3));
    EXPECT_THAT(run(*instance_of(name), name, 2), ElementsAre(0, 1, 2, 3, 4, 5));
  }
}

// Was: a row count of 1 in the model's document, for any number of rows.
TEST_F(OnnxRuntimeOutputs, AnOutputThatSaysOneRowHasAsManyAsTheInput) {
  EXPECT_EQ(output_of("says_one_row").shape[0], Shape::kDynamic);
  const auto instance = instance_of("says_one_row");
  EXPECT_THAT(run(*instance, "says_one_row", 3), ElementsAre(3, 12, 21));
  EXPECT_THAT(run(*instance, "says_one_row", 1), ElementsAre(3));
}

TEST_F(OnnxRuntimeOutputs, AnOutputThatIsNotOfTheSizeThatItSaysComesWhole) {
  const auto instance = instance_of("says_same_size");
  for (const int64_t rows : {1, 2, 5000}) {
    EXPECT_EQ(run(*instance, "says_same_size", rows).size(), static_cast<size_t>(rows) * 6);
  }
}

}  // namespace
}  // namespace lumen::backends::onnxruntime
