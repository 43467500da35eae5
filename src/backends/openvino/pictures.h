// Pixels to a model's numbers as operations of its graph, which OpenVINO compiles together with it.
// Part of backend.cc, which alone includes it.
// Threads: the control plane. Memory: the graph's. Errors: Status; OpenVINO's exceptions pass
// through.
#pragma once

#include <lumen/models/pictures.h>

#include "backends/openvino/ports.h"

#include <openvino/core/preprocess/pre_post_process.hpp>
#include <openvino/openvino.hpp>

#include <map>
#include <memory>
#include <vector>

namespace lumen::backends::openvino {

inline void add_steps(ov::preprocess::InputInfo& input, const PictureInput& picture) {
  input.tensor().set_element_type(ov::element::u8).set_layout("NHWC");
  input.model().set_layout(picture.has_channels_first ? "NCHW" : "NHWC");
  if (!picture.has_numbers) return;
  input.preprocess().convert_element_type(ov::element::f32);
  input.preprocess().mean(picture.mean).scale(picture.scale);
  if (picture.is_bgr) input.preprocess().reverse_channels();
}

// `inputs`: those of the model as its file has them. Those of pictures become pixels.
inline Status take_pixels(std::shared_ptr<ov::Model>& model, const PicturesOptions& options,
                          const std::vector<Port>& inputs) {
  std::vector<TensorSpec> specs;
  specs.reserve(inputs.size());
  for (const Port& port : inputs) specs.push_back(port.spec);
  const Result<std::vector<PictureInput>> pictures = models::plan_pictures(options, specs);
  if (!pictures.ok()) return pictures.status();
  std::map<size_t, ov::PartialShape> sizes;
  for (const PictureInput& picture : *pictures) {
    ov::PartialShape shape = model->input(picture.index).get_partial_shape();
    const Shape of_model = picture.model_shape();
    for (size_t axis = 1; axis < of_model.rank(); ++axis) shape[axis] = of_model[axis];
    sizes[picture.index] = shape;
  }
  model->reshape(sizes);
  ov::preprocess::PrePostProcessor steps(model);
  for (const PictureInput& picture : *pictures) add_steps(steps.input(picture.index), picture);
  model = steps.build();
  return {};
}

}  // namespace lumen::backends::openvino
