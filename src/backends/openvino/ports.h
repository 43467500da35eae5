// OpenVINO's words in ours: datatypes, shapes, tensor names, exceptions. Part of backend.cc,
// which alone includes it. Threads: any. Memory: the heap where OpenVINO's types need it.
// Errors: nullopt or a Status for types that the protocol has no word for.
#pragma once

#include <lumen/base/limits.h>
#include <lumen/base/result.h>
#include <lumen/models/metadata.h>
#include <lumen/tensor/tensor_view.h>

#include "backends/failure.h"

#include <openvino/openvino.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lumen::backends::openvino {

using namespace models;  // the types that a backend implements

struct TypePair {
  ElementType ours;
  ov::element::Type_t theirs;
};
inline constexpr std::array<TypePair, 14> kTypes = {{
    {ElementType::kBool, ov::element::Type_t::boolean},
    {ElementType::kUint8, ov::element::Type_t::u8},
    {ElementType::kUint16, ov::element::Type_t::u16},
    {ElementType::kUint32, ov::element::Type_t::u32},
    {ElementType::kUint64, ov::element::Type_t::u64},
    {ElementType::kInt8, ov::element::Type_t::i8},
    {ElementType::kInt16, ov::element::Type_t::i16},
    {ElementType::kInt32, ov::element::Type_t::i32},
    {ElementType::kInt64, ov::element::Type_t::i64},
    {ElementType::kFp16, ov::element::Type_t::f16},
    {ElementType::kBf16, ov::element::Type_t::bf16},
    {ElementType::kFp32, ov::element::Type_t::f32},
    {ElementType::kFp64, ov::element::Type_t::f64},
    {ElementType::kBytes, ov::element::Type_t::string},
}};

inline std::optional<ElementType> our_type(const ov::element::Type& type) noexcept {
  const auto found =
      std::ranges::find(kTypes, static_cast<ov::element::Type_t>(type), &TypePair::theirs);
  return found == kTypes.end() ? std::nullopt : std::optional(found->ours);
}

inline ov::element::Type their_type(ElementType type) noexcept {
  return std::ranges::find(kTypes, type, &TypePair::ours)->theirs;
}

inline ov::Shape their_shape(const Shape& shape) {
  ov::Shape result;
  for (const int64_t dimension : shape.dimensions()) {
    result.push_back(static_cast<size_t>(dimension));
  }
  return result;
}

inline std::optional<Shape> our_shape(const ov::PartialShape& shape) {
  Shape result;
  if (shape.rank().is_dynamic()) return std::nullopt;
  for (const ov::Dimension& dimension : shape) {
    if (!result.append(dimension.is_static() ? dimension.get_length() : Shape::kDynamic)) {
      return std::nullopt;
    }
  }
  return result;
}

// A model's port in our words. `shape` holds -1 for a free axis; `bounds` is kept only if an axis
// is free within limits, which metadata can't say.
struct Port {
  TensorSpec spec;
  std::optional<ov::PartialShape> bounds;
};

inline std::string port_name(const ov::Output<ov::Node>& port, const char* kind, size_t index,
                             const std::vector<Port>& before) {
  // A port may have several names or none: where a frontend drops an operator (Dropout), its input
  // and its output become one value with both names. Of a file that is no ONNX graph its name is
  // that of the node, which the frontend adds an ending to for outputs. Else the first in byte
  // order, which does not change with the order in which a frontend met them; without any, kind and
  // position.
  std::string name = std::string(kind) + "_" + std::to_string(index);
  const auto& names = port.get_names();
  const std::string& node = port.get_node()->get_friendly_name();
  const std::string of_file = node.substr(0, node.find("/sink_port_"));
  if (names.contains(of_file)) {
    name = of_file;
  } else if (!names.empty()) {
    name = *std::ranges::min_element(names);
  }
  const auto taken = [&before](const std::string& candidate) {
    return std::ranges::any_of(before, [&](const Port& p) { return p.spec.name == candidate; });
  };
  while (taken(name)) name += "_";
  return name;
}

// Whether the names in a file are those of the ports, in the same order. One that no port has was
// dropped by the frontend together with its operator.
inline bool are_names_of(std::span<const std::string> names,
                         const std::vector<ov::Output<ov::Node>>& ports) {
  if (names.size() != ports.size()) return false;
  for (size_t i = 0; i < ports.size(); ++i) {
    const auto has_it = [&](const ov::Output<ov::Node>& port) {
      return port.get_names().contains(names[i]);
    };
    if (!has_it(ports[i]) && std::ranges::any_of(ports, has_it)) return false;
  }
  return true;
}

// `names`: of the ports in the file, in its order, where it is known.
inline Result<std::vector<Port>> describe_ports(const std::string& model,
                                                const std::vector<ov::Output<ov::Node>>& ports,
                                                const char* kind,
                                                std::span<const std::string> names) {
  std::vector<Port> described;
  const bool is_as_in_file = are_names_of(names, ports);
  for (size_t i = 0; i < ports.size(); ++i) {
    Port port;
    port.spec.name = is_as_in_file ? names[i] : port_name(ports[i], kind, i, described);
    const std::optional<ElementType> type = our_type(ports[i].get_element_type());
    const ov::PartialShape& partial = ports[i].get_partial_shape();
    const std::optional<Shape> shape = our_shape(partial);
    if (!type || !shape) {
      return Status::error(Code::kUnsupported,
                           "model '%s': %s '%s' is %s %s; wanted a datatype of the protocol and a "
                           "rank of at most %zu",
                           model.c_str(), kind, port.spec.name.c_str(),
                           ports[i].get_element_type().get_type_name().c_str(),
                           partial.to_string().c_str(), limits::kMaxRank);
    }
    port.spec.type = *type;
    port.spec.shape = *shape;
    const bool bounded = std::ranges::any_of(partial, [](const ov::Dimension& d) {
      return d.is_dynamic() && (d.get_min_length() > 0 || d.get_max_length() >= 0);
    });
    if (bounded) port.bounds = partial;
    described.push_back(std::move(port));
  }
  return described;
}

// OpenVINO's CPU plugin computes INT64 and UINT64 as 32 bits and drops the upper half without a
// word (2026.4: Identity of 2^40 + 1 is 1). A wrong answer is worse than none, so numbers that do
// not fit are refused; 8 bytes a clock, which small integer inputs don't feel.
inline Status check_wide_integers(const std::string& input, const TensorView& tensor) noexcept {
  const bool is_signed = tensor.type == ElementType::kInt64;
  if (!is_signed && tensor.type != ElementType::kUint64) return {};
  for (size_t offset = 0; offset < tensor.byte_size; offset += sizeof(uint64_t)) {
    uint64_t bits = 0;
    std::memcpy(&bits, tensor.data + offset, sizeof(bits));
    // -2^31 .. 2^31 - 1, and for UINT64 the upper half of that.
    const uint64_t shifted = is_signed ? bits + (uint64_t{1} << 31) : bits;
    if (shifted < (uint64_t{1} << (is_signed ? 32 : 31))) continue;
    return Status::error(Code::kInvalidArgument,
                         "input '%s': element %zu does not fit into 32 bits, with which OpenVINO "
                         "computes %s; wanted numbers %s 2147483647",
                         input.c_str(), offset / sizeof(uint64_t),
                         element_type_name(tensor.type).data(),
                         is_signed ? "from -2147483648 to" : "up to");
  }
  return {};
}

// Sizes within the limits that the model gives for its free axes.
inline Status check_bounds(const std::vector<Port>& inputs, std::span<const TensorView> tensors) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Port& port = inputs[i];
    if (!port.bounds || port.bounds->compatible(their_shape(tensors[i].shape))) continue;
    return Status::error(Code::kInvalidArgument, "input '%s': got shape %s, wanted %s",
                         port.spec.name.c_str(),
                         ov::PartialShape(their_shape(tensors[i].shape)).to_string().c_str(),
                         port.bounds->to_string().c_str());
  }
  return {};
}

}  // namespace lumen::backends::openvino
