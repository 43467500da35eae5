// Which operators are known to work row by row, and those that work element by element. See
// row_values.h.
#include "models/row_rules.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace lumen::models {
namespace row_rules {

// --- operators of element by element, with broadcasting

std::string broadcast(RowNode& node) {
  size_t rank = 0;
  for (const RowValue* value : node.inputs) {
    if (value == nullptr) continue;
    if (value->kind == Kind::kSizes) return "computes with the number of rows";
    if (!value->shape) return kNotFollowed;
    rank = std::max(rank, value->rank());
  }
  std::optional<size_t> axis;
  for (const RowValue* value : node.inputs) {
    if (value == nullptr || !value->has_rows()) continue;
    const size_t own = value->axis + rank - value->rank();
    if (axis && *axis != own) return "brings together tensors with the rows in other axes";
    axis = own;
  }
  if (!axis) return kNotFollowed;
  RowShape shape(rank, RowSize::of(1));
  for (const RowValue* value : node.inputs) {
    if (value == nullptr) continue;
    for (size_t i = 0; i < value->rank(); ++i) {
      RowSize& out = shape[i + rank - value->rank()];
      const RowSize size = (*value->shape)[i];
      const bool is_at_rows = i + rank - value->rank() == *axis;
      if (is_at_rows && value->is_fixed() && !size.is(1)) {
        return "has a constant with a size in the axis of rows";
      }
      if (is_at_rows && value->has_rows() && out.has_rows() && out != size) return kNotFollowed;
      if (size.is(1)) continue;
      const bool is_known = out.is(1) || out == size;
      out = is_known ? size : is_at_rows ? RowSize::unknown() : RowSize::other();
    }
  }
  give_all(node, rows(std::move(shape), *axis));
  return {};
}

// Of its first input; the others are constants, whose shapes do not widen the result.
std::string same_shape(RowNode& node) {
  const RowValue* x = rows_at(node, 0);
  if (x == nullptr || !are_fixed(node, 1)) return kNotFollowed;
  give_all(node, rows(*x->shape, x->axis));
  return {};
}

std::string dropout(RowNode& node) {
  const RowValue* training = node.input(2);
  const Axes is_training = training == nullptr ? Axes() : training->constants();
  if (training != nullptr && (!is_training || is_training != std::vector<int64_t>{0})) {
    return "gives other numbers each time";
  }
  return same_shape(node);
}

}  // namespace row_rules

namespace {

using namespace row_rules;

// Names by a space.
struct NamedRule {
  std::string_view types;
  RowRule rule;
};
constexpr NamedRule kNamedRules[] = {
    {"Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot "
     "BitwiseOr BitwiseXor Cast Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor "
     "Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu "
     "Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal "
     "Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum "
     "Swish Tan Tanh ThresholdedRelu Where Xor",
     broadcast},
    {"Dropout", dropout},
    {"Softmax LogSoftmax Hardmax", softmax},
    {"LpNormalization", lp_normalization},
    {"CumSum", cum_sum},
    {"LayerNormalization RMSNormalization SimplifiedLayerNormalization", layer_normalization},
    {"ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
     "ReduceProd ReduceSum ReduceSumSquare",
     reduce},
    {"ArgMax ArgMin", arg_max},
    {"TopK", top_k},
    {"Concat", concat},
    {"Split", split},
    {"Slice", slice},
    {"Pad", pad},
    {"Gather", gather},
    {"GatherElements", gather_elements},
    {"MatMul MatMulInteger", mat_mul},
    {"Gemm", gemm},
    {"Conv", convolution},
    {"ConvTranspose DepthToSpace SpaceToDepth LpPool", by_picture},
    {"MaxPool AveragePool", pool},
    {"GlobalAveragePool GlobalMaxPool GlobalLpPool", global_pool},
    {"BatchNormalization InstanceNormalization GroupNormalization LRN", by_channel},
    {"Transpose", transpose},
    {"Squeeze", squeeze},
    {"Unsqueeze", unsqueeze},
    {"Reshape", reshape},
    {"Flatten", flatten},
    {"Expand", expand},
    {"ConstantOfShape", constant_of_shape},
    {"Tile", tile},
    {"QuantizeLinear DequantizeLinear", quantize},
    {"LSTM GRU RNN", recurrent},
};

const std::map<std::string_view, RowRule>& rules() {
  static const std::map<std::string_view, RowRule> kRules = [] {
    std::map<std::string_view, RowRule> all;
    for (const auto& [types, rule] : kNamedRules) {
      for (size_t at = 0; at < types.size();) {
        const size_t end = std::min(types.find(' ', at), types.size());
        all[types.substr(at, end - at)] = rule;
        at = end + 1;
      }
    }
    return all;
  }();
  return kRules;
}

const std::map<std::string_view, RowRule>& table_rules() {
  static const std::map<std::string_view, RowRule> kRules = {
      {"TreeEnsemble", by_table_row},
      {"TreeEnsembleClassifier", by_table_row},
      {"TreeEnsembleRegressor", by_table_row},
      {"LinearClassifier", by_table_row},
      {"LinearRegressor", by_table_row},
      {"SVMClassifier", by_table_row},
      {"SVMRegressor", by_table_row},
      {"Scaler", by_table_row},
      {"Normalizer", by_table_row},
      {"Imputer", by_table_row},
      {"Binarizer", by_table_row},
      {"LabelEncoder", same_shape},
      {"CategoryMapper", same_shape},
      {"ZipMap", same_shape},
      {"OneHotEncoder", one_hot_encoder},
      {"FeatureVectorizer", feature_vectorizer},
      {"ArrayFeatureExtractor", array_feature_extractor},
  };
  return kRules;
}

}  // namespace

RowRule find_row_rule(std::string_view domain, std::string_view type) {
  if (!domain.empty() && domain != "ai.onnx.ml") return nullptr;
  const auto& table = domain.empty() ? rules() : table_rules();
  const auto found = table.find(type);
  return found == table.end() ? nullptr : found->second;
}

void fill_in_fixed(RowNode& node) {
  const std::string& type = node.node.op_type;
  const RowValue* x = node.input(0);
  if (x == nullptr || !x->shape) return;
  RowValue& out = node.outputs.front();
  if (type == "Identity" || type == "Cast" || type == "QuantizeLinear" ||
      type == "DequantizeLinear") {
    out.shape = x->shape;
    return;
  }
  if (type == "Transpose") {
    auto order = node.node.integers("perm");
    RowShape shape;
    for (size_t i = 0; i < x->rank(); ++i) {
      const size_t from =
          order && i < order->size() ? static_cast<size_t>((*order)[i]) : x->rank() - 1 - i;
      if (from >= x->rank()) return;
      shape.push_back((*x->shape)[from]);
    }
    out.shape = std::move(shape);
    return;
  }
  if (type == "Unsqueeze") {
    bool is_given = false;
    const Axes axes = axes_of(node, "axes", 1, is_given);
    if (!is_given || !axes) return;
    const size_t rank = x->rank() + axes->size();
    std::vector<bool> is_new(rank, false);
    for (const int64_t one : *axes) {
      const auto axis = axis_of(one, rank);
      if (!axis) return;
      is_new[*axis] = true;
    }
    RowShape shape;
    size_t from = 0;
    for (size_t i = 0; i < rank; ++i) {
      shape.push_back(is_new[i] || from >= x->rank() ? RowSize::of(1) : (*x->shape)[from++]);
    }
    out.shape = std::move(shape);
    return;
  }
  if (type == "Reshape" && node.input(1) != nullptr) {
    const Axes sizes = node.input(1)->constants();
    if (!sizes) return;
    RowShape shape;
    for (const int64_t size : *sizes)
      shape.push_back(size > 0 ? RowSize::of(size) : RowSize::other());
    out.shape = std::move(shape);
  }
}

}  // namespace lumen::models
