// The proof that a graph's rows are independent, at its edges. Random graphs against ONNX's
// reference are in tests/integration/test_row_independence.py.
#include "models/row_independence.h"

#include "support/onnx_graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace lumen::models {
namespace {

using onnx::test::integer;
using onnx::test::integers_of;
using testing::HasSubstr;
using testing::IsEmpty;

class RowIndependenceTest : public testing::Test {
 protected:
  RowIndependenceTest() {
    model.opsets[""] = 17;
    model.graph.inputs = {onnx::test::value("x", onnx::kFloat, {-1, 6, 4})};
    model.graph.outputs = {onnx::test::value("y", onnx::kFloat, {-1})};
  }
  void add(std::string type, std::vector<std::string> inputs, std::string output = "y",
           std::vector<onnx::Attribute> attributes = {}) {
    model.graph.nodes.push_back(onnx::test::node(std::move(type), std::move(inputs),
                                                 std::move(output), std::move(attributes)));
  }
  void add_integers(std::string name, std::vector<int64_t> numbers) {
    model.graph.initializers.push_back(onnx::test::integers(std::move(name), std::move(numbers)));
  }
  void add_numbers(std::string name, std::vector<int64_t> sizes) {
    onnx::Tensor& tensor = model.graph.initializers.emplace_back();
    tensor.name = std::move(name);
    tensor.type = onnx::kFloat;
    tensor.dims = std::move(sizes);
  }
  [[nodiscard]] std::string why() const { return why_rows_may_meet(model); }

  onnx::Model model;
};

TEST_F(RowIndependenceTest, OneThatIsNotKnownIsNamed) {
  add("Unheard", {"x"});
  EXPECT_EQ(why(), "Unheard 'y' is not known to work row by row");
}

TEST_F(RowIndependenceTest, AnOutputThatDoesNotDependOnTheRowsIsNone) {
  add_numbers("c", {4});
  add("Relu", {"c"});
  EXPECT_THAT(why(), HasSubstr("output 'y' is not known to have the rows"));
}

TEST_F(RowIndependenceTest, AConstantWithASizeInTheAxisOfRowsWidensOneRowToMany) {
  add_numbers("c", {3, 1, 1});
  add("Add", {"x", "c"});
  EXPECT_THAT(why(), HasSubstr("a constant with a size in the axis of rows"));
  model.graph.initializers[0].dims = {1, 6, 1};
  EXPECT_THAT(why(), IsEmpty());
}

TEST_F(RowIndependenceTest, AReductionOfAllAxesMixesRowsAndOneOfOthersDoesNot) {
  add("ReduceMax", {"x"});
  EXPECT_THAT(why(), HasSubstr("works along the axis that has the rows"));
  model.graph.nodes[0].attributes = {integers_of("axes", {1, -1})};
  EXPECT_THAT(why(), IsEmpty());
  model.graph.nodes[0].attributes = {integers_of("axes", {-3})};
  EXPECT_THAT(why(), HasSubstr("works along the axis that has the rows"));
}

TEST_F(RowIndependenceTest, SoftmaxOfOldOpsetsTakesAllAxesFromItsOwnOn) {
  model.opsets[""] = 11;
  add("Softmax", {"x"}, "y", {integer("axis", 0)});
  EXPECT_THAT(why(), HasSubstr("works along"));
  model.graph.nodes[0].attributes = {integer("axis", 1)};
  EXPECT_THAT(why(), IsEmpty());
}

TEST_F(RowIndependenceTest, AReshapeKeepsRowsApartOnlyWhereWholeRowsStayTogether) {
  add_integers("shape", {-1, 12});
  add("Reshape", {"x", "shape"}, "two_of_each");
  add_integers("back", {-1, 24});
  add("Reshape", {"two_of_each", "back"});
  EXPECT_THAT(why(), IsEmpty());
  model.graph.initializers[0].int64_data = {-1, 9};  // 24 numbers of a row are no multiple
  EXPECT_THAT(why(), HasSubstr("is not known to keep rows apart"));
  model.graph.initializers[0].int64_data = {4, -1};
  EXPECT_THAT(why(), HasSubstr("is not known to keep rows apart"));
}

TEST_F(RowIndependenceTest, AnOutputWithSeveralPlacesForEachRowIsNotTheRows) {
  add_integers("shape", {-1, 12});
  add("Reshape", {"x", "shape"});
  EXPECT_THAT(why(), HasSubstr("output 'y' is not known to have the rows"));
}

TEST_F(RowIndependenceTest, AShapeThatIsMadeOfTheNumberOfRowsIsFollowed) {
  add_integers("first", {0});
  add_integers("rest", {-1});
  add("Shape", {"x"}, "shape");
  add("Gather", {"shape", "first"}, "rows");
  add("Concat", {"rows", "rest"}, "target", {integer("axis", 0)});
  add("Reshape", {"x", "target"});
  EXPECT_THAT(why(), IsEmpty());
}

TEST_F(RowIndependenceTest, TheNumberOfRowsAsANumberIsNot) {
  add_integers("first", {0});
  add("Shape", {"x"}, "shape");
  add("Gather", {"shape", "first"}, "rows");
  add("Cast", {"rows"}, "number", {integer("to", 1)});
  add("Div", {"x", "number"});
  EXPECT_THAT(why(), HasSubstr("computes with the number of rows"));
}

TEST_F(RowIndependenceTest, RowsTimesRowsMixThem) {
  add("Transpose", {"x"}, "turned", {integers_of("perm", {1, 2, 0})});
  add("Transpose", {"x"}, "other", {integers_of("perm", {1, 0, 2})});
  add("MatMul", {"turned", "other"});
  EXPECT_THAT(why(), HasSubstr("works along the axis that has the rows"));
}

TEST_F(RowIndependenceTest, ASqueezeOfAllAxesTakesTheRowsWhereThereIsOne) {
  add("Squeeze", {"x"});
  EXPECT_THAT(why(), HasSubstr("where there is one row"));
}

TEST_F(RowIndependenceTest, StatisticsOfTheRowsMixThem) {
  for (const char* name : {"scale", "bias", "mean", "variance"}) add_numbers(name, {6});
  add("BatchNormalization", {"x", "scale", "bias", "mean", "variance"});
  EXPECT_THAT(why(), IsEmpty());
  model.graph.nodes[0].attributes = {integer("training_mode", 1)};
  EXPECT_THAT(why(), HasSubstr("takes its statistics from the rows"));
}

TEST_F(RowIndependenceTest, AFunctionOfTheFileWithTheNameOfAnOperatorIsNotFollowed) {
  add("Relu", {"x"});
  EXPECT_THAT(why(), IsEmpty());
  model.functions = {":Relu"};
  EXPECT_THAT(why(), HasSubstr("is a function of the file"));
}

TEST_F(RowIndependenceTest, ATableOfOneAxisIsOneRow) {
  model.graph.inputs = {onnx::test::value("x", onnx::kFloat, {-1})};
  model.opsets["ai.onnx.ml"] = 3;
  add("Scaler", {"x"});
  model.graph.nodes[0].domain = "ai.onnx.ml";
  EXPECT_THAT(why(), HasSubstr("has a form that is not followed"));
}

}  // namespace
}  // namespace lumen::models
