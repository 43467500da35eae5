// See the header.
#include <lumen/onnx/graph.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace lumen::onnx {
namespace {

// Graphs inside of nodes (If, Loop, Scan) inside of graphs. Exporters write three or four.
constexpr int kMostDepth = 16;

std::string string_of(Bytes bytes) { return std::string(text_of(bytes)); }

// A repeated number is packed into one field or comes one by one; both may be in one message.
void add_integers(const Field& field, std::vector<int64_t>& to) {
  if (field.type == kVarint) {
    to.push_back(static_cast<int64_t>(field.value));
    return;
  }
  Bytes rest = field.payload;
  while (!rest.empty()) {
    uint64_t value = 0;
    unsigned shift = 0;
    bool goes_on = true;
    while (goes_on && !rest.empty() && shift < 64) {
      const auto byte = static_cast<uint8_t>(rest.front());
      rest = rest.subspan(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      shift += 7;
      goes_on = (byte & 0x80u) != 0;
    }
    if (goes_on) return;
    to.push_back(static_cast<int64_t>(value));
  }
}

float float_at(Bytes four) {
  uint32_t bits = 0;
  std::memcpy(&bits, four.data(), sizeof(bits));
  return std::bit_cast<float>(bits);
}

void add_floats(const Field& field, std::vector<float>& to) {
  for (Bytes rest = field.payload; rest.size() >= sizeof(float); rest = rest.subspan(4)) {
    to.push_back(float_at(rest.first(4)));
  }
}

// Reads messages into structs. The first one that is not whole ends in `is_whole` being false.
class Reader {
 public:
  bool is_whole = true;
  bool is_too_deep = false;
  bool has_two_graphs = false;  // which other readers merge

  Model model(Bytes message) {
    Model model;
    bool has_graph = false;
    each(message, [&](const Field& field) {
      switch (field.number) {
        case kIrVersion: model.ir_version = static_cast<int64_t>(field.value); break;
        case kGraph:
          has_two_graphs = has_two_graphs || has_graph;
          has_graph = true;
          model.graph = graph(field.payload, 0);
          break;
        case kOpsetImport: add_opset(field.payload, model); break;
        case kFunctions: add_function(field.payload, model); break;
        default: break;
      }
    });
    return model;
  }

 private:
  template <typename Visit>
  void each(Bytes message, Visit visit) {
    Fields fields(message);
    while (const auto field = fields.next()) visit(*field);
    is_whole = is_whole && fields.is_whole();
  }

  void add_opset(Bytes message, Model& model) {
    std::string domain;
    int64_t version = 0;
    each(message, [&](const Field& field) {
      if (field.number == kOpsetDomain) domain = string_of(field.payload);
      if (field.number == kOpsetVersion) version = static_cast<int64_t>(field.value);
    });
    model.opsets[domain == "ai.onnx" ? "" : domain] = version;
  }

  void add_function(Bytes message, Model& model) {
    std::string name;
    std::string domain;
    each(message, [&](const Field& field) {
      if (field.number == kFunctionName) name = string_of(field.payload);
      if (field.number == kFunctionDomain) domain = string_of(field.payload);
    });
    model.functions.push_back(domain + ":" + name);
  }

  Graph graph(Bytes message, int depth) {
    Graph graph;
    if (depth > kMostDepth) {
      is_too_deep = true;
      return graph;
    }
    each(message, [&](const Field& field) {
      switch (field.number) {
        case kNode: graph.nodes.push_back(node(field.payload, depth)); break;
        case kInitializer: graph.initializers.push_back(tensor(field.payload)); break;
        case kGraphInput: graph.inputs.push_back(value(field.payload)); break;
        case kOutput: graph.outputs.push_back(value(field.payload)); break;
        case kValueInfo: graph.values.push_back(value(field.payload)); break;
        case kSparseInitializer: graph.has_sparse_initializers = true; break;
        default: break;
      }
    });
    return graph;
  }

  Node node(Bytes message, int depth) {
    Node node;
    each(message, [&](const Field& field) {
      switch (field.number) {
        case kInput: node.inputs.push_back(string_of(field.payload)); break;
        case kNodeOutput: node.outputs.push_back(string_of(field.payload)); break;
        case kNodeName: node.name = string_of(field.payload); break;
        case kOpType: node.op_type = string_of(field.payload); break;
        case kAttribute: node.attributes.push_back(attribute(field.payload, depth)); break;
        case kNodeDomain: node.domain = string_of(field.payload); break;
        default: break;
      }
    });
    if (node.domain == "ai.onnx") node.domain.clear();
    return node;
  }

  Attribute attribute(Bytes message, int depth) {
    Attribute made;
    uint64_t type = 0;
    bool refers = false;  // to an attribute of a function around it
    each(message, [&](const Field& field) {
      switch (field.number) {
        case kAttributeName: made.name = string_of(field.payload); break;
        case kAttributeFloat:
          if (field.payload.size() == sizeof(float)) made.f = float_at(field.payload);
          break;
        case kAttributeInt: made.i = static_cast<int64_t>(field.value); break;
        case kAttributeString: made.s = string_of(field.payload); break;
        case kAttributeTensor: made.tensor = std::make_shared<Tensor>(tensor(field.payload)); break;
        case kAttributeGraph:
          made.graph = std::make_shared<Graph>(graph(field.payload, depth + 1));
          break;
        case kFloats: add_floats(field, made.floats); break;
        case kInts: add_integers(field, made.ints); break;
        case kStrings: made.strings.push_back(string_of(field.payload)); break;
        case kAttributeType: type = field.value; break;
        case kReferredName: refers = true; break;
        default: break;
      }
    });
    // AttributeProto.AttributeType, from FLOAT = 1 on.
    constexpr std::array kKinds = {
        Attribute::Kind::kOther,  Attribute::Kind::kFloat,  Attribute::Kind::kInt,
        Attribute::Kind::kString, Attribute::Kind::kTensor, Attribute::Kind::kGraph,
        Attribute::Kind::kFloats, Attribute::Kind::kInts,   Attribute::Kind::kStrings};
    made.kind = refers || type >= kKinds.size() ? Attribute::Kind::kOther : kKinds[type];
    return made;
  }

  Tensor tensor(Bytes message) {
    Tensor made;
    each(message, [&](const Field& field) {
      switch (field.number) {
        case kDims: add_integers(field, made.dims); break;
        case kDataType: made.type = static_cast<int32_t>(field.value); break;
        case kFloatData: made.float_data = field.payload; break;
        case kInt32Data: add_integers(field, made.int32_data); break;
        case kInt64Data: add_integers(field, made.int64_data); break;
        case kTensorName: made.name = string_of(field.payload); break;
        case kRawData: made.raw = field.payload; break;
        case kDataLocation: made.is_external = field.value == 1; break;
        default: break;
      }
    });
    return made;
  }

  Value value(Bytes message) {
    Value made;
    std::optional<Bytes> type;
    each(message, [&](const Field& field) {
      if (field.number == kValueName) made.name = string_of(field.payload);
      if (field.number == kValueType) type = field.payload;
    });
    if (!type) return made;
    made.is_tensor = false;
    each(*type, [&](const Field& field) {
      if (field.number != kTensorType) return;
      made.is_tensor = true;
      each(field.payload, [&](const Field& part) {
        if (part.number == kElementType) made.type = static_cast<int32_t>(part.value);
        if (part.number == kShape) add_shape(part.payload, made);
      });
    });
    return made;
  }

  void add_shape(Bytes message, Value& made) {
    made.has_shape = true;
    each(message, [&](const Field& field) {
      if (field.number != kAxis) return;
      Dimension& dimension = made.shape.emplace_back();
      each(field.payload, [&](const Field& part) {
        if (part.number == kSize) dimension.size = static_cast<int64_t>(part.value);
        if (part.number == kSymbol) dimension.symbol = string_of(part.payload);
      });
      if (dimension.size < 0) dimension.size = -1;
    });
  }
};

// Little-endian integers of `size` bytes, with their sign.
std::vector<int64_t> from_raw(Bytes raw, size_t size, bool is_signed) {
  std::vector<int64_t> numbers;
  for (; raw.size() >= size; raw = raw.subspan(size)) {
    uint64_t bits = 0;
    std::memcpy(&bits, raw.data(), size);
    const unsigned unused = static_cast<unsigned>(64 - 8 * size);
    const uint64_t shifted = bits << unused;
    numbers.push_back(is_signed ? static_cast<int64_t>(shifted) >> unused
                                : static_cast<int64_t>(shifted >> unused));
  }
  return numbers;
}

// nullopt: no integers.
std::optional<std::pair<size_t, bool>> size_and_sign(int32_t type) noexcept {
  switch (type) {
    case kUint8:
    case kBool: return {{1, false}};
    case kInt8: return {{1, true}};
    case kUint16: return {{2, false}};
    case kInt16: return {{2, true}};
    case kInt32: return {{4, true}};
    case kUint32: return {{4, false}};
    case kInt64: return {{8, true}};
    default: return std::nullopt;
  }
}

}  // namespace

namespace {

// nullopt: more than kMostNumbers, or no size.
std::optional<size_t> count_of(const std::vector<int64_t>& dims) noexcept {
  size_t count = 1;
  for (const int64_t size : dims) {
    if (size < 0 || static_cast<uint64_t>(size) > Tensor::kMostNumbers) return std::nullopt;
    count *= static_cast<size_t>(size);
    if (count > Tensor::kMostNumbers) return std::nullopt;
  }
  return count;
}

}  // namespace

std::optional<std::vector<int64_t>> Tensor::integers() const {
  const auto form = size_and_sign(type);
  const std::optional<size_t> count = count_of(dims);
  if (!form || is_external || !count) return std::nullopt;
  std::vector<int64_t> numbers = raw.empty() ? (type == kInt64 ? int64_data : int32_data)
                                             : from_raw(raw, form->first, form->second);
  if (numbers.size() != *count) return std::nullopt;
  return numbers;
}

std::optional<std::vector<float>> Tensor::floats() const {
  const std::optional<size_t> count = count_of(dims);
  const Bytes bytes = raw.empty() ? float_data : raw;
  if (type != kFloat || is_external || !count || bytes.size() != *count * sizeof(float)) {
    return std::nullopt;
  }
  std::vector<float> numbers(*count);
  if (*count > 0) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

const Attribute* Node::find(std::string_view attribute) const noexcept {
  const auto found = std::ranges::find(attributes, attribute, &Attribute::name);
  return found == attributes.end() ? nullptr : &*found;
}

int64_t Node::integer(std::string_view attribute, int64_t otherwise) const noexcept {
  const Attribute* found = find(attribute);
  return found == nullptr ? otherwise : found->i;
}

std::optional<std::vector<int64_t>> Node::integers(std::string_view attribute) const {
  const Attribute* found = find(attribute);
  return found == nullptr ? std::nullopt : std::optional(found->ints);
}

Result<Model> read_model(std::span<const std::byte> file) {
  Reader reader;
  Model model = reader.model(file);
  if (reader.is_too_deep) {
    return Status::error(Code::kInvalidArgument,
                         "graphs lie inside of each other more than %d deep", kMostDepth);
  }
  if (reader.has_two_graphs) {
    return Status::error(Code::kInvalidArgument, "the file has more than one graph");
  }
  if (!reader.is_whole) {
    return Status::error(Code::kInvalidArgument, "a message in the file is cut or damaged");
  }
  if (model.graph.nodes.empty() && model.graph.outputs.empty()) {
    return Status::error(Code::kInvalidArgument, "the file has no graph");
  }
  return model;
}

namespace {

bool is_self_contained(const Graph& graph);

bool is_self_contained(const Attribute& attribute) {
  switch (attribute.kind) {
    case Attribute::Kind::kOther: return false;
    case Attribute::Kind::kTensor: return attribute.tensor && !attribute.tensor->is_external;
    case Attribute::Kind::kGraph: return attribute.graph && is_self_contained(*attribute.graph);
    default: return true;
  }
}

bool is_self_contained(const Graph& graph) {
  return !graph.has_sparse_initializers &&
         std::ranges::none_of(graph.initializers, &Tensor::is_external) &&
         std::ranges::all_of(graph.nodes, [](const Node& node) {
           return std::ranges::all_of(node.attributes, [](const Attribute& attribute) {
             return is_self_contained(attribute);
           });
         });
}

}  // namespace

bool is_self_contained(const Model& model) {
  return model.functions.empty() && is_self_contained(model.graph);
}

bool has_free_axes(const Graph& graph) {
  return std::ranges::any_of(graph.inputs, [](const Value& input) {
    return std::ranges::any_of(input.shape, [](const Dimension& one) { return one.size < 0; });
  });
}

std::set<std::string_view> computed_values(const Graph& graph) {
  std::set<std::string_view> names;
  for (const Node& node : graph.nodes) names.insert(node.outputs.begin(), node.outputs.end());
  return names;
}

std::set<std::string_view> without_shape(std::span<const Value> values) {
  std::set<std::string_view> names;
  for (const Value& value : values) {
    if (value.is_tensor && !value.has_shape) names.insert(value.name);
  }
  return names;
}

std::vector<std::string> required_inputs(const Graph& graph) {
  std::set<std::string_view> constants;
  for (const Tensor& tensor : graph.initializers) constants.insert(tensor.name);
  std::vector<std::string> names;
  for (const Value& input : graph.inputs) {
    if (!constants.contains(input.name)) names.push_back(input.name);
  }
  return names;
}

}  // namespace lumen::onnx
