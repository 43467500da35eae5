// An infer request's tensors to the call: its JSON is checked against the model, and the bytes get
// their places. I/O thread only; allocates nothing but from the request's memory.
#include "transports/http/http_transport.h"
#include "transports/http/request_handler.h"

#include <lumen/service/shared_tensors.h>

namespace lumen::http {

// Checks the text against the model, and gives each tensor that is to come a place.
Status RequestHandler::bind(RequestContext& context, size_t tensor_bytes) noexcept {
  models::Model& model = *context.call.infer.model;
  wire::InferHead& head = context.infer_head;
  if (head.binary_bytes != tensor_bytes) {
    return Status::error(Code::kInvalidArgument,
                         "body of model '%s': the binary_data_size of all inputs add up to %zu "
                         "bytes, but %zu bytes follow the JSON; check "
                         "Inference-Header-Content-Length and Content-Length",
                         model.metadata().name.c_str(), head.binary_bytes, tensor_bytes);
  }
  context.call.set_timeout(head.timeout_us);
  context.call.infer.priority = head.priority;
  context.call.sequence = head.sequence;
  context.call.cache_wishes = {.is_off = head.no_cache || head.sequence.is_said(),
                               .has_shared_input = false,
                               .ttl_ms = head.ttl_ms,
                               .parameters = head.parameters};
  uid_t user = 0;
  if (service::uses_shared_memory(head)) {
    const Result<uid_t> known = region_user(context);
    if (!known.ok()) return known.status();
    user = *known;
  }
  service::Intake& intake = host_.thread().intake;
  service::Binder binder(context.call, model);
  for (const wire::InferInput& input : head.inputs) {
    if (input.shared.is_there()) {
      LUMEN_RETURN_IF_ERROR(service::bind_shared_input(intake, context.call, binder, input, user));
      continue;
    }
    LUMEN_RETURN_IF_ERROR(binder.input(
        input.name, input.tensor,
        input.is_binary ? service::InputBytes::kToReceive : service::InputBytes::kPresent));
  }
  LUMEN_RETURN_IF_ERROR(binder.inputs_named());
  for (const wire::InferOutput& output : head.outputs) {
    LUMEN_RETURN_IF_ERROR(binder.output(output.name));
  }
  const auto places = service::take_output_places(intake, context.call, head.outputs, user);
  if (!places.ok()) return places.status();
  context.output_places = *places;
  return {};
}

}  // namespace lumen::http
