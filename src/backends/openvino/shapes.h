// Which shapes a model takes, by OpenVINO's shape inference on a copy of the model. Part of
// backend.cc, which alone includes it.
// Threads: find_ties() on the control plane; a ShapeCheck belongs to one instance.
// Memory: the copy at construction (its weights are shared); the heap for shapes not asked for
// lately.
// Errors: false, or no tie; exceptions that are not OpenVINO's own pass through.
#pragma once

#include <lumen/models/metadata.h>
#include <lumen/tensor/tensor_view.h>

#include "backends/openvino/ports.h"

#include <openvino/op/constant.hpp>
#include <openvino/op/parameter.hpp>
#include <openvino/openvino.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lumen::backends::openvino {

// OpenVINO's graph (2026.4) is not to be used again once a run of it has thrown: nodes that had
// their outputs resized but did not run keep the sizes of the failed request, and later runs fail,
// until their shapes differ from those of the last run that did not. So a run that would fail by
// its shapes never begins: each combination of shapes is asked for here once. It costs 0.1 to 0.7
// ms, a tenth or less of the first run with new shapes.
class ShapeCheck {
 public:
  explicit ShapeCheck(const ov::Model& model)
      : model_(model.clone()), parameters_(model_->get_parameters()) {}

  // Whether the model takes inputs of these shapes, as far as shapes alone tell.
  [[nodiscard]] bool accepts(std::span<const TensorView> inputs) {
    const uint64_t key = hash(inputs);
    uint64_t& place = accepted_[key % kRemembered];
    if (place == key) return true;
    try {
      for (size_t i = 0; i < parameters_.size(); ++i) {
        parameters_[i]->set_partial_shape(their_shape(inputs[i].shape));
      }
      model_->validate_nodes_and_infer_types();
    } catch (const ov::Exception&) {
      return false;
    }
    place = key;
    return true;
  }

  // The same with the numbers of small integer inputs, which may be sizes. For runs that failed: it
  // makes another copy of the model.
  [[nodiscard]] bool accepts_values(std::span<const TensorView> inputs) const {
    try {
      const std::shared_ptr<ov::Model> model = model_->clone();
      const ov::ParameterVector parameters = model->get_parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        const TensorView& input = inputs[i];
        const bool may_be_sizes =
            input.type == ElementType::kInt32 || input.type == ElementType::kInt64;
        if (may_be_sizes && input.byte_size <= kMaxSizesBytes) {
          parameters[i]->output(0).replace(std::make_shared<ov::op::v0::Constant>(
              their_type(input.type), their_shape(input.shape), input.data));
        } else {
          parameters[i]->set_partial_shape(their_shape(input.shape));
        }
      }
      model->validate_nodes_and_infer_types();
    } catch (const ov::Exception&) {
      return false;
    }
    return true;
  }

 private:
  // Combinations of shapes that are remembered as accepted: 8 KiB an instance. One that is
  // forgotten is asked for again.
  static constexpr size_t kRemembered = 1024;
  // An input that holds sizes has one number for each axis, or for each of a few parts.
  static constexpr size_t kMaxSizesBytes = 1024;

  // FNV-1a by 64-bit words, mixed at the end. Two combinations with one hash, once in 2^64: the run
  // then fails, as it did before there was a check, and the instance is made anew.
  static uint64_t hash(std::span<const TensorView> inputs) noexcept {
    uint64_t bits = 0xCBF2'9CE4'8422'2325u;
    const auto add = [&bits](uint64_t word) {
      bits = (bits ^ word) * 0x9E37'79B9'7F4A'7C15u;
      bits ^= bits >> 29;
    };
    for (const TensorView& input : inputs) {
      add(input.shape.rank());
      for (const int64_t size : input.shape.dimensions()) add(static_cast<uint64_t>(size));
    }
    return bits == 0 ? 1 : bits;  // 0 is an empty place
  }

  std::shared_ptr<ov::Model> model_;
  ov::ParameterVector parameters_;
  std::array<uint64_t, kRemembered> accepted_{};
};

// A free axis of an input.
struct FreeAxis {
  uint16_t input;
  uint16_t axis;
};

// Whether shape inference refuses sizes for the two axes that differ, 1 beside others included
// (which broadcasting would take). Everything else stays free.
inline bool refuses_unequal(ov::Model& model, FreeAxis one, FreeAxis other) {
  constexpr std::array<std::array<int64_t, 2>, 3> kUnequal = {{{2, 3}, {1, 2}, {2, 1}}};
  const auto shape_of = [&model](FreeAxis place) {
    return model.get_parameters()[place.input]->get_partial_shape();
  };
  const auto accepts = [&](int64_t size, int64_t other_size) {
    ov::PartialShape shape = shape_of(one);
    shape[one.axis] = size;
    model.get_parameters()[one.input]->set_partial_shape(shape);
    shape = shape_of(other);  // of the same input perhaps
    shape[other.axis] = other_size;
    model.get_parameters()[other.input]->set_partial_shape(shape);
    try {
      model.validate_nodes_and_infer_types();
      return true;
    } catch (const ov::Exception&) {
      return false;
    }
  };
  const ov::PartialShape before = shape_of(one);
  const ov::PartialShape other_before = shape_of(other);
  const bool refuses = std::ranges::none_of(
      kUnequal, [&](const std::array<int64_t, 2>& sizes) { return accepts(sizes[0], sizes[1]); });
  model.get_parameters()[one.input]->set_partial_shape(before);
  model.get_parameters()[other.input]->set_partial_shape(other_before);
  return refuses;
}

// Each pair is tried on the whole model, which takes the square of their number. The runs of a
// model with more axes refuse sizes that differ.
constexpr size_t kMostAxesTried = 256;

// Each free axis of the inputs gets a symbol of its own; operations that take equal sizes only make
// their symbols equal. The result is tried out before it is believed.
inline std::vector<TiedAxes> find_ties(const ov::Model& model) {
  const std::shared_ptr<ov::Model> copy = model.clone();
  std::vector<std::pair<FreeAxis, std::shared_ptr<ov::Symbol>>> axes;
  const ov::ParameterVector parameters = copy->get_parameters();
  for (size_t input = 0; input < parameters.size(); ++input) {
    ov::PartialShape shape = parameters[input]->get_partial_shape();
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis].is_static()) continue;
      if (!shape[axis].has_symbol()) shape[axis].set_symbol(std::make_shared<ov::Symbol>());
      axes.push_back(
          {{static_cast<uint16_t>(input), static_cast<uint16_t>(axis)}, shape[axis].get_symbol()});
    }
    parameters[input]->set_partial_shape(shape);
  }
  if (axes.size() < 2 || axes.size() > kMostAxesTried) return {};
  try {
    copy->validate_nodes_and_infer_types();
  } catch (const ov::Exception&) {
    return {};  // compiling it will say why
  }
  const std::shared_ptr<ov::Model> trial = model.clone();
  std::vector<TiedAxes> ties;
  std::map<std::shared_ptr<ov::Symbol>, FreeAxis> first_of;
  for (const auto& [place, symbol] : axes) {
    const auto [first, is_new] = first_of.emplace(ov::symbol::ancestor_of(symbol), place);
    if (is_new || !refuses_unequal(*trial, first->second, place)) continue;
    ties.push_back({first->second.input, first->second.axis, place.input, place.axis});
  }
  return ties;
}

}  // namespace lumen::backends::openvino
