// Binding, placing and encoding for infer. See the header for threads; no allocation but the arena.
#include "transports/http/infer_service.h"

#include <lumen/service/binder.h>

namespace lumen::http {
Status prepare_infer(RequestContext& context, engine::Model& model, size_t binary_bytes) noexcept {
  const engine::ModelMetadata& metadata = model.metadata();
  if (context.infer_head.binary_bytes != binary_bytes) {
    return Status::error(Code::kInvalidArgument,
                         "body of model '%s': the binary_data_size of all inputs add up to %zu "
                         "bytes, but %zu bytes follow the JSON; check "
                         "Inference-Header-Content-Length and Content-Length",
                         metadata.name.c_str(), context.infer_head.binary_bytes, binary_bytes);
  }
  context.call.set_timeout(context.infer_head.timeout_us);
  service::Binder binder(context.call, model);
  for (const wire::InferInput& input : context.infer_head.inputs) {
    LUMEN_RETURN_IF_ERROR(binder.input(
        input.name, input.tensor,
        input.is_binary ? service::InputBytes::kToReceive : service::InputBytes::kPresent));
  }
  LUMEN_RETURN_IF_ERROR(binder.inputs_named());
  for (const wire::InferOutput& output : context.infer_head.outputs) {
    LUMEN_RETURN_IF_ERROR(binder.output(output.name));
  }
  return {};
}

Status prepare_raw_infer(RequestContext& context, engine::Model& model,
                         size_t body_bytes) noexcept {
  context.infer_head.binary_data_output = true;
  service::Binder binder(context.call, model);
  LUMEN_RETURN_IF_ERROR(binder.only_input(body_bytes));
  return binder.inputs_named();
}

void encode_reply(RequestContext& context) noexcept {
  const engine::InferRequest& infer = context.call.infer;
  const engine::ModelMetadata& metadata = infer.model->metadata();
  const std::span<wire::ReplyOutput> outputs =
      context.memory.allocate_array<wire::ReplyOutput>(infer.outputs.size());
  if (outputs.size() != infer.outputs.size()) {
    context.encode_status =
        Status::error(Code::kTooLarge,
                      "the list of outputs does not fit a request's memory; raise "
                      "--max-body-bytes");
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
    context.encode_status = encoded.status();
    return;
  }
  context.encoded = *encoded;
  context.reply_outputs = outputs;
}

}  // namespace lumen::http
