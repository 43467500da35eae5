// Which operators of a graph a table allows, and which a backend is not given. Graphs are made by
// hand.
#include "models/operator_table.h"

#include "support/onnx_graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lumen::models {
namespace {

using onnx::test::integer;
using onnx::test::integers;
using onnx::test::node;
using onnx::test::value;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr OperatorRule kRules[] = {
    {"", "Mul", 7, 20, "FP32", "", "", 0, 0, 2, 1},
    {"", "Concat", 7, 20, "FP32", "", "axis", 0, 0, 65535, 1},
    {"", "Softmax", 11, 12, "FP32", "", "+axis=-1", 0, 0, 1, 1},
    {"", "Softmax", 13, 20, "FP32", "", "axis", 0, 0, 1, 1},
    {"", "Reshape", 7, 20, "FP32", "", "allowzero=0", 2, 0, 2, 1},
    {"", "Slice", 10, 20, "FP32", "", "", 0x1e, 0x6, 5, 1},
    {"", "Greater", 7, 20, "FP32", "BOOL", "", 0, 0, 2, 1},
    {"", "Pool", 7, 20, "FP32", "", "mode=a|b", 0, 0, 1, 1},
};
constexpr OperatorException kExceptions[] = {
    {"", "LSTM", "", 0, "it ignores peepholes"},
    {"", "Range", "INT32 INT64", 7, "a delta of 0 ends the process"},
    {"", "Div", "INT64", 2, "the least by -1", -1},
};
constexpr OperatorTable kTable = {
    .made_with = "a version", .version = "1", .rules = kRules, .exceptions = kExceptions};

class OperatorTableTest : public testing::Test {
 protected:
  OperatorTableTest() {
    model.opsets[""] = 17;
    model.graph.inputs = {value("x", onnx::kFloat), value("id", onnx::kInt64)};
    model.graph.outputs = {value("y", onnx::kFloat)};
  }
  onnx::Node& add(std::string type, std::vector<std::string> inputs, std::string output = "y") {
    return model.graph.nodes.emplace_back(
        node(std::move(type), std::move(inputs), std::move(output)));
  }
  [[nodiscard]] std::vector<std::string> not_known() const {
    return compare_operators(kTable, model).not_known;
  }
  [[nodiscard]] std::vector<std::string> unsafe() const {
    return compare_operators(kTable, model).unsafe;
  }

  onnx::Model model;
};

TEST_F(OperatorTableTest, AnOperatorOfTheTableIsKnownForItsTypesOnly) {
  add("Mul", {"x", "x"});
  EXPECT_THAT(not_known(), IsEmpty());
  add("Mul", {"id", "id"}, "square");
  add("Mul", {"square", "square"}, "more");  // the same kind again
  EXPECT_THAT(not_known(), ElementsAre("Mul of INT64"));
}

// Of a version without recorded rows nothing compares the answers of these.
TEST_F(OperatorTableTest, StepsTo8BitsNeedNotBeKnownWhereRecordedRowsJudgeAndOthersMust) {
  model.graph.values = {value("scale", onnx::kFloat), value("zero", onnx::kUint8)};
  add("QuantizeLinear", {"x", "scale", "zero"}, "q");
  add("Pool", {"q"}, "p");
  add("DequantizeLinear", {"p", "scale", "zero"}, "d");
  add("Unheard", {"d"});
  EXPECT_THAT(not_known(),
              ElementsAre("QuantizeLinear", "Pool of UINT8", "DequantizeLinear", "Unheard"));
  EXPECT_THAT(compare_operators(kTable, model, JudgedByRows::kYes).not_known,
              ElementsAre("Unheard"));
  add("Mul", {"id", "id"}, "square");
  EXPECT_THAT(compare_operators(kTable, model, JudgedByRows::kYes).not_known,
              ElementsAre("Unheard", "Mul of INT64"));
}

TEST_F(OperatorTableTest, OneThatIsNotInTheTableIsNamedWithTheReasonWhereThereIsOne) {
  add("LSTM", {"x"});
  add("Unheard", {"x"}, "z");
  add("Mul", {"x", "x"}, "w").domain = "com.example";
  model.opsets["com.example"] = 1;
  EXPECT_THAT(not_known(),
              ElementsAre("LSTM (it ignores peepholes)", "Unheard", "com.example.Mul"));
}

TEST_F(OperatorTableTest, OtherOpsetsThanThoseComparedAreNotKnown) {
  add("Mul", {"x", "x"});
  model.opsets[""] = 21;
  EXPECT_THAT(not_known(), ElementsAre("Mul of opset 21"));
}

TEST_F(OperatorTableTest, AnAttributeIsKnownWithTheValuesThatWereComparedOnly) {
  onnx::Attribute mode;
  mode.name = "mode";
  mode.kind = onnx::Attribute::Kind::kString;
  mode.s = "b";
  add("Pool", {"x"}).attributes = {mode};
  EXPECT_THAT(not_known(), IsEmpty());
  model.graph.nodes[0].attributes[0].s = "c";
  EXPECT_THAT(not_known(), ElementsAre("Pool with mode=c"));
  model.graph.nodes[0].attributes[0] = integer("other", 1);
  EXPECT_THAT(not_known(), ElementsAre("Pool with other=1"));
}

TEST_F(OperatorTableTest, AnAttributeThatANodeMustHaveIsMissed) {
  model.opsets[""] = 11;
  add("Softmax", {"x"});
  EXPECT_THAT(not_known(), ElementsAre("Softmax without axis"));
  model.graph.nodes[0].attributes = {integer("axis", -1)};
  EXPECT_THAT(not_known(), IsEmpty());
  model.graph.nodes[0].attributes = {integer("axis", 1)};
  EXPECT_THAT(not_known(), ElementsAre("Softmax with axis=1"));
}

TEST_F(OperatorTableTest, AParameterIsAConstantOrMadeOfShapes) {
  add("Reshape", {"x", "id"});
  EXPECT_THAT(not_known(), ElementsAre("Reshape whose input 1 is no constant of 32 bits"));
  model.graph.initializers = {integers("shape", {2, -1})};
  model.graph.nodes[0].inputs[1] = "shape";
  EXPECT_THAT(not_known(), IsEmpty());
  model.graph.nodes.clear();
  add("Shape", {"x"}, "of_x");
  add("Reshape", {"x", "of_x"});
  EXPECT_THAT(not_known(), IsEmpty());
}

TEST_F(OperatorTableTest, AParameterBeyond32BitsIsKnownOnlyWhereItIsTakenAsTheLimit) {
  model.graph.initializers = {integers("start", {0}), integers("end", {INT64_MAX}),
                              integers("shape", {int64_t{1} << 40})};
  add("Slice", {"x", "start", "end"});
  EXPECT_THAT(not_known(), IsEmpty());
  add("Reshape", {"x", "shape"}, "z");
  EXPECT_THAT(not_known(), ElementsAre("Reshape whose input 1 is no constant of 32 bits"));
}

TEST_F(OperatorTableTest, AnOutputThatIsAWideInputIsNotKnown) {
  model.graph.outputs = {value("id", onnx::kInt64)};
  EXPECT_THAT(not_known(), ElementsAre("an output that is an input or a constant of INT64"));
}

TEST_F(OperatorTableTest, NodesOfSubgraphsAreLookedAt) {
  onnx::Attribute body;
  body.name = "body";
  body.kind = onnx::Attribute::Kind::kGraph;
  body.graph = std::make_shared<onnx::Graph>();
  body.graph->nodes = {node("Unheard", {"x"}, "inner")};
  add("Mul", {"x", "x"}).attributes = {body};
  EXPECT_THAT(not_known(), ElementsAre("Mul with body", "Unheard"));
}

TEST_F(OperatorTableTest, AnOperatorIsUnsafeIfARequestReachesTheInputAndNotOtherwise) {
  model.graph.initializers = {integers("zero", {0}), integers("five", {5})};
  add("Range", {"zero", "five", "five"});
  EXPECT_THAT(unsafe(), IsEmpty());
  add("Mul", {"id", "five"}, "computed");
  add("Range", {"zero", "five", "computed"}, "z");
  EXPECT_THAT(unsafe(), ElementsAre("Range (a delta of 0 ends the process)"));
}

TEST_F(OperatorTableTest, TheSizeOfAnInputIsNoNumberOfTheRequest) {
  model.graph.initializers = {integers("zero", {0}), integers("one", {1})};
  add("Shape", {"x"}, "shape");
  add("Range", {"zero", "shape", "one"}, "r");
  EXPECT_THAT(unsafe(), IsEmpty());
}

TEST_F(OperatorTableTest, ATypeThatIsSafeOrAConstantWithoutTheNumberIsGiven) {
  model.graph.initializers = {integers("two", {2}), integers("minus_one", {3, -1})};
  add("Div", {"x", "x"});
  add("Div", {"id", "two"}, "half");
  EXPECT_THAT(unsafe(), IsEmpty());
  add("Div", {"id", "minus_one"}, "negative");
  EXPECT_THAT(unsafe(), ElementsAre("Div (the least by -1)"));
}

TEST_F(OperatorTableTest, ATableWithoutRulesKnowsAllAndStillNamesTheUnsafe) {
  constexpr OperatorTable kReference = {
      .made_with = {}, .version = "1", .rules = {}, .exceptions = kExceptions};
  add("Unheard", {"x"});
  add("Div", {"id", "id"}, "z");
  const OperatorFindings found = compare_operators(kReference, model);
  EXPECT_THAT(found.not_known, IsEmpty());
  EXPECT_THAT(found.unsafe, ElementsAre("Div (the least by -1)"));
}

// --- nodes that a reference computes otherwise ---------------------------------------------------

constexpr OperatorDeviation kDeviations[] = {
    {"", "Attention", "mode=2 causal=1", 0, "", 0x2, false, "masked places"},
    {"", "Attention", "mode=2", 0x2, "BOOL", 0x2, false, "masked places"},
    {"", "Resize", "align=1", 0x2, "", 0, true, "the rounded size"},
};
constexpr OperatorTable kReference = {
    .made_with = {}, .version = "1", .rules = {}, .exceptions = {}, .deviations = kDeviations};

class DeviationsTest : public OperatorTableTest {
 protected:
  [[nodiscard]] std::vector<std::string> deviating() const {
    return compare_operators(kReference, model).deviating;
  }
  onnx::Node& attention(std::vector<onnx::Attribute> attributes) {
    onnx::Node& made = add("Attention", {"x", "mask"});
    made.outputs = {"y", "scores"};
    made.attributes = std::move(attributes);
    return made;
  }
  void scales(const std::vector<float>& numbers) {
    onnx::Tensor& made = model.graph.initializers.emplace_back();
    made.name = "scales";
    made.type = onnx::kFloat;
    made.dims = {static_cast<int64_t>(numbers.size())};
    made.raw = std::as_bytes(std::span(numbers));
  }
};

TEST_F(DeviationsTest, ANodeDeviatesWithAllAttributesOfARowOnly) {
  model.graph.inputs.push_back(value("mask", onnx::kFloat));
  attention({integer("mode", 2), integer("causal", 1)});
  EXPECT_THAT(deviating(), ElementsAre("Attention (masked places)"));
  model.graph.nodes[0].attributes = {integer("mode", 2), integer("causal", 0)};
  EXPECT_THAT(deviating(), IsEmpty());
  model.graph.nodes[0].attributes = {integer("causal", 1)};
  EXPECT_THAT(deviating(), IsEmpty());
}

TEST_F(DeviationsTest, AnOutputThatIsNotAskedForDoesNotDeviate) {
  onnx::Node& node = attention({integer("mode", 2), integer("causal", 1)});
  node.outputs[1].clear();
  EXPECT_THAT(deviating(), IsEmpty());
  node.outputs.pop_back();
  EXPECT_THAT(deviating(), IsEmpty());
}

TEST_F(DeviationsTest, AnInputOfAnotherTypeDoesNotDeviateAndOneOfAnUnknownTypeMay) {
  attention({integer("mode", 2)});
  EXPECT_THAT(deviating(), ElementsAre("Attention (masked places)"))
      << "of the mask nothing is known";
  model.graph.inputs.push_back(value("mask", onnx::kBool));
  EXPECT_THAT(deviating(), ElementsAre("Attention (masked places)"));
  model.graph.inputs.back().type = onnx::kFloat;
  EXPECT_THAT(deviating(), IsEmpty());
}

TEST_F(DeviationsTest, AConstantOfWholeNumbersDoesNotDeviateAndFractionsOrARequestsNumbersMay) {
  add("Resize", {"x", "scales"}).attributes = {integer("align", 1)};
  EXPECT_THAT(deviating(), ElementsAre("Resize (the rounded size)"));
  const std::vector<float> whole = {1, 1, 2, 2};
  scales(whole);
  EXPECT_THAT(deviating(), IsEmpty());
  model.graph.initializers.clear();
  const std::vector<float> fractions = {1, 1, 0.5f, 2};
  scales(fractions);
  EXPECT_THAT(deviating(), ElementsAre("Resize (the rounded size)"));
  model.graph.nodes[0].inputs.pop_back();
  EXPECT_THAT(deviating(), IsEmpty()) << "it has sizes, then";
}

}  // namespace
}  // namespace lumen::models
