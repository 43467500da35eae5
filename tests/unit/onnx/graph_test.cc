// The reader of ONNX files: each part of a graph, and bytes that are no such file. Files are made
// by MessageWriter; those of the fixtures by ONNX itself.
#include <lumen/onnx/graph.h>

#include "support/source_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace lumen::onnx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

using Message = std::vector<std::byte>;

MessageWriter opset(std::string_view domain, uint64_t version) {
  MessageWriter made;
  made.add_text(kOpsetDomain, domain);
  made.add_number(kOpsetVersion, version);
  return made;
}

Message file_with(Message graph) {
  MessageWriter model;
  model.add_number(kIrVersion, 8);
  model.add_message(kOpsetImport, opset("ai.onnx", 17).bytes());
  model.add_message(kGraph, graph);
  return model.bytes();
}

Message value_of(std::string_view name, std::optional<Message> shape) {
  MessageWriter tensor;
  tensor.add_number(kElementType, kFloat);
  if (shape) tensor.add_message(kShape, *shape);
  MessageWriter type;
  type.add_message(kTensorType, tensor.bytes());
  MessageWriter value;
  value.add_text(kValueName, name);
  value.add_message(kValueType, type.bytes());
  return value.bytes();
}

Message shape_of_n_by_4() {
  MessageWriter free;
  free.add_text(kSymbol, "n");
  MessageWriter fixed;
  fixed.add_number(kSize, 4);
  MessageWriter shape;
  shape.add_message(kAxis, free.bytes());
  shape.add_message(kAxis, fixed.bytes());
  return shape.bytes();
}

// A node with an attribute of the message `attribute`.
Message graph_with(Message attribute) {
  MessageWriter node;
  node.add_text(kOpType, "Op");
  node.add_text(kInput, "x");
  node.add_text(kInput, "");
  node.add_text(kNodeOutput, "y");
  node.add_text(kNodeDomain, "ai.onnx");
  node.add_message(kAttribute, attribute);
  MessageWriter graph;
  graph.add_message(kNode, node.bytes());
  graph.add_message(kGraphInput, value_of("x", shape_of_n_by_4()));
  graph.add_message(kGraphInput, value_of("w", std::nullopt));
  graph.add_message(kOutput, value_of("y", std::nullopt));
  MessageWriter weights;
  weights.add_text(kTensorName, "w");
  weights.add_number(kDims, 2);
  weights.add_number(kDataType, kInt64);
  weights.add_number(kInt64Data, 3);
  weights.add_number(kInt64Data, static_cast<uint64_t>(-1));
  graph.add_message(kInitializer, weights.bytes());
  return graph.bytes();
}

MessageWriter attribute_of(uint64_t type) {
  MessageWriter made;
  made.add_text(kAttributeName, "a");
  made.add_number(kAttributeType, type);
  return made;
}

Attribute read_attribute(MessageWriter attribute) {
  const Message file = file_with(graph_with(attribute.bytes()));
  const Result<Model> model = read_model(file);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  return model->graph.nodes.at(0).attributes.at(0);
}

TEST(OnnxGraph, HasNodesValuesConstantsAndOpsets) {
  const Message file = file_with(graph_with(attribute_of(2).bytes()));
  const Result<Model> model = read_model(file);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->ir_version, 8);
  EXPECT_EQ(model->opsets.at(""), 17) << "ONNX's own domain has one name";
  const Graph& graph = model->graph;
  ASSERT_EQ(graph.nodes.size(), 1U);
  EXPECT_EQ(graph.nodes[0].op_type, "Op");
  EXPECT_EQ(graph.nodes[0].domain, "");
  EXPECT_THAT(graph.nodes[0].inputs, ElementsAre("x", ""));
  EXPECT_THAT(graph.nodes[0].outputs, ElementsAre("y"));
  EXPECT_EQ(graph.inputs[0].shape.at(0).size, -1);
  EXPECT_EQ(graph.inputs[0].shape.at(0).symbol, "n");
  EXPECT_EQ(graph.inputs[0].shape.at(1).size, 4);
  EXPECT_THAT(graph.initializers.at(0).integers().value(), ElementsAre(3, -1));
  EXPECT_THAT(required_inputs(graph), ElementsAre("x")) << "a constant is no input of a request";
  EXPECT_THAT(without_shape(graph.inputs), UnorderedElementsAre("w"));
  EXPECT_THAT(computed_values(graph), UnorderedElementsAre("y"));
  EXPECT_TRUE(has_free_axes(graph));
}

TEST(OnnxGraph, ReadsEachKindOfAttribute) {
  MessageWriter whole = attribute_of(2);
  whole.add_number(kAttributeInt, static_cast<uint64_t>(-5));
  EXPECT_EQ(read_attribute(whole).i, -5);
  MessageWriter text = attribute_of(3);
  text.add_text(kAttributeString, "mode");
  EXPECT_EQ(read_attribute(text).s, "mode");
  MessageWriter numbers = attribute_of(7);
  numbers.add_number(kInts, 1);
  numbers.add_message(kInts, std::as_bytes(std::span("\x02\x80\x01", 3)));  // packed: 2 and 128
  EXPECT_THAT(read_attribute(numbers).ints, ElementsAre(1, 2, 128));
  MessageWriter tensor = attribute_of(4);
  MessageWriter raw;
  raw.add_number(kDims, 2);
  raw.add_number(kDataType, kInt32);
  const int32_t wanted[] = {7, -8};
  raw.add_message(kRawData, std::as_bytes(std::span(wanted)));
  tensor.add_message(kAttributeTensor, raw.bytes());
  // The numbers are a view of the file, which has to live as long.
  const Message file = file_with(graph_with(tensor.bytes()));
  const Result<Model> model = read_model(file);
  ASSERT_TRUE(model.ok());
  EXPECT_THAT(model->graph.nodes[0].attributes[0].tensor->integers().value(), ElementsAre(7, -8));
  MessageWriter graph = attribute_of(5);
  graph.add_message(kAttributeGraph, graph_with(attribute_of(2).bytes()));
  EXPECT_EQ(read_attribute(graph).graph->nodes.at(0).op_type, "Op");
}

TEST(OnnxGraph, AnAttributeThatRefersToAFunctionsIsOfNoKind) {
  MessageWriter made = attribute_of(2);
  made.add_text(kReferredName, "outer");
  EXPECT_EQ(read_attribute(made).kind, Attribute::Kind::kOther);
  EXPECT_EQ(read_attribute(attribute_of(99)).kind, Attribute::Kind::kOther);
}

TEST(OnnxGraph, FloatsAreReadFromEitherFieldAndKnownOnlyIfTheyAreAsManyAsTheShapeSays) {
  const std::vector<float> numbers = {0.5f, -2};
  Tensor tensor;
  tensor.type = kFloat;
  tensor.dims = {2};
  EXPECT_FALSE(tensor.floats());
  tensor.float_data = std::as_bytes(std::span(numbers));
  EXPECT_THAT(tensor.floats().value(), ElementsAre(0.5f, -2));
  std::swap(tensor.float_data, tensor.raw);
  EXPECT_THAT(tensor.floats().value(), ElementsAre(0.5f, -2));
  tensor.dims = {3};
  EXPECT_FALSE(tensor.floats());
  tensor.dims = {2};
  tensor.type = kFloat16;
  EXPECT_FALSE(tensor.floats());
  tensor.type = kFloat;
  tensor.is_external = true;
  EXPECT_FALSE(tensor.floats());
}

TEST(OnnxGraph, IntegersAreKnownOnlyWhereTheyAreThereAndAsManyAsTheShapeSays) {
  Tensor tensor;
  tensor.type = kInt64;
  tensor.dims = {2};
  tensor.int64_data = {1, 2};
  EXPECT_TRUE(tensor.integers());
  tensor.dims = {3};
  EXPECT_FALSE(tensor.integers());
  tensor.dims = {1 << 20, 1 << 20, 1 << 20, 1 << 20};  // more than can be counted
  EXPECT_FALSE(tensor.integers());
  tensor.dims = {-1};
  EXPECT_FALSE(tensor.integers());
  tensor.dims = {2};
  tensor.is_external = true;
  EXPECT_FALSE(tensor.integers());
  tensor.is_external = false;
  tensor.type = kFloat;
  EXPECT_FALSE(tensor.integers());
}

TEST(OnnxGraph, ReadsAFileThatOnnxWrote) {
  std::ifstream stream(test::source_path("tests/fixtures/models/relu_concat/1/model.onnx"),
                       std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const Result<Model> model = read_model(std::as_bytes(std::span(text)));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_THAT(required_inputs(model->graph), ElementsAre("left", "right"));
  EXPECT_EQ(model->graph.nodes.back().op_type, "Concat");
  EXPECT_EQ(model->graph.nodes.back().integer("axis", 0), 1);
}

TEST(OnnxGraph, RefusesTwoGraphsWhichOtherReadersMerge) {
  MessageWriter model;
  const Message graph = graph_with(attribute_of(2).bytes());
  model.add_message(kGraph, graph);
  model.add_message(kGraph, graph);
  EXPECT_THAT(std::string(read_model(model.bytes()).status().message()),
              HasSubstr("more than one graph"));
}

TEST(OnnxGraph, RefusesGraphsThatLieInEachOtherTooDeep) {
  Message graph = graph_with(attribute_of(2).bytes());
  for (int i = 0; i < 100; ++i) {
    MessageWriter attribute = attribute_of(5);
    attribute.add_message(kAttributeGraph, graph);
    graph = graph_with(attribute.bytes());
  }
  EXPECT_THAT(std::string(read_model(file_with(graph)).status().message()), HasSubstr("deep"));
}

TEST(OnnxGraph, AFileThatIsCutAnywhereIsNoModelOrAShorterOneAndNothingIsReadBehindIt) {
  MessageWriter tensor = attribute_of(4);
  MessageWriter raw;
  raw.add_number(kDims, 1);
  raw.add_number(kDataType, kInt64);
  raw.add_message(kRawData, Message(8));
  tensor.add_message(kAttributeTensor, raw.bytes());
  const Message whole = file_with(graph_with(tensor.bytes()));
  int refused = 0;
  for (size_t size = 0; size < whole.size(); ++size) {
    const Message cut(whole.begin(), whole.begin() + static_cast<int64_t>(size));
    refused += read_model(cut).ok() ? 0 : 1;  // a sanitizer sees a read behind the end
  }
  EXPECT_EQ(refused, static_cast<int>(whole.size()));
}

TEST(OnnxGraph, BytesThatWereChangedAtRandomNeverHarmTheReader) {
  const Message whole = file_with(graph_with(attribute_of(5).bytes()));
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    Message bytes = whole;
    for (size_t changes = 1 + random() % 4; changes > 0; --changes) {
      bytes[random() % bytes.size()] = std::byte(random());
    }
    const Result<Model> model = read_model(bytes);
    if (!model.ok()) {
      EXPECT_FALSE(model.status().message().empty());
      continue;
    }
    for (const Tensor& tensor : model->graph.initializers) (void)tensor.integers();
  }
}

TEST(OnnxGraph, AnEmptyFileHasNoGraph) {
  EXPECT_THAT(std::string(read_model({}).status().message()), HasSubstr("no graph"));
  EXPECT_THAT(required_inputs(Graph()), IsEmpty());
}

}  // namespace
}  // namespace lumen::onnx
