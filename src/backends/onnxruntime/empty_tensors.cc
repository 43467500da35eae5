// See the header.
#include "backends/onnxruntime/empty_tensors.h"

#include <algorithm>
#include <string_view>

namespace lumen::backends::onnxruntime {
namespace {

#include "backends/onnxruntime/empty_operators.inc"

// "TopK", or "ai.onnx.ml:Scaler".
bool is_named(std::string_view name, const onnx::Node& node) noexcept {
  const bool is_default = node.domain.empty() || node.domain == "ai.onnx";
  const size_t colon = name.find(':');
  if (is_default || colon == name.npos) return is_default && name == node.op_type;
  return name.substr(0, colon) == node.domain && name.substr(colon + 1) == node.op_type;
}

}  // namespace

bool takes_empty_tensors(const onnx::Graph& graph, std::string_view version) noexcept {
  if (graph.nodes.empty() || version != kVersion) return false;
  return std::ranges::all_of(graph.nodes, [](const onnx::Node& node) {
    return std::ranges::any_of(kTakeEmpty,
                               [&node](std::string_view name) { return is_named(name, node); });
  });
}

}  // namespace lumen::backends::onnxruntime
