// Binding, placing and encoding for infer. See the header for threads; no allocation but the arena.
#include "serve/infer_service.h"

#include <lumen/base/clock.h>
#include <lumen/engine/validate.h>

#include <algorithm>

namespace lumen::serve {
namespace {

// What OpenVINO's kernels like best and AVX-512 loads need to stay within a line.
constexpr size_t kTensorAlignment = 64;

int width(std::string_view text) noexcept { return static_cast<int>(text.size()); }

Status out_of_arena(std::string_view what, size_t bytes) noexcept {
  return Status::error(Code::kTooLarge,
                       "%.*s needs %zu bytes, more than a request's memory holds; send fewer rows "
                       "or raise --max-body-bytes",
                       width(what), what.data(), bytes);
}

// Reserves the place of a binary tensor and notes it as the next part of the body.
Status place_binary(RequestContext& context, std::string_view name, TensorView& tensor,
                    size_t& segments) noexcept {
  tensor.data =
      static_cast<std::byte*>(context.memory.allocate(tensor.byte_size, kTensorAlignment));
  if (tensor.data == nullptr) return out_of_arena(name, tensor.byte_size);
  if (tensor.byte_size > 0) context.body_segments[segments++] = {tensor.data, tensor.byte_size};
  return {};
}

Status bind_inputs(RequestContext& context, const engine::ModelMetadata& metadata) noexcept {
  const std::span<TensorView> bound =
      context.memory.allocate_array<TensorView>(metadata.inputs.size());
  const std::span<bool> seen = context.memory.allocate_array<bool>(metadata.inputs.size());
  if (bound.size() != metadata.inputs.size()) return out_of_arena("input list", 0);
  size_t segments = 0;
  for (wire::InferInput& input : context.infer_head.inputs) {
    const std::optional<size_t> index = engine::find_tensor(metadata.inputs, input.name);
    if (!index) return engine::unknown_tensor(metadata, "input", metadata.inputs, input.name);
    if (seen[*index]) {
      return Status::error(Code::kInvalidArgument, "input '%.*s' is given twice; send it once",
                           width(input.name), input.name.data());
    }
    seen[*index] = true;
    LUMEN_RETURN_IF_ERROR(engine::check_input(metadata, metadata.inputs[*index], input.tensor));
    if (input.is_binary) {
      LUMEN_RETURN_IF_ERROR(place_binary(context, input.name, input.tensor, segments));
    }
    bound[*index] = input.tensor;
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i]) continue;
    return Status::error(Code::kInvalidArgument,
                         "input '%s' of model '%s' is missing: got %zu inputs, wanted %zu",
                         metadata.inputs[i].name.c_str(), metadata.name.c_str(),
                         context.infer_head.inputs.size(), metadata.inputs.size());
  }
  LUMEN_RETURN_IF_ERROR(engine::check_ties(metadata, bound));
  context.infer.inputs = bound;
  context.body_pending = std::span(context.body_segments).first(segments);
  return {};
}

Status bind_outputs(RequestContext& context, const engine::ModelMetadata& metadata) noexcept {
  const std::span<wire::InferOutput> wanted = context.infer_head.outputs;
  if (wanted.empty()) return {};
  const std::span<uint16_t> indices = context.memory.allocate_array<uint16_t>(wanted.size());
  if (indices.size() != wanted.size()) return out_of_arena("output list", 0);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::optional<size_t> index = engine::find_tensor(metadata.outputs, wanted[i].name);
    if (!index) return engine::unknown_tensor(metadata, "output", metadata.outputs, wanted[i].name);
    indices[i] = static_cast<uint16_t>(*index);
    if (std::ranges::find(indices.first(i), indices[i]) != indices.first(i).end()) {
      return Status::error(Code::kInvalidArgument, "output '%.*s' is requested twice; name it once",
                           width(wanted[i].name), wanted[i].name.data());
    }
  }
  context.infer.outputs_wanted = indices;
  return {};
}

void bind_common(RequestContext& context, engine::Model& model) noexcept {
  context.infer.model = &model;
  context.infer.memory = &context.memory;
  context.infer.owner = &context;
  const std::optional<uint64_t> timeout_us = context.infer_head.timeout_us;
  // From the first byte on, as all that the server measures: its sender's patience began no later.
  // 0 means "no timeout" in the protocol; the cap keeps the addition from overflowing.
  if (timeout_us) {
    context.infer.waits_for_ever = *timeout_us == 0;
    if (*timeout_us > 0) {
      context.infer.deadline_ns =
          context.infer.trace.received_ns + std::min(*timeout_us, limits::kMaxTimeoutUs) * 1000;
    }
  }
}

// How often the fixed part of `shape` fits into `elements`; sets its one free axis. False: the size
// does not fit, or more than one axis is free.
bool deduce_shape(Shape& shape, size_t elements) noexcept {
  std::optional<size_t> free_axis;
  size_t fixed = 1;
  for (size_t i = 0; i < shape.rank(); ++i) {
    if (shape[i] != Shape::kDynamic) {
      fixed *= static_cast<size_t>(shape[i]);
    } else if (free_axis) {
      return false;
    } else {
      free_axis = i;
    }
  }
  if (!free_axis) return fixed == elements;
  if (fixed == 0 || elements % fixed != 0) return false;
  shape[*free_axis] = static_cast<int64_t>(elements / fixed);
  return true;
}

}  // namespace

Status prepare_infer(RequestContext& context, engine::Model& model, size_t binary_bytes) noexcept {
  const engine::ModelMetadata& metadata = model.metadata();
  if (context.infer_head.binary_bytes != binary_bytes) {
    return Status::error(Code::kInvalidArgument,
                         "body of model '%s': the binary_data_size of all inputs add up to %zu "
                         "bytes, but %zu bytes follow the JSON; check "
                         "Inference-Header-Content-Length and Content-Length",
                         metadata.name.c_str(), context.infer_head.binary_bytes, binary_bytes);
  }
  bind_common(context, model);
  LUMEN_RETURN_IF_ERROR(bind_inputs(context, metadata));
  return bind_outputs(context, metadata);
}

Status prepare_raw_infer(RequestContext& context, engine::Model& model,
                         size_t body_bytes) noexcept {
  const engine::ModelMetadata& metadata = model.metadata();
  const size_t element = metadata.inputs.empty() ? 0 : element_size(metadata.inputs[0].type);
  if (metadata.inputs.size() != 1 || element == 0) {
    return Status::error(Code::kInvalidArgument,
                         "model '%s': Inference-Header-Content-Length: 0 (the body is the tensor) "
                         "needs a model with one input of fixed-size elements; send a JSON head",
                         metadata.name.c_str());
  }
  bind_common(context, model);
  const std::span<TensorView> bound = context.memory.allocate_array<TensorView>(1);
  if (bound.empty()) return out_of_arena("input list", 0);
  bound[0].type = metadata.inputs[0].type;
  bound[0].shape = metadata.inputs[0].shape;
  bound[0].byte_size = body_bytes;
  if (body_bytes % element != 0 || !deduce_shape(bound[0].shape, body_bytes / element)) {
    return Status::error(
        Code::kInvalidArgument,
        "input '%s': a raw body of %zu bytes does not fill the model's shape a "
        "whole number of times; check its size, or send a JSON head with the shape",
        metadata.inputs[0].name.c_str(), body_bytes);
  }
  context.infer_head.binary_data_output = true;
  context.infer.inputs = bound;
  size_t segments = 0;
  LUMEN_RETURN_IF_ERROR(place_binary(context, metadata.inputs[0].name, bound[0], segments));
  context.body_pending = std::span(context.body_segments).first(segments);
  return {};
}

Status finish_body(RequestContext& context) noexcept {
  for (const wire::InferInput& input : context.infer_head.inputs) {
    if (input.is_binary && input.tensor.type == ElementType::kBytes) {
      LUMEN_RETURN_IF_ERROR(wire::check_bytes_tensor(input.name, input.tensor));
    }
  }
  return {};
}

void encode_reply(RequestContext& context) noexcept {
  const engine::InferRequest& infer = context.infer;
  const engine::ModelMetadata& metadata = infer.model->metadata();
  const std::span<wire::ReplyOutput> outputs =
      context.memory.allocate_array<wire::ReplyOutput>(infer.outputs.size());
  if (outputs.size() != infer.outputs.size()) {
    context.reply_status = out_of_arena("output list", 0);
    return;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const size_t index = infer.outputs_wanted.empty() ? i : infer.outputs_wanted[i];
    outputs[i].name = metadata.outputs[index].name;
    outputs[i].tensor = infer.outputs[i];
    outputs[i].binary = context.infer_head.outputs.empty() ? context.infer_head.binary_data_output
                                                           : context.infer_head.outputs[i].binary;
  }
  const wire::InferReply reply{metadata.name, metadata.version, context.infer_head.id, outputs};
  const Result<wire::EncodedReply> encoded = wire::encode_infer_reply(reply, context.memory);
  if (!encoded.ok()) {
    context.reply_status = encoded.status();
    return;
  }
  context.reply = *encoded;
  context.reply_outputs = outputs;
}

}  // namespace lumen::serve
