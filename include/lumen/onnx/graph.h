// An ONNX file as a graph, read without ONNX's library: nodes, attributes, shapes and small
// constants, by which Lumen chooses a model's backend and its packing. Format: onnx.proto3 of ONNX
// 1.x.
// Threads: any. Memory: the heap; tensors' bytes are views of the file, which has to outlive them.
// Errors: read_model() returns kInvalidArgument for bytes that are no such file.
#pragma once

#include <lumen/base/result.h>
#include <lumen/onnx/proto.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::onnx {

// TensorProto.DataType.
enum DataType : int32_t {
  kUnknownType = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kBfloat16 = 16,
};

struct Tensor {
  std::string name;
  int32_t type = kUnknownType;
  std::vector<int64_t> dims;
  bool is_external = false;         // its bytes are in a file beside the model's
  Bytes raw;                        // raw_data; empty where the numbers are in a field of their own
  Bytes float_data;                 // FP32 numbers in that field, packed
  std::vector<int64_t> int32_data;  // small types, too
  std::vector<int64_t> int64_data;

  // Of constants with at most kMostNumbers elements (axes, shapes, indices, scales); nullopt: not
  // known, or of another type.
  static constexpr size_t kMostNumbers = 4096;
  [[nodiscard]] std::optional<std::vector<int64_t>> integers() const;
  [[nodiscard]] std::optional<std::vector<float>> floats() const;
};

struct Graph;

struct Attribute {
  enum class Kind : uint8_t {
    kFloat,
    kInt,
    kString,
    kTensor,
    kGraph,
    kFloats,
    kInts,
    kStrings,
    kOther
  };
  std::string name;
  Kind kind = Kind::kOther;
  float f = 0;
  int64_t i = 0;
  std::string s;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string> strings;
  std::shared_ptr<Tensor> tensor;
  std::shared_ptr<Graph> graph;
};

struct Dimension {
  int64_t size = -1;   // -1: free
  std::string symbol;  // of a free one; may be empty
};

// The declaration of a value: an input, an output or one between nodes.
struct Value {
  std::string name;
  bool is_tensor = true;  // false: a sequence, a map or an optional
  int32_t type = kUnknownType;
  bool has_shape = false;
  std::vector<Dimension> shape;
};

struct Node {
  std::string op_type;
  std::string domain;  // empty: ONNX's own
  std::string name;
  std::vector<std::string> inputs;  // empty names: left out
  std::vector<std::string> outputs;
  std::vector<Attribute> attributes;

  [[nodiscard]] const Attribute* find(std::string_view attribute) const noexcept;
  [[nodiscard]] int64_t integer(std::string_view attribute, int64_t otherwise) const noexcept;
  [[nodiscard]] std::optional<std::vector<int64_t>> integers(std::string_view attribute) const;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<Tensor> initializers;
  std::vector<Value> inputs;  // initializers may be among them
  std::vector<Value> outputs;
  std::vector<Value> values;  // between nodes, where the file tells
  bool has_sparse_initializers = false;
};

struct Model {
  int64_t ir_version = 0;
  std::map<std::string, int64_t> opsets;  // by domain; "" is ONNX's own
  std::vector<std::string> functions;     // that the file brings itself, "domain:name"
  Graph graph;
};

[[nodiscard]] Result<Model> read_model(std::span<const std::byte> file);

// Whether the file alone holds all numbers of the model, as far as can be seen: false where a
// tensor lies in another file, and for functions, sparse tensors and lists, which are not looked
// into.
[[nodiscard]] bool is_self_contained(const Model& model);
// Whether an axis of an input has any size.
[[nodiscard]] bool has_free_axes(const Graph& graph);
// Names of all values that a node of the graph computes. An output that is not one of these is an
// input or an initializer passed on. Views of the graph.
[[nodiscard]] std::set<std::string_view> computed_values(const Graph& graph);
// Names of those without a shape, not even a number of axes. Views of the values.
[[nodiscard]] std::set<std::string_view> without_shape(std::span<const Value> values);
// Names of the graph's inputs that a request has to bring, in the file's order.
[[nodiscard]] std::vector<std::string> required_inputs(const Graph& graph);

}  // namespace lumen::onnx
