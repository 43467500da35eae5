// See the header.
#include "backends/onnxruntime/zip_map.h"

#include <lumen/onnx/proto.h>

#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

namespace lumen::backends::onnxruntime {

using namespace onnx;  // fields of a model's file
namespace {

struct ZipMap {
  std::string input;
  std::string output;
  std::vector<std::string> labels;
};

// Empty: the attribute has none.
std::vector<std::string> read_labels(Bytes attribute) {
  Fields fields(attribute);
  std::string_view name;
  std::vector<std::string> found;
  while (const auto field = fields.next()) {
    if (field->number == kAttributeName) name = text_of(field->payload);
    if (field->number == kStrings) found.emplace_back(text_of(field->payload));
    if (field->number != kInts) continue;
    if (field->type == kVarint) found.push_back(std::to_string(static_cast<int64_t>(field->value)));
    // Packed: numbers without tags. A tag of their own makes each a field.
    Bytes packed = field->payload;
    uint64_t value = 0;
    for (unsigned shift = 0; !packed.empty(); packed = packed.subspan(1)) {
      const auto byte = static_cast<uint8_t>(packed.front());
      if (shift < 64) value |= uint64_t{byte & 0x7Fu} << shift;
      shift += 7;
      if ((byte & 0x80u) != 0) continue;
      found.push_back(std::to_string(static_cast<int64_t>(value)));
      value = 0;
      shift = 0;
    }
  }
  if (!name.starts_with("classlabels_")) found.clear();
  return found;
}

std::string_view name_of(Bytes value) {
  return text_of(find_field(value, kValueName).value_or(Bytes()));
}

std::optional<ZipMap> read_zip_map(Bytes node) {
  if (text_of(find_field(node, kOpType).value_or(Bytes())) != "ZipMap") return std::nullopt;
  ZipMap zip;
  Fields fields(node);
  while (const auto field = fields.next()) {
    if (field->number == kInput) zip.input = text_of(field->payload);
    if (field->number == kNodeOutput) zip.output = text_of(field->payload);
    if (field->number != kAttribute) continue;
    std::vector<std::string> labels = read_labels(field->payload);
    if (!labels.empty()) zip.labels = std::move(labels);
  }
  return zip;
}

// Identity instead of ZipMap: the name of the output stays.
std::vector<std::byte> identity_node(const ZipMap& zip) {
  MessageWriter node;
  node.add_text(kInput, zip.input);
  node.add_text(kNodeOutput, zip.output);
  node.add_text(kOpType, "Identity");
  return std::move(node.bytes());
}

// FP32, any number of rows, one column a label.
std::vector<std::byte> tensor_output(const ZipMap& zip) {
  MessageWriter columns;
  columns.add_number(1, zip.labels.size());  // dim_value
  MessageWriter shape;
  shape.add_message(1, {});  // dim: nothing said
  shape.add_message(1, columns.bytes());
  MessageWriter tensor;
  tensor.add_number(kElementType, 1);  // FLOAT
  tensor.add_message(kShape, shape.bytes());
  MessageWriter type;
  type.add_message(kTensorType, tensor.bytes());
  MessageWriter value;
  value.add_text(kValueName, zip.output);
  value.add_message(kValueType, type.bytes());
  return std::move(value.bytes());
}

// By name, those whose output is one of the graph's.
using ZipMaps = std::map<std::string, ZipMap, std::less<>>;

ZipMaps find_zip_maps(Bytes graph) {
  ZipMaps found;
  std::set<std::string_view> outputs;
  Fields fields(graph);
  while (const auto field = fields.next()) {
    if (field->number == kOutput) outputs.insert(name_of(field->payload));
    if (field->number != kNode) continue;
    if (auto zip = read_zip_map(field->payload)) found.emplace(zip->output, std::move(*zip));
  }
  std::erase_if(found, [&](const auto& zip) { return !outputs.contains(zip.first); });
  return found;
}

std::vector<std::byte> cut_graph(Bytes graph, const ZipMaps& zips) {
  MessageWriter cut;
  Fields fields(graph);
  while (const auto field = fields.next()) {
    if (field->number == kNode) {
      const auto zip = read_zip_map(field->payload);
      if (zip && zips.contains(zip->output)) {
        cut.add_message(kNode, identity_node(*zip));
        continue;
      }
    }
    const auto zip = field->number == kOutput ? zips.find(name_of(field->payload)) : zips.end();
    if (zip == zips.end()) {
      cut.add(field->whole);
    } else {
      cut.add_message(kOutput, tensor_output(zip->second));
    }
  }
  return std::move(cut.bytes());
}

// Whether an operator set of ONNX itself, where Identity is, is imported.
bool is_default_opset(Bytes opset) {
  Fields fields(opset);
  while (const auto field = fields.next()) {
    if (field->number == 1 && !field->payload.empty() && text_of(field->payload) != "ai.onnx") {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<CutModel> cut_zip_maps(std::span<const std::byte> model) {
  const ZipMaps zips = find_zip_maps(find_field(model, kGraph).value_or(Bytes()));
  if (zips.empty()) return std::nullopt;
  CutModel cut;
  for (const auto& [output, zip] : zips) cut.labels.emplace(output, zip.labels);
  MessageWriter writer;
  Fields fields(model);
  bool has_opset = false;
  while (const auto field = fields.next()) {
    has_opset |= field->number == kOpsetImport && is_default_opset(field->payload);
    if (field->number == kGraph) {
      writer.add_message(kGraph, cut_graph(field->payload, zips));
    } else {
      writer.add(field->whole);
    }
  }
  if (!fields.is_whole()) return std::nullopt;
  if (!has_opset) {
    MessageWriter opset;
    opset.add_number(2, 13);  // version: Identity takes all types
    writer.add_message(kOpsetImport, opset.bytes());
  }
  cut.bytes = std::move(writer.bytes());
  return cut;
}

}  // namespace lumen::backends::onnxruntime
