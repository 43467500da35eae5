// See the header.
#include "models/row_independence.h"

#include "models/row_values.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lumen::models {
namespace {

class Proof {
 public:
  explicit Proof(const onnx::Model& model) : model_(model), graph_(model.graph) {}

  std::string run() {
    for (const onnx::Tensor& tensor : graph_.initializers) values_[tensor.name] = constant(tensor);
    for (const onnx::Value& input : graph_.inputs) {
      if (values_.contains(input.name)) continue;
      const bool is_free = input.has_shape && !input.shape.empty() && input.shape[0].size < 0;
      if (!is_free) return "input '" + input.name + "' has no free first axis";
      values_[input.name] = rows_of(input);
    }
    for (const onnx::Node& node : graph_.nodes) {
      std::string problem = go_through(node);
      if (!problem.empty()) return problem;
    }
    for (const onnx::Value& output : graph_.outputs) {
      const auto found = values_.find(output.name);
      const bool has_rows = found != values_.end() && found->second.has_rows() &&
                            found->second.axis == 0 && found->second.shape &&
                            !found->second.shape->empty() &&
                            found->second.shape->front() == RowSize::rows();
      if (!has_rows)
        return "the first axis of output '" + output.name + "' is not known to have the rows";
    }
    return {};
  }

 private:
  static RowValue constant(const onnx::Tensor& tensor) {
    RowValue value;
    value.shape.emplace();
    for (const int64_t size : tensor.dims) value.shape->push_back(RowSize::of(size));
    if (const auto integers = tensor.integers()) {
      value.numbers.emplace();
      for (const int64_t one : *integers) value.numbers->push_back(RowSize::of(one));
    }
    return value;
  }

  static RowValue rows_of(const onnx::Value& input) {
    RowValue value{.kind = RowValue::Kind::kRows, .axis = 0, .shape = RowShape(), .numbers = {}};
    for (size_t i = 0; i < input.shape.size(); ++i) {
      const int64_t size = input.shape[i].size;
      value.shape->push_back(i == 0     ? RowSize::rows()
                             : size < 0 ? RowSize::other()
                                        : RowSize::of(size));
    }
    return value;
  }

  // As messages name a node.
  static std::string label(const onnx::Node& node) {
    std::string text = node.op_type;
    if (!node.outputs.empty()) text += " '" + node.outputs.front() + "'";
    return text;
  }

  std::string go_through(const onnx::Node& node) {
    const auto opset = model_.opsets.find(node.domain);
    if (opset == model_.opsets.end())
      return label(node) + " is of an operator set without a version";
    RowNode one{.node = node, .opset = opset->second, .inputs = {}, .outputs = {}};
    one.outputs.resize(node.outputs.size());
    bool is_fixed = true;
    for (const std::string& name : node.inputs) {
      if (name.empty()) {
        one.inputs.push_back(nullptr);
        continue;
      }
      const auto found = values_.find(name);
      if (found == values_.end())
        return label(node) + " has an input that nothing makes, '" + name + "'";
      one.inputs.push_back(&found->second);
      is_fixed = is_fixed && found->second.is_fixed();
    }
    const bool has_graph = std::ranges::any_of(
        node.attributes,
        [](const onnx::Attribute& attribute) { return attribute.graph != nullptr; });
    const std::string function = node.domain + ":" + node.op_type;
    if (std::ranges::find(model_.functions, function) != model_.functions.end()) {
      return label(node) + " is a function of the file, which is not followed";
    }
    if (has_graph) return label(node) + " runs a graph of its own, which is not followed";
    std::string problem = transfer(one, is_fixed);
    if (!problem.empty()) return problem;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (!node.outputs[i].empty()) values_[node.outputs[i]] = std::move(one.outputs[i]);
    }
    return {};
  }

  static std::string transfer(RowNode& one, bool is_fixed) {
    const onnx::Node& node = one.node;
    const bool is_own = node.domain.empty();
    if (is_own && compute_sizes(one)) return {};
    if (is_own && node.op_type.starts_with("Random"))
      return label(node) + " gives other numbers each time";
    if (is_fixed) {
      if (is_own) fill_in_fixed(one);
      return {};
    }
    const RowRule rule = find_row_rule(node.domain, node.op_type);
    if (rule == nullptr) return label(node) + " is not known to work row by row";
    std::string problem = rule(one);
    return problem.empty() ? problem : label(node) + " " + problem;
  }

  const onnx::Model& model_;
  const onnx::Graph& graph_;
  std::map<std::string, RowValue, std::less<>> values_;
};

}  // namespace

std::string why_rows_may_meet(const onnx::Model& model) { return Proof(model).run(); }

}  // namespace lumen::models
