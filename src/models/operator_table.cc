// See the header.
#include "models/operator_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace lumen::models {
namespace {

using onnx::DataType;
constexpr std::array<std::pair<int32_t, std::string_view>, 14> kTypeNames = {{{1, "FP32"},
                                                                              {2, "UINT8"},
                                                                              {3, "INT8"},
                                                                              {4, "UINT16"},
                                                                              {5, "INT16"},
                                                                              {6, "INT32"},
                                                                              {7, "INT64"},
                                                                              {8, "BYTES"},
                                                                              {9, "BOOL"},
                                                                              {10, "FP16"},
                                                                              {11, "FP64"},
                                                                              {12, "UINT32"},
                                                                              {13, "UINT64"},
                                                                              {16, "BF16"}}};

// Operators with BOOL outputs for inputs of any type.
constexpr std::string_view kGiveBool[] = {
    "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or",
    "Xor",   "Not",     "IsNaN",          "IsInf"};
constexpr std::string_view kGiveInt64[] = {"ArgMax", "ArgMin", "NonZero", "NonMaxSuppression"};
// Of constants and shapes they make shapes again, and only move numbers that are there.
constexpr std::string_view kMoveShapes[] = {"Gather", "Unsqueeze", "Squeeze", "Concat",
                                            "Slice",  "Identity",  "Reshape"};

std::string_view name_of(int32_t type) {
  const auto found = std::ranges::find(kTypeNames, type, [](const auto& one) { return one.first; });
  return found == kTypeNames.end() ? std::string_view("an unknown type") : found->second;
}

// The next word of a text with one space between words; empty at the end.
std::string_view take_word(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

bool has_word(std::string_view text, std::string_view wanted) {
  for (std::string_view word = take_word(text); !word.empty(); word = take_word(text)) {
    if (word == wanted) return true;
  }
  return false;
}

// As the tables write it; empty: a value that they can't name.
std::string value_of(const onnx::Attribute& attribute) {
  using Kind = onnx::Attribute::Kind;
  if (attribute.kind == Kind::kInt) return std::to_string(attribute.i);
  if (attribute.kind == Kind::kString) return attribute.s;
  if (attribute.kind != Kind::kInts) return {};
  std::string text;
  for (const int64_t one : attribute.ints) {
    text.append(text.empty() ? "" : ",").append(std::to_string(one));
  }
  return text;
}

bool allows_attribute(std::string_view list, const onnx::Attribute& attribute) {
  for (std::string_view word = take_word(list); !word.empty(); word = take_word(list)) {
    if (word.starts_with('+')) word.remove_prefix(1);
    const size_t equals = word.find('=');
    if (word.substr(0, equals) != attribute.name) continue;
    if (equals == std::string_view::npos || word.substr(equals + 1) == "*") return true;
    const std::string value = value_of(attribute);
    std::string_view values = word.substr(equals + 1);
    while (!values.empty()) {
      const size_t end = std::min(values.find('|'), values.size());
      if (values.substr(0, end) == value) return true;
      values.remove_prefix(std::min(end + 1, values.size()));
    }
  }
  return false;
}

// The name of one that the node has to have and has not; empty: none.
std::string_view missing_attribute(std::string_view list, const onnx::Node& node) {
  for (std::string_view word = take_word(list); !word.empty(); word = take_word(list)) {
    if (!word.starts_with('+')) continue;
    const std::string_view name = word.substr(1, word.find('=') - 1);
    if (node.find(name) == nullptr) return name;
  }
  return {};
}

struct Known {
  int32_t type = DataType::kUnknownType;
  bool is_fixed = false;                 // a constant of 32 bits, or made of these and of shapes
  bool is_constant = false;              // of any width
  const onnx::Tensor* tensor = nullptr;  // of a constant
  const onnx::Attribute* attribute = nullptr;  // of one that a node Constant gives without a tensor
  bool is_requests = false;  // follows from numbers of a request, and not from their shapes alone
};
using Scope = std::map<std::string, Known, std::less<>>;

class Search {
 public:
  Search(const OperatorTable& table, const onnx::Model& model, JudgedByRows judged)
      : table_(table), model_(model), is_judged_(judged == JudgedByRows::kYes) {}

  OperatorFindings run() {
    for (const std::string& function : model_.functions) note("function " + function);
    look_at(model_.graph, {});
    return std::move(found_);
  }

 private:
  static void add(std::vector<std::string>& list, std::string label) {
    if (std::ranges::find(list, label) == list.end()) list.push_back(std::move(label));
  }
  void note(std::string label) { add(found_.not_known, std::move(label)); }

  // Graphs lie in each other as deep as the reader allows.
  void look_at(const onnx::Graph& graph, Scope scope) {
    for (const onnx::Value& value : graph.values) scope[value.name] = {.type = value.type};
    for (const onnx::Value& value : graph.inputs) {
      scope[value.name] = {.type = value.is_tensor ? value.type : int32_t{DataType::kUnknownType},
                           .is_requests = true};
    }
    for (const onnx::Tensor& tensor : graph.initializers) {
      scope[tensor.name] = {tensor.type, fits_32_bits(tensor), true, &tensor};
    }
    for (const onnx::Node& node : graph.nodes) {
      look_at(node, scope);
      for (const onnx::Attribute& attribute : node.attributes) {
        if (attribute.graph != nullptr) look_at(*attribute.graph, scope);
      }
    }
    for (const onnx::Value& output : graph.outputs) look_at_output(output, scope);
  }

  // An output that no node makes may be wider than the backend computes, and so may a constant.
  void look_at_output(const onnx::Value& output, const Scope& scope) {
    const auto known = scope.find(output.name);
    const Known value = known == scope.end() ? Known{} : known->second;
    if (made_.contains(output.name) && !value.is_fixed) return;
    if (value.type == DataType::kInt64 && made_by_shape_.contains(output.name)) return;
    if (value.type == DataType::kFloat || value.type == DataType::kInt32 ||
        value.type == DataType::kBool)
      return;
    note("an output that is an input or a constant of " + std::string(name_of(value.type)));
  }

  // Larger ones would be cut to 32 bits. A tensor whose numbers can't be read is none of these: it
  // is large or no whole numbers, and so no parameter.
  static bool fits_32_bits(const onnx::Tensor& tensor) {
    if (tensor.type != DataType::kInt64) return true;
    const auto numbers = tensor.integers();
    return numbers && std::ranges::all_of(*numbers, [](int64_t one) {
             return one >= INT32_MIN && one <= INT32_MAX;
           });
  }

  void look_at(const onnx::Node& node, Scope& scope) {
    if (node.domain.empty() && node.op_type == "Constant") return add_constant(node, scope);
    const bool is_fixed = makes_a_shape(node, scope);
    if (!is_fixed) {
      std::string problem = problem_of(node, scope);
      if (!problem.empty()) note(std::move(problem));
    }
    note_danger(node, scope);
    note_deviation(node, scope);
    const bool is_shape = node.domain.empty() && node.op_type == "Shape";
    const bool has_graph = std::ranges::any_of(
        node.attributes, [](const onnx::Attribute& one) { return one.graph != nullptr; });
    const bool is_requests =
        has_graph || (!is_shape && std::ranges::any_of(node.inputs, [&](const std::string& name) {
          return find(scope, name).is_requests;
        }));
    for (const std::string& output : node.outputs) {
      if (output.empty()) continue;
      scope[output] = {
          .type = result_of(node, scope, output), .is_fixed = is_fixed, .is_requests = is_requests};
      made_[output] = true;
      if (is_shape) made_by_shape_[output] = true;
    }
  }

  void add_constant(const onnx::Node& node, Scope& scope) {
    Known known;
    for (const onnx::Attribute& attribute : node.attributes) {
      using Kind = onnx::Attribute::Kind;
      const auto small = [](int64_t one) { return one >= INT32_MIN && one <= INT32_MAX; };
      if (attribute.kind == Kind::kTensor && attribute.tensor != nullptr) {
        known = {attribute.tensor->type, fits_32_bits(*attribute.tensor), true,
                 attribute.tensor.get()};
      } else if (attribute.kind == Kind::kFloat || attribute.kind == Kind::kFloats) {
        known = {DataType::kFloat, true, true};
      } else if (attribute.kind == Kind::kInt) {
        known = {DataType::kInt64, small(attribute.i), true, nullptr, &attribute};
      } else if (attribute.kind == Kind::kInts) {
        known = {DataType::kInt64, std::ranges::all_of(attribute.ints, small), true, nullptr,
                 &attribute};
      }
    }
    if (known.type == DataType::kUnknownType)
      note("Constant of another form than a tensor or numbers");
    for (const std::string& output : node.outputs) scope[output] = known;
  }

  static Known find(const Scope& scope, const std::string& name) {
    const auto known = scope.find(name);
    return known == scope.end() ? Known{} : known->second;
  }

  static bool makes_a_shape(const onnx::Node& node, const Scope& scope) {
    if (!node.domain.empty()) return false;
    if (node.op_type == "Shape") return true;
    const bool moves = std::ranges::find(kMoveShapes, node.op_type) != std::end(kMoveShapes);
    return moves && !node.inputs.empty() && std::ranges::all_of(node.inputs, [&](const auto& name) {
             const Known known = find(scope, name);
             return name.empty() || (known.is_fixed && known.type == DataType::kInt64);
           });
  }

  static int32_t result_of(const onnx::Node& node, const Scope& scope, const std::string& output) {
    const auto is_one_of = [&](const auto& list) {
      return std::ranges::find(list, node.op_type) != std::end(list);
    };
    if (!node.domain.empty()) return find(scope, output).type;
    if (node.op_type == "Cast") {
      const onnx::Attribute* to = node.find("to");
      return to == nullptr ? int32_t{DataType::kUnknownType} : static_cast<int32_t>(to->i);
    }
    if (node.op_type == "Shape" || is_one_of(kGiveInt64)) return DataType::kInt64;
    if (is_one_of(kGiveBool)) return DataType::kBool;
    const auto type_of = [&](size_t input) {
      return input < node.inputs.size() ? find(scope, node.inputs[input]).type
                                        : int32_t{DataType::kUnknownType};
    };
    if (node.op_type == "DequantizeLinear") return type_of(1);  // of the scale
    if (node.op_type == "QuantizeLinear") {                     // of the zero point
      return node.inputs.size() > 2 ? type_of(2) : int32_t{DataType::kUint8};
    }
    const size_t like = node.op_type == "Where" ? 1 : 0;
    return node.inputs.size() > like ? type_of(like) : find(scope, output).type;
  }

  // Whether a constant has that number, or may have it.
  static bool holds(const Known& known, int64_t number) {
    if (number == 0) return false;
    if (known.attribute != nullptr) {
      return known.attribute->i == number ||
             std::ranges::find(known.attribute->ints, number) != known.attribute->ints.end();
    }
    if (known.tensor == nullptr) return false;
    const auto numbers = known.tensor->integers();
    return !numbers || std::ranges::find(*numbers, number) != numbers->end();
  }

  void note_danger(const onnx::Node& node, const Scope& scope) {
    for (const OperatorException& exception : table_.exceptions) {
      if (exception.type != node.op_type || exception.domain != node.domain) continue;
      for (size_t i = 0; i < node.inputs.size() && i < 32; ++i) {
        const Known known = find(scope, node.inputs[i]);
        if ((exception.unsafe_inputs >> i & 1) == 0) continue;
        if (!known.is_requests && !holds(known, exception.unsafe_number)) continue;
        const bool is_meant = exception.types.empty() || known.type == DataType::kUnknownType ||
                              has_word(exception.types, name_of(known.type));
        if (!is_meant) continue;
        add(found_.unsafe, node.op_type + " (" + std::string(exception.reason) + ")");
      }
    }
  }

  void note_deviation(const onnx::Node& node, const Scope& scope) {
    for (const OperatorDeviation& deviation : table_.deviations) {
      if (deviation.type != node.op_type || deviation.domain != node.domain) continue;
      if (!has_attributes(node, deviation.attributes)) continue;
      if (!are_connected(node.outputs, deviation.outputs)) continue;
      if (!are_connected(node.inputs, deviation.inputs)) continue;
      if (!has_such_inputs(node, scope, deviation)) continue;
      add(found_.deviating, node.op_type + " (" + std::string(deviation.reason) + ")");
    }
  }

  static bool has_attributes(const onnx::Node& node, std::string_view wanted) {
    for (std::string_view word = take_word(wanted); !word.empty(); word = take_word(wanted)) {
      const size_t equals = word.find('=');
      const onnx::Attribute* attribute = node.find(word.substr(0, equals));
      if (attribute == nullptr || value_of(*attribute) != word.substr(equals + 1)) return false;
    }
    return true;
  }

  static bool are_connected(const std::vector<std::string>& names, uint32_t wanted) {
    for (size_t i = 0; i < 32; ++i) {
      const bool is_connected = i < names.size() && !names[i].empty();
      if ((wanted >> i & 1) != 0 && !is_connected) return false;
    }
    return true;
  }

  static bool has_such_inputs(const onnx::Node& node, const Scope& scope,
                              const OperatorDeviation& deviation) {
    for (size_t i = 0; i < node.inputs.size() && i < 32; ++i) {
      if ((deviation.inputs >> i & 1) == 0) continue;
      const Known known = find(scope, node.inputs[i]);
      const bool is_known = known.type != DataType::kUnknownType;
      if (is_known && !deviation.types.empty() && !has_word(deviation.types, name_of(known.type))) {
        return false;
      }
      if (deviation.of_fractions && is_whole(known)) return false;
    }
    return true;
  }

  static bool is_whole(const Known& known) {
    const auto numbers = known.tensor == nullptr ? std::nullopt : known.tensor->floats();
    return numbers &&
           std::ranges::all_of(*numbers, [](float one) { return one == std::nearbyint(one); });
  }

  // Why no row of the table allows the node; empty: one does.
  std::string problem_of(const onnx::Node& node, const Scope& scope) {
    std::string label = node.domain.empty() ? node.op_type : node.domain + "." + node.op_type;
    const auto opset = model_.opsets.find(node.domain);
    if (opset == model_.opsets.end())
      return label + " of an operator set that the file does not name";
    std::string nearest;
    if (table_.rules.empty() || (is_judged_ && is_quantising(node))) return {};
    for (const OperatorRule& rule : table_.rules) {
      if (rule.type != node.op_type || rule.domain != node.domain) continue;
      if (opset->second < rule.first_opset || opset->second > rule.last_opset) {
        if (nearest.empty()) nearest = label + " of opset " + std::to_string(opset->second);
        continue;
      }
      std::string problem = difference(rule, node, scope);
      if (problem.empty()) return {};
      nearest = label + problem;
    }
    if (!nearest.empty()) return nearest;
    for (const OperatorException& exception : table_.exceptions) {
      if (exception.type == node.op_type && exception.domain == node.domain) {
        return label + " (" + std::string(exception.reason) + ")";
      }
    }
    return label;
  }

  static bool is_quantising(const onnx::Node& node) {
    return node.domain.empty() &&
           (node.op_type == "QuantizeLinear" || node.op_type == "DequantizeLinear");
  }
  [[nodiscard]] bool is_judged(int32_t type) const {
    return is_judged_ && (type == DataType::kInt8 || type == DataType::kUint8);
  }

  // How the node differs from a row; begins with a blank. Empty: the row allows it.
  [[nodiscard]] std::string difference(const OperatorRule& rule, const onnx::Node& node,
                                       const Scope& scope) const {
    for (const onnx::Attribute& attribute : node.attributes) {
      if (allows_attribute(rule.attributes, attribute)) continue;
      const std::string value = value_of(attribute);
      return " with " + attribute.name + (value.empty() ? "" : "=" + value);
    }
    const std::string_view missing = missing_attribute(rule.attributes, node);
    if (!missing.empty()) return " without " + std::string(missing);
    if (connected(node.inputs) > rule.most_inputs) {
      return " with " + std::to_string(connected(node.inputs)) + " inputs";
    }
    if (connected(node.outputs) > rule.most_outputs) {
      return " with " + std::to_string(connected(node.outputs)) + " outputs";
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i].empty()) continue;
      const Known known = find(scope, node.inputs[i]);
      const bool is_parameter = i < 32 && (rule.parameters >> i & 1) != 0;
      const bool is_clamped = i < 32 && (rule.clamped >> i & 1) != 0 && known.is_constant;
      if (is_parameter && !known.is_fixed && !is_clamped) {
        return " whose input " + std::to_string(i) + " is no constant of 32 bits";
      }
      if (is_parameter && known.type == DataType::kInt64) continue;
      if (!has_word(rule.types, name_of(known.type)) && !is_judged(known.type)) {
        return " of " + std::string(name_of(known.type));
      }
    }
    const std::string_view results = rule.results.empty() ? rule.types : rule.results;
    for (const std::string& output : node.outputs) {
      if (output.empty()) continue;
      const int32_t type = result_of(node, scope, output);
      if (has_word(results, name_of(type)) || is_judged(type)) continue;
      return " to " + std::string(name_of(type));
    }
    return {};
  }

  // Up to the last one that is connected.
  static size_t connected(const std::vector<std::string>& names) {
    size_t count = names.size();
    while (count > 0 && names[count - 1].empty()) --count;
    return count;
  }

  const OperatorTable& table_;
  const onnx::Model& model_;
  const bool is_judged_;                           // as JudgedByRows says
  std::map<std::string, bool, std::less<>> made_;  // by a node
  std::map<std::string, bool, std::less<>> made_by_shape_;
  OperatorFindings found_;
};

}  // namespace

OperatorFindings compare_operators(const OperatorTable& table, const onnx::Model& model,
                                   JudgedByRows judged) {
  return Search(table, model, judged).run();
}

}  // namespace lumen::models
